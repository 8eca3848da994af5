package operate

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func TestAPurgeCountsBeforeItDeletes(t *testing.T) {
	t.Parallel()
	const route = "POST /api/v1/namespaces/kart/purge"
	api := newFakeAPI(t, map[string]string{})
	api.queue[route] = []string{
		`{"dry_run":true,"entries":1234,"partitions":12,"leased":1,"complete":true}`,
		`{"dry_run":false,"entries":1234,"partitions":12,"leased":1,"complete":false}`,
	}
	out, stderr, code := run(t, api, "purge", "kart", "eu-1", "--older-than=1h", "--yes")
	if code != 0 || out != "kart/eu-1: deleted 1234 entries in 12 partitions; 1 partition is being delivered, left alone\n" || !strings.Contains(stderr, "more match now") {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
	want := `POST /api/v1/namespaces/kart/purge {"dry_run":"1","older_than":"1h0m0s","partition":"eu-1"}
POST /api/v1/namespaces/kart/purge {"confirm":"1234","older_than":"1h0m0s","partition":"eu-1"}`
	if api.requests() != want {
		t.Errorf("got\n%s\nwant\n%s", api.requests(), want)
	}
}

func TestAPurgeThatNobodyConfirmsDeletesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args, answer string
		code         int
		want         string
	}{
		{"purge kart", `{"entries":7,"partitions":1}`, 2, "add --yes to delete them (7)"},
		{"purge kart --dry-run", `{"entries":7,"partitions":1}`, 0, "found 7 entries"},
		{"purge kart --yes", `{"entries":0}`, 0, "found 0 entries"},
		{"purge kart --yes", `{"error":"forbidden","message":"this needs the role admin; bob has operator"}`, 1, "needs the role admin"},
		{"purge .. --yes", ``, 2, "is not the name of a namespace"},
		{"purge kart .. --yes", ``, 2, "a partition's name is"},
		{"purge kart --limit=-1", ``, 2, "limit"},
		{"dead rm kart", `{"deleted":7}`, 2, "add --yes to delete them (7)"},
		{"dead replay kart --dry-run", `{"replayed":7}`, 0, "found 7 dead letters"},
		{"dead replay kart --per-second=0", ``, 2, "per-second"},
		{"dead replay kart --cause= --yes", ``, 2, "cause is missing or empty"},
	} {
		api := newFakeAPI(t, map[string]string{
			"POST /api/v1/namespaces/kart/purge": tt.answer, "POST /api/v1/namespaces/kart/dead/delete": tt.answer, "POST /api/v1/namespaces/kart/dead/replay": tt.answer,
		})
		_, stderr, code := run(t, api, strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit %d, %s; want %d, %s", tt.args, code, stderr, tt.code, tt.want)
		}
		for asked := range strings.Lines(api.requests()) {
			if !strings.Contains(asked, `"dry_run":"1"`) {
				t.Errorf("%s: it asked for %s", tt.args, asked)
			}
		}
	}
}

