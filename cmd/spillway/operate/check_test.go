package operate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func TestCheckExitsWithTheWorstStatus(t *testing.T) {
	t.Parallel()
	change := func(from, to string) func(*fakeAPI) {
		return func(f *fakeAPI) {
			was := f.answers["GET /api/v1/overview"]
			if f.answers["GET /api/v1/overview"] = strings.Replace(was, from, to, 1); f.answers["GET /api/v1/overview"] == was {
				t.Errorf("%s is not in the answer", from)
			}
		}
	}
	age := func(ms string) func(*fakeAPI) { return change(`"oldest_age_ms":1200`, `"oldest_age_ms":`+ms) }
	rates := func(text string) func(*fakeAPI) { return change(`"delivered":49.5`, `"delivered":49.5,`+text) }
	history := func(series string) func(*fakeAPI) {
		return func(f *fakeAPI) { f.answers[historyRoute] = `{"step_ms":1000,"series":{` + series + `}}` }
	}
	nulls := strings.Repeat("null,", 30)
	sink := func(text string) func(*fakeAPI) { return change(`"state":"open"`, text) }
	account := "GET /api/v1/namespaces/default"
	residual := func(values ...string) func(*fakeAPI) {
		return func(f *fakeAPI) {
			for _, v := range values {
				f.queue[account] = append(f.queue[account], `{"residual":`+v+`}`)
			}
		}
	}
	for _, tt := range []struct {
		name, args string
		change     func(*fakeAPI)
		code       int
		want       string
	}{
		{"quiet", "", nil, 0, "OK\n  default: 23 entries wait, the oldest at 1% of max_age; in 50.0/s, out 49.5/s, dropped 0; 0 dead letters\n"},
		{"old", "", age("90000"), 1, "WARNING\n  warning   default: the oldest entry waits for 1m30s of 3m (50%)\n"},
		{"older", "", age("150000"), 2, "CRITICAL\n  critical  default: the oldest entry waits for 2m30s of 3m (83%)\n"},
		{"old, but allowed", "--age-warning=0.9 --age-critical=0", age("150000"), 0, "OK"},
		{"no age", "", age("null"), 0, "OK"},
		{"backlog", "--backlog-warning=23", nil, 1, "23 entries wait"},
		{"large backlog", "--backlog-warning=1 --backlog-critical=20", nil, 2, "23 entries wait"},
		{"one drop a while ago", "", history(`"expired":[0,0.9` + strings.Repeat(",0", 58) + `]`), 1, "default: dropped 1 in the last 1m0s: expired 1 (older than 3m)\n"},
		{"before --since", "", history(`"lost":[7` + strings.Repeat(",0", 60) + `]`), 0, "OK"},
		{"a longer --since", "--since=15m", history(`"lost":[0.8` + strings.Repeat(",0", 899) + `]`), 1, "dropped 1 in the last 15m0s: lost 1 (removed"},
		{"hundreds of drops", "", history(`"evicted":[998.9]`), 2, "dropped about 999 in the last 1m0s: evicted 999 (partitions are full)"},
		{"many drops", "", history(`"evicted":[77,null],"lost":[null,3]`), 2, "dropped 80 in the last 1m0s: evicted 77 (partitions are full), lost 3 (removed"},
		{"a reading that was missed", "--since=20s", history(`"dead":[0,` + nulls + `2]`), 1, "dropped 62 in the last 20s: dead 62 (the sink rejects them; dead letters are kept)"},
		{"dead letters dropped", "", history(`"dead":[80],"dead_letters_evicted":[80]`), 2, "dead letters dropped 80 (more than max_dead"},
		{"its pool is away", "", change(`"read_at_ms":1699999999000`, `"read_at_ms":1699999970000`), 2, "critical  default: its Redis has not answered for 30.0s"},
		{"its pool never answered", "", change(`"read_at_ms":1699999999000`, `"read_at_ms":0`), 2, "critical  default: its Redis has not answered yet"},
		{"a full store", "", change(`"ready":true`, `"ready":true,"degraded":["store_full"],"warnings":["r:1: its memory is full"]`), 2, "critical  the store's memory is full: what clients send is rejected with store_full; what is stored is still delivered, which makes room; r:1: its memory is full"},
		{"drops that are allowed", "--drops-warning=1", history(`"dead":[0,50]`), 0, "dropped 50;"},
		{"a purge is wanted", "", history(`"purged":[500],"evicted":[0]`), 0, "OK"},
		{"no history", "", func(f *fakeAPI) { history(`"evicted":[null],"dead":[null]`)(f); rates(`"evicted":0.5,"dead":0.5`)(f) }, 1, "default: evicted 0.5/s (partitions are full), dead 0.5/s"},
		{"no route of the history", "", func(f *fakeAPI) { delete(f.answers, historyRoute); rates(`"expired":0.1`)(f) }, 1, "default: expired 0.1/s"},
		{"--since too long", "--since=16m", nil, 3, "since: 16m0s: want 1s to 15m0s"},
		{"sink fails", "", sink(`"state":"failing","failing_since_ms":1699999990000,"last_error":"rejected"`), 1, "sink stdout: fails for 10.0s: rejected"},
		{"sink fails for long", "", sink(`"state":"tripped","failing_since_ms":1699999900000`), 2, "sink stdout: fails for 1m40s"},
		{"sink that nothing waits for", "", func(f *fakeAPI) {
			sink(`"state":"failing","failing_since_ms":1699999000000,"last_error":"rejected"`)(f)
			change(`"buffered":23,"partitions"`, `"buffered":0,"partitions"`)(f)
		}, 1, "warning   default: sink stdout: fails for 16m40s: rejected; no entry waits for it"},
		{"sink failed once", "", sink(`"state":"failing","failing_since_ms":1699999999900`), 0, "OK"},
		{"paused", "", change(`"paused":null`, `"paused":{"since_ms":1699999880000,"by":"alice","reason":"x"}`), 1, "delivery is paused (by alice, 2m ago): x"},
		{"partitions paused", "", change(`"paused_partitions":0`, `"paused_partitions":2`), 1, "2 partitions are paused"},
		{"not ready", "", func(f *fakeAPI) { f.answers["GET /readyz"] = `{"error":"not_ready","message":"starting"}` }, 2, "not ready: starting"},
		{"store down", "", func(f *fakeAPI) {
			f.answers["GET /api/v1/overview"] = `{"error":"store_unavailable","message":"the store did not answer"}`
		}, 2, "the store did not answer"},
		{"forbidden", "", func(f *fakeAPI) {
			f.answers["GET /api/v1/overview"] = `{"error":"forbidden","message":"this needs the role viewer"}`
		}, 3, "needs the role viewer"},
		{"token", "", func(f *fakeAPI) { f.token = "x" }, 3, "requires a token"},
		{"residual", "--audit", residual("0"), 0, "OK"},
		{"moving", "--audit", residual("3", "-1"), 0, "OK"},
		{"real residual", "--audit", residual("3", "3", "3"), 2, "differ by 3"},
		{"no such namespace", "nowhere", func(f *fakeAPI) {
			f.answers["GET /api/v1/namespaces/nowhere/partitions"] = `{"error":"no_such_namespace","message":"there is no namespace"}`
		}, 3, "there is no namespace"},
		{"bad name", "..", nil, 3, "not the name"},
		{"bad URL", "--api-token=sha256:x", nil, 3, "hash"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			api := quiet(t)
			if tt.change != nil {
				tt.change(api)
			}
			out, stderr, code := run(t, api, append([]string{"check"}, strings.Fields(tt.args)...)...)
			if code != tt.code || !strings.Contains(out, tt.want) || stderr != "" {
				t.Errorf("exit %d, got\n%s%swant %d\n%s", code, out, stderr, tt.code, tt.want)
			}
		})
	}
}

