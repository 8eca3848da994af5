package operate

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/cmd/spillway/human"
)

func TestTopSaysFirstWhetherDataIsBeingLost(t *testing.T) {
	t.Parallel()
	out, stderr, code := run(t, quiet(t), "top")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	golden(t, "top-quiet", out)
	out, _, _ = run(t, losing(t), "top", "--once")
	golden(t, "top-losing", out)

}

func TestTopAsJSONHasFindingsAndPartitions(t *testing.T) {
	t.Parallel()
	out, _, code := run(t, losing(t), "top", "--once", "-o", "json")
	var got struct {
		Findings   struct{ Findings []struct{ Namespace string } }
		Namespaces []json.RawMessage
		Partitions struct {
			Partitions []struct{ Namespace, Partition string }
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	if found := got.Findings.Findings; len(found) != 2 || found[0].Namespace != "kart" || len(got.Namespaces) != 2 {
		t.Errorf("got %+v", got)
	}
	if rows := got.Partitions.Partitions; len(rows) != 3 || rows[0].Namespace != "kart" || rows[0].Partition != "eu-1" {
		t.Errorf("got %+v", rows)
	}
	if strings.ContainsRune(out, 0x1b) {
		t.Error("the output has an escape sequence")
	}
}

func TestTopKnowsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	api := quiet(t)
	api.answers["GET /api/v1/overview"] = strings.NewReplacer(`"ready":true`, `"ready":false`, `"accepted":50,"delivered":49.5,"evicted":0,`, "").Replace(quietOverview)
	api.answers["GET /api/v1/namespaces/default/partitions"] = `{"error":"store_unavailable","message":"the store did not answer"}`
	out, stderr, code := run(t, api, "top")
	if words := strings.Join(strings.Fields(out), " "); code != 0 || !strings.Contains(words, "default ? ? ? 0 0.0 23") || !strings.Contains(words, "Which partitions have entries is not known.") {
		t.Errorf("exit %d, got\n%s%s", code, out, stderr)
	}
}

func TestListsArePrintedAsTables(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"ls": {"ls"}, "ls-kart": {"ls", "kart"}, "ls-name": {"ls", "--sort=name"}, "ls-namespaces": {"ls", "--namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, stderr, code := run(t, losing(t), args...)
			if code != 0 {
				t.Fatalf("exit %d, %s", code, stderr)
			}
			golden(t, name, out)
		})
	}
}

func TestTheListPassesWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	api := losing(t)
	api.queue["GET /api/v1/pauses"] = []string{`{"pauses":[{"namespace":"mail","queue":"out"}]}`, `{"pauses":[]}`}
	out, stderr, _ := run(t, api, "ls", "--paused")
	if !strings.Contains(stderr, "queue mail/out is paused") || strings.Count(api.requests(), "/pauses") != 1 {
		t.Errorf("got %s%s after %s", out, stderr, api.requests())
	}
	out, stderr, _ = run(t, api, "ls", "kart", "--sort=evicted", "--limit=1", "--filter=eu", "--paused", "-o", "json")
	if want := "GET /api/v1/namespaces/kart/partitions?limit=1&order=desc&paused=1&q=eu&sort=evicted"; !strings.Contains(api.requests(), want) {
		t.Errorf("got %s, want %s", api.requests(), want)
	}
	var got struct {
		Total      int
		Complete   bool
		Partitions []map[string]any
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Total != 2 || got.Complete || len(got.Partitions) != 1 || got.Partitions[0]["namespace"] != "kart" || got.Partitions[0]["evicted_per_s"] != 12.04 {
		t.Errorf("%v, got %s%s", err, out, stderr)
	}
}

func TestTheListWaitsForTheFirstSweep(t *testing.T) {
	t.Parallel()
	api := losing(t)
	route := "GET /api/v1/namespaces/kart/partitions"
	never := `{"now_ms":1700000000000,"sweep":{"complete":false,"completed_at_ms":null,"known":0},"total":0,"partitions":[]}`
	api.queue[route] = []string{never, strings.Replace(never, "null", "1600000000000", 1)}
	out, _, _ := run(t, api, "ls", "kart")
	if !strings.Contains(out, "eu-1") || strings.Count(api.requests(), "/partitions") != 3 {
		t.Errorf("got %s after\n%s", out, api.requests())
	}
}

func TestTextEscapesWhatDrivesATerminal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"kart-7 lap 3 …": "kart-7 lap 3 …", "a\x1b[2Jb": `a\u001b[2Jb`, "a\u202egnp.exe": `a\u202egnp.exe`, "\u009b31m": `\u009b31m`,
		"a\nb\tc": `a\u000ab\u0009c`, "\xff": `\xff`, "\U000e0041": `\udb40\udc41`, "": "", "\u2066": `\u2066`, "é日本": "é日本", "\ufffd": "\ufffd",
	} {
		if got := escape(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	// JSON means the same afterwards.
	text := `{"a":"\u202e` + "\u202e\U000e0041" + `"}`
	var before, after map[string]string
	if json.Unmarshal([]byte(text), &before) != nil || json.Unmarshal([]byte(escape(text)), &after) != nil || before["a"] != after["a"] {
		t.Errorf("got %q, want %q", after, before)
	}
}

func TestJSONStaysJSONWhateverAPayloadHolds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := printJSON(&out, json.RawMessage("{\"data\": \"a\xff\u202e\x7f\"}")); err != nil || out.String() != "{\"data\":\"a\ufffd\\u202e\\u007f\"}\n" || !json.Valid(out.Bytes()) {
		t.Errorf("%v, got %q", err, out.String())
	}
}

func TestDurationsReadAsPeopleSayThem(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]string{
		-5: "0ms", 0: "0ms", 850: "850ms", 12345: "12.3s", 180000: "3m", 59999: "59.9s", 170000: "2m50s", 3 * 3600_000: "3h", 47*3600_000 + 59*60_000: "47h59m", 52 * 3600_000: "2d04h",
	} {
		if got := human.Since(ms); got != want {
			t.Errorf("%d: got %s, want %s", ms, got, want)
		}
	}
}

func TestAScreenShowsWhatFits(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	lines := []string{"HEADLINE", "0123456789abcdef", "c", "d", "keys"}
	if err := draw(&b, lines, func() (int, int) { return 10, 3 }); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[H\x1b[7mHEADLINE\x1b[0m\x1b[K\r\n0123456789\x1b[K\r\nkeys\x1b[K\x1b[J"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// Whatever an id, an error or a payload holds, what is printed drives no terminal,
// and JSON keeps its value.
func FuzzWhatIsPrintedIsHarmless(f *testing.F) {
	for _, seed := range []string{"", "kart-7", "\x1b[2J", "\u202egnp", "\xff\xfe", `{"a":"` + "\u2066\x7f" + `"}`, "[\"\U000e0041\xc3\"]", `"\ud800"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range escape(text) {
			if !strconv.IsPrint(r) {
				t.Fatalf("%q: got %q", text, escape(text))
			}
		}
		var before, after any
		if json.Unmarshal([]byte(text), &before) != nil {
			return
		}
		var out bytes.Buffer
		if err := printJSON(&out, json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Fatalf("%q: %v, got %q", text, err, out.String())
		}
	})
}

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
