package operate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func TestCheckExitsWithTheLevelOfWhatTheServiceFinds(t *testing.T) {
	t.Parallel()
	const route = "GET /api/v1/findings"
	for _, tt := range []struct {
		name, args, answer string
		code               int
		want               string
	}{
		{"all is well", "", `{"level":"ok","headline":"no data is being lost","findings":[]}`, 0, "OK: no data is being lost\n"},
		{"a notice", "", `{"level":"notice","headline":"no data is being lost","findings":[{"level":"notice","what":"r:1: its append-only file is off"}]}`, 0,
			"NOTICE: no data is being lost\n  notice  r:1: its append-only file is off\n"},
		{"a risk", "", `{"level":"risk","headline":"at risk","findings":[{"level":"risk","namespace":"kart","what":"it waits","why":"a | b\u001b","do":"repair it","command":"spillway ls kart"}]}`, 1,
			"RISK: at risk\n  risk    kart: it waits; a / b\\u001b; repair it: spillway ls kart\n"},
		{"a loss", "kart --audit", `{"level":"loss","headline":"lost","findings":[]}`, 2, "LOSS: lost\n"},
		{"a level of another version", "", `{"level":"novel"}`, 3, "NOVEL"},
		{"the store is away", "", `{"error":"store_unavailable","message":"the store did not answer"}`, 2, "LOSS: no answer: whether data is being lost is unknown\n  loss    the store did not answer"},
		{"forbidden", "", `{"error":"forbidden","message":"this needs the role viewer"}`, 3, "UNKNOWN: the check was not made\n  unknown  the role of this token does not allow it"},
		{"no such namespace", "nowhere", `{"error":"no_such_namespace","message":"there is no namespace"}`, 3, "there is no namespace"},
		{"another program", "", `<html>`, 3, "is --admin that port"},
		{"a bad name", "..", "", 3, "not the name"},
		{"a bad token", "--api-token=sha256:x", "", 3, "hash"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, map[string]string{route: tt.answer})
			out, stderr, code := run(t, api, append([]string{"check"}, strings.Fields(tt.args)...)...)
			if code != tt.code || !strings.Contains(out, tt.want) || stderr != "" {
				t.Errorf("exit %d, got\n%s%swant %d\n%s", code, out, stderr, tt.code, tt.want)
			}
			if tt.args == "kart --audit" && api.requests() != route+"?audit=1&namespace=kart" {
				t.Errorf("it asked %s", api.requests())
			}
			out, _, again := run(t, api, append([]string{"check", "-o", "json"}, strings.Fields(tt.args)...)...)
			if !json.Valid([]byte(out)) || again != code || !strings.Contains(out, `"level":`) {
				t.Errorf("as JSON: exit %d, %s", again, out)
			}
		})
	}
	if out, _, code := run(t, nil, "check", "--admin=http://127.0.0.1:1"); code != 2 || !strings.Contains(out, "nothing listens at http://127.0.0.1:1: start") {
		t.Errorf("no service: exit %d, %s", code, out)
	}
}

func TestWrongUsageOfCheckIsUnknown(t *testing.T) {
	t.Parallel()
	var c Commands
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]int{"check": 3, "ls": 2} {
		_, err := parser.Parse([]string{command, "--nonsense"})
		failed, ok := err.(*kong.ParseError)
		if !ok {
			t.Fatalf("got %v", err)
		}
		if got := ExitCode(failed.Context, 2); got != want {
			t.Errorf("%s: got %d, want %d", command, got, want)
		}
	}
}