func TestOnlyTheTypedCountConfirms(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]error{"1234\n": nil, " 1234 \n": nil, "yes\n": errDeclined, "\n": errDeclined, "": errDeclined, "123\n": errDeclined} {
		var prompt bytes.Buffer
		err := askFor(t.Context(), Streams{In: strings.NewReader(typed), Err: &prompt}, 1234, "delete them")
		if !errors.Is(err, want) || prompt.String() != "Type 1234 to delete them: " {
			t.Errorf("%q: got %v after %q, want %v", typed, err, &prompt, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	blocked, _ := ioPipe(t)
	if err := askFor(ended, Streams{In: blocked, Err: new(bytes.Buffer)}, 1, "delete it"); !errors.Is(err, errDeclined) {
		t.Errorf("interrupted: got %v", err)
	}
}

func TestAPurgeThatLeavesCountedEntriesSaysSo(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{})
	api.queue["POST /api/v1/namespaces/kart/purge"] = []string{`{"entries":7,"partitions":2}`, `{"entries":4,"partitions":1,"leased":1,"complete":true}`}
	out, stderr, code := run(t, api, "purge", "kart", "--yes")
	if code != 0 || !strings.Contains(out, "deleted 4 entries") || !strings.Contains(stderr, "3 of those that were counted are left") {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
}

func TestAReplayGoesOnUntilItIsComplete(t *testing.T) {
	t.Parallel()
	const route = "POST /api/v1/namespaces/kart/dead/replay"
	api := newFakeAPI(t, map[string]string{})
	api.queue[route] = []string{
		`{"dry_run":true,"replayed":300}`, `{"replayed":200,"complete":false}`, `{"replayed":99,"failed":1,"errors":["partition eu-1: the store is full"],"complete":true}`,
	}
	out, stderr, code := run(t, api, "dead", "replay", "kart", "--reason=timeout", "--cause=no lap #", "--per-second=50", "--yes")
	if code != 1 || out != "kart: replayed 299 dead letters\n" || !strings.Contains(stderr, "200 of 300 so far") || !strings.Contains(stderr, "1 dead letter failed and are kept: partition eu-1: the store is full") {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
	if want := `{"cause":"no lap #","confirm":"100","per_second":"50","reason":"timeout"}`; !strings.HasSuffix(api.requests(), want) {
		t.Errorf("got %s, want %s", api.requests(), want)
	}
}

func TestAnActBesideAnotherSaysSo(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{})
	api.queue["POST /api/v1/namespaces/kart/purge"] = []string{`{"entries":7,"partitions":1}`, `{"error":"conflict","message":"a purge is under way: wait for its end"}`}
	_, stderr, code := run(t, api, "purge", "kart", "--yes")
	if code != 1 || !strings.Contains(stderr, "spillway: a purge is under way: wait for its end (conflict)") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestAPauseSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{
		"POST /api/v1/namespaces/kart/pause":  `{"paused":{"since_ms":1700000000000,"by":"alice","reason":"sink moves"}}`,
		"POST /api/v1/namespaces/kart/resume": `{"paused":null,"was_paused":true}`,
		"POST /api/v1/namespaces/mail/resume": `{"paused":null}`,
		"POST /api/v1/reload":                 `{"changed":["namespaces.kart.sink"]}`,
		"POST /api/v1/namespaces/chess/pause": `{"paused":{"since_ms":1700000000000,"by":"alice","reason":""},"empty":true}`,
	})
	for _, tt := range []struct{ args, want string }{
		{"pause kart --reason=sink", "delivery is paused (by alice, "}, {"resume kart eu-1", "kart/eu-1: delivery is not paused\n"},
		{"resume mail eu-2", "mail/eu-2: delivery was not paused\n"},
		{"pause chess blitz", "chess/blitz: delivery is paused (by alice, "}, {"pause chess blitz", "; it has no entries or jobs now, a pause waits for its first one\n"}, {"reload", "Reloaded. Changed:\n  namespaces.kart.sink\n"},
		{"pause kart -o json", `{"paused":{"since_ms":1700000000000,"by":"alice","reason":"sink moves"}}` + "\n"},
	} {
		out, stderr, code := run(t, api, strings.Fields(tt.args)...)
		if code != 0 || !strings.Contains(out, tt.want) {
			t.Errorf("%s: exit %d, got %s%s, want %s", tt.args, code, out, stderr, tt.want)
		}
	}
	if !strings.Contains(api.requests(), `POST /api/v1/namespaces/kart/pause {"reason":"sink"}`) {
		t.Errorf("got %s", api.requests())
	}
}

// Not that the service is of another version.
func TestAPauseOfAQueueSaysWhatStopsOne(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{"POST /api/v1/namespaces/mail/pause": `{"error":"no_such_route","message":"mail is of kind queue, which has no pause"}`})
	if _, stderr, code := run(t, api, "pause", "mail"); code != 1 || stderr != "spillway: mail is of kind queue, which has no pause (no_such_route)\n" {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestWhatACommandDoesNotMeanIsNotDone(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, nil)
	for want, args := range map[string][]string{
		"none of them empty":         {"jobs", "respawn", "mail", "out", "", "--yes"}, // a variable that is not set
		"concurrency: want 1..10000": {"rules", "set", "mail", "out", "--rate=5/s", "--concurrency=0"},
	} {
		if out, stderr, code := run(t, api, args...); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %s%s; want %q", args, code, out, stderr, want)
		}
	}
}

func TestARuleSaysWhatItReplaced(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{
		"POST /api/v1/control/namespaces/mail/rules": `{"match":"out","tries":9,"replaced":{"concurrency":2}}`,
	})
	out, stderr, code := run(t, api, "rules", "set", "mail", "out", "--tries=9")
	if code != 0 || !strings.Contains(stderr, `it replaced {"concurrency":2}`) {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
}

func TestARuleThatDoesNotCountSaysWhy(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{
		"GET /api/v1/control/namespaces/mail/rules": `{"rules":[{"match":"*","concurrency":2,"unused":"bulk has\u001b a spread"}]}`,
	})
	out, stderr, code := run(t, api, "rules", "ls", "mail")
	if code != 0 || !strings.Contains(out, "*") || !strings.Contains(stderr, `* does not count: bulk has\u001b a spread`) {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
}

func TestARejectedReloadNamesEveryMistakeOnALine(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{"POST /api/v1/reload": `{"error":"bad_request","message":"one.yaml:3: capacity\none.yaml:9: sink\u001b[2J"}`})
	_, stderr, code := run(t, api, "reload")
	if want := "spillway: one.yaml:3: capacity\none.yaml:9: sink\\u001b[2J (bad_request)\n"; code != 1 || stderr != want {
		t.Errorf("exit %d, got %q, want %q", code, stderr, want)
	}
}