func TestCheckWithoutAServiceIsCritical(t *testing.T) {
	t.Parallel()
	out, _, code := run(t, nil, "check", "--admin=http://127.0.0.1:1", "-o", "nagios")
	if want := "SPILLWAY CRITICAL - nothing listens at http://127.0.0.1:1: start"; code != 2 || !strings.HasPrefix(out, want) {
		t.Errorf("exit %d, %s", code, out)
	}
}

func TestCheckPrintsWhatMonitoringReads(t *testing.T) {
	t.Parallel()
	for name, api := range map[string]*fakeAPI{"quiet": quiet(t), "losing": losing(t)} {
		api.answers["GET /api/v1/overview"] = strings.Replace(api.answers["GET /api/v1/overview"], "connection refused", "a | b", 1)
		out, _, _ := run(t, api, "check", "-o", "nagios", "--backlog-warning=5000")
		if strings.Count(out, "|") != 1 || strings.Count(out, "\n") != 1 {
			t.Errorf("got %s", out)
		}
		golden(t, "check-nagios-"+name, out)
	}
	out, _, code := run(t, losing(t), "check", "-o", "json")
	var got struct {
		Status     string
		ExitCode   int `json:"exit_code"`
		Findings   []map[string]string
		Namespaces []map[string]any
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Status != "critical" || got.ExitCode != code || code != 2 ||
		len(got.Findings) != 5 || got.Findings[0]["status"] != "critical" || got.Findings[4]["check"] != "paused" || len(got.Namespaces) != 2 {
		t.Errorf("exit %d, %v: %s", code, err, out)
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
