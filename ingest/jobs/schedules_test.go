package jobs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

// startFiring is startProcess with a firer.
func startFiring(t *testing.T, url string, edit func(*job.Policy)) *process {
	t.Helper()
	policy := job.DefaultPolicy()
	if edit != nil {
		edit(&policy)
	}
	p := startProcess(t, url, policy, nil)
	p.fire()
	return p
}

// fire fires what is due until the test ends.
func (p *process) fire() {
	p.t.Helper()
	f := schedule.NewFirer(p.store, prometheus.NewRegistry(), zap.NewNop())
	if err := f.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = f.Stop(context.Background()) })
}

// shown is a schedule as the port shows it.
type shown struct {
	Name, State string
	Rev         int64
	Next        []string
	Ticks       map[string]int64
	Last        []struct {
		Tick, Cause string
		IDs         []string
	}
}

func (p *process) schedule(name string, headers ...string) (s shown) {
	p.t.Helper()
	r := p.do("GET", "/v1/mail/reports/schedules/"+name, "", headers...)
	if err := json.Unmarshal([]byte(r.raw), &s); err != nil || r.status != 200 {
		p.t.Fatalf("%s: %d %s", name, r.status, r.raw)
	}
	total := int64(0)
	for what, n := range s.Ticks {
		if what != "total" {
			total += n
		}
	}
	if s.Ticks["total"] != total {
		p.t.Errorf("the account of %s does not add up: %v", name, s.Ticks)
	}
	return s
}

// expect does a request and wants a status and a part of the answer.
func (p *process) expect(status int, part, method, path, body string, headers ...string) *reply {
	p.t.Helper()
	r := p.do(method, "/v1/mail/"+path, body, headers...)
	if r.status != status || !strings.Contains(r.raw, part) {
		p.t.Errorf("%s %s %.200s: got %d %s, want %d with %s", method, path, body, r.status, r.raw, status, part)
	}
	return r
}

// storesOf starts a store of each kind; with -short the two that differ most.
func storesOf(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"embedded": "embedded:", "cluster": redistest.StartMasters(t, 2).URL()}
	if !testing.Short() {
		all["redis"], all["sentinel"] = redistest.Start(t).URL(), redistest.StartSentinel(t).URL()
	}
	return all
}

func TestASchedulePublishesItsJobs(t *testing.T) {
	t.Parallel()
	for name, url := range storesOf(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startFiring(t, url, func(p *job.Policy) { p.Shards, p.Spread = 3, map[string]int{"reports": 2} })
			for _, name := range []string{"a", "b", "c"} {
				p.expect(201, `"created"`, "PUT", "reports/schedules/"+name, `{"every":"1s","data":{"n":1},"attributes":{"team":"x"},"shards":2}`)
			}
			p.expect(200, `"unchanged"`, "PUT", "reports/schedules/a", `{ "every": "1s", "data": {"n":1}, "attributes": {"team":"x"}, "shards":2 }`)
			if r := p.do("GET", "/v1/mail/_schedules?limit=2", ""); r.status != 200 || !strings.HasSuffix(r.raw, `"next":"reports/b"}`+"\n") {
				t.Errorf("all schedules: %d %s", r.status, r.raw)
			}
			seen := map[string]bool{}
			eventually(t, "each has fired twice", func() bool {
				for _, j := range p.do("POST", "/v1/mail/reports/claim?count=100", "").Jobs {
					a := j.Attributes
					key := a["schedule"] + a["tick"] + a["shard_index"]
					tick, err := time.Parse(time.RFC3339, a["tick"])
					if seen[key] || err != nil || tick.UnixMilli() > j.Published || a["cause"] != "due" || a["team"] != "x" || a["shard_total"] != "2" {
						t.Errorf("got %+v", j)
					}
					seen[key] = true
				}
				fired := true
				for _, name := range []string{"a", "b", "c"} {
					fired = fired && p.schedule(name).Ticks["fired"] >= 2
				}
				return fired && len(seen) >= 12
			})
			for _, name := range []string{"a", "b", "c"} {
				p.expect(200, `"paused"`, "POST", "reports/schedules/"+name+"/pause", "")
			}
			if s := p.schedule("a"); s.State != "paused" || len(s.Next) != 0 || len(s.Last[0].IDs) != 2 || s.Last[0].Cause != "due" {
				t.Errorf("got %+v", s)
			}
			residual, err := p.store.Audit(t.Context(), p.store.Namespace("mail"))
			if err != nil || residual != 0 {
				t.Errorf("residual %d, %v", residual, err)
			}
			p.expect(200, `"next":"b"`, "GET", "reports/schedules?limit=2", "")
			p.expect(200, `"name":"c"`, "GET", "reports/schedules?limit=2&after=b", "")
		})
	}
}

func TestSchedulesAreTriggeredPausedBackfilledDeleted(t *testing.T) {
	t.Parallel()
	p := startFiring(t, redistest.Start(t).URL(), func(p *job.Policy) { p.MaxSchedules, p.MaxJobs = 3, 90 })
	daily := `{"cron":"30 2 * * *","tz":"Europe/Berlin","overlap":"skip"}`
	p.expect(201, `"rev":1`, "PUT", "reports/schedules/daily", daily)
	first := p.expect(200, `"accepted":1`, "POST", "reports/schedules/daily/trigger", "", "Idempotency-Key: k")
	if again := p.expect(200, `"repeated":true`, "POST", "reports/schedules/daily/trigger", "", "Idempotency-Key: k"); fmt.Sprint(again.IDs) != fmt.Sprint(first.IDs) {
		t.Errorf("got %v and %v", first.IDs, again.IDs)
	}
	p.expect(409, "run_unfinished", "POST", "reports/schedules/daily/trigger", "")
	p.expect(200, `"accepted":1`, "POST", "reports/schedules/daily/trigger?force=1", "")
	p.expect(200, `"changed":true,"rev":2`, "POST", "reports/schedules/daily/pause", "")
	p.expect(200, `"changed":false,"rev":2`, "POST", "reports/schedules/daily/pause", "")
	p.expect(412, "revision_mismatch", "PUT", "reports/schedules/daily", `{"every":"1h"}`, `If-Match: "1"`)
	p.expect(200, `"replaced"`, "PUT", "reports/schedules/daily", `{"cron":"30 2 * * *","tz":"Europe/Berlin"}`, `If-Match: 2`)
	p.expect(412, "revision_mismatch", "PUT", "reports/schedules/none", `{"every":"1h"}`, `If-Match: 2`)
	p.expect(200, `"ticks":31,"accepted":31`, "POST", "reports/schedules/daily/backfill?from=2026-10-01T00:00:00Z&to=2026-10-31T23:00:00Z", "")
	p.expect(200, `"ticks":31,"accepted":0`, "POST", "reports/schedules/daily/backfill?from=2026-10-01T00:00:00Z&to=2026-10-31T23:00:00Z", "")
	for _, half := range []string{"from=2026-09-01T02:30:00%2B02:00&to=2026-09-16T02:30:00%2B02:00", "from=2026-09-16T02:30:00%2B02:00&to=2026-10-01T02:30:00%2B02:00"} {
		p.expect(200, `"ticks":15,"accepted":15`, "POST", "reports/schedules/daily/backfill?"+half, "") // they meet at a tick
	}
	p.expect(429, "too_many_jobs", "POST", "reports/schedules/daily/backfill?from=2026-08-01T00:00:00Z&to=2026-08-31T23:00:00Z", "")
	p.expect(400, "more than 1000 ticks", "POST", "reports/schedules/daily/backfill?from=2020-10-01T00:00:00Z&to=2026-10-31T23:00:00Z", "")
	if s := p.schedule("daily"); s.State != "paused" || s.Last[0].Cause != "backfilled" {
		t.Errorf("got %+v", s)
	}
	p.expect(400, `"field":"at","value":"2001-01-01T00:00:00Z"`, "PUT", "reports/schedules/two", `{"at":"2001-01-01T00:00:00Z"}`)
	p.expect(400, `"every: \"number\": want a text, such as \"90s\"`, "PUT", "reports/schedules/two", `{"every":5}`)
	p.expect(400, `\"evry\": the parameters of this route are owner, failing, limit, after, each`, "GET", "reports/schedules?evry=1", "")
	p.expect(400, `"field":"until"`, "PUT", "reports/schedules/two", `{"every":"1h","until":"2001-01-01T00:00:00Z"}`)
	p.expect(201, "", "PUT", "reports/schedules/two", `{"every":"1h"}`)
	p.expect(201, "", "PUT", "other/schedules/two", `{"every":"1h"}`)
	p.expect(429, "too_many_schedules", "PUT", "reports/schedules/four", `{"every":"1h"}`)
	once := fmt.Sprintf(`{"at":%q}`, time.Now().Add(6*time.Second).UTC().Format("2006-01-02T15:04:05.999Z"))
	p.expect(200, `"replaced"`, "PUT", "reports/schedules/two", once)
	eventually(t, "one date fires once", func() bool { return p.schedule("two").State == "ended" })
	if s := p.schedule("two"); s.Ticks["fired"] != 1 || s.Ticks["total"] != 1 {
		t.Errorf("got %+v", s)
	}
	p.expect(409, "schedule_ended", "POST", "reports/schedules/two/pause", "")
	p.expect(200, "deleted", "DELETE", "reports/schedules/two", "")
	p.expect(404, "no_such_schedule", "DELETE", "reports/schedules/two", "")
	for _, act := range []string{"pause", "resume", "trigger", "backfill?from=2026-10-01T00:00:00Z&to=2026-10-02T00:00:00Z"} {
		p.expect(404, "no_such_schedule", "POST", "reports/schedules/two/"+act, "")
	}
	p.expect(404, "no_such_schedule", "GET", "reports/schedules/two", "")
}

func TestASpecificationThatIsWrongSaysWhichField(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	deep := `{"every":"1h","data":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`
	for body, field := range map[string]string{
		`{"cron":"* * * *"}`: "cron", `{"cron":"0 0 0 * * *"}`: "cron", `{"cron":"60 * * * *"}`: "cron", `{"cron":"0 0 30 2 *"}`: "cron", `{"cron":"*/0 * * * *"}`: "cron",
		`{"cron":"1,,2 * * * *"}`: "cron", `{"cron":"TZ=UTC * * * * *"}`: "cron", `{"cron":"@every 1s"}`: "cron", `{"cron":"@reboot"}`: "cron", `{"cron":"` + strings.Repeat("1,", 5000) + `1 * * * *"}`: "cron",
		`{"cron":"\u0000 * * * *"}`: "cron", `{"cron":"１ * * * *"}`: "cron", `{"cron":"0 0 * * *","tz":"Local"}`: "tz", `{"cron":"0 0 * * *","tz":"../../etc/passwd"}`: "tz",
		`{"cron":"0 0 * * *","tz":"Mars/Olympus"}`: "tz", `{"every":"1h","tz":"UTC"}`: "tz", `{"every":"0s"}`: "cron", `{"every":"-1s"}`: "every", `{"every":"1ns"}`: "every", `{"every":"8760000000h"}`: "",
		`{"at":"0000-01-01T00:00:00Z"}`: "at", `{"at":"9999-01-01T00:00:00Z"}`: "at",
		`{"every":"1h","cron":"0 0 * * *"}`: "cron", `{}`: "cron", `{"every":"1h","evry":"1h"}`: "evry", `{"every":"1h","every":"2h"}`: "every", `{"every":"1h","attributes":{"a":"1","a":"2"}}`: "a",
		`{"every":"1h","shards":4294967296}`: "shards", `{"every":"1h","shards":-1}`: "shards", `{"every":"1h","jitter":"-1s"}`: "jitter", `{"every":"1h","jitter":"25h"}`: "jitter",
		`{"every":"1h","attributes":{"tick":"1"}}`: "attributes", `{"every":"1h","attributes":{"schedule":"1"}}`: "attributes", `{"every":"1h","attributes":{"a b":"1"}}`: "attributes",
		`{"every":"1h","tries":65536}`: "tries", `{"every":"1h","tries":-1}`: "tries", `{"every":"1h","overlap":"replace"}`: "overlap", `{"every":"1h","missed":"two"}`: "missed", `{"every":"1h","grace":"-1s"}`: "grace",
		`{"every":"1h","data":1,"data_base64":"eA=="}`: "data_base64", `{"every":"1h","data_base64":"%"}`: "data_base64", `{"every":"1h","max_runs":-1}`: "max_runs", `{"every":1}`: "every",
		`[]`: "", `"x"`: "", `{"every":"1h"}{}`: "", `{"every":"1h"`: "", deep: "", `{"every":"1h","data":"` + strings.Repeat("x", 65<<10) + `"}`: "",
	} {
		for _, route := range []string{"PUT /v1/mail/q/schedules/s", "POST /v1/mail/_times"} {
			method, path, _ := strings.Cut(route, " ")
			r := p.do(method, path, body)
			var got struct{ Field string }
			_ = json.Unmarshal([]byte(r.raw), &got)
			if r.status != 400 && r.status != 413 || r.Error != "bad_schedule" && r.Error != "body_too_large" || got.Field != field || len(r.Message) > 300 {
				t.Errorf("%s %.60s: got %d %.300s, want the field %q", route, body, r.status, r.raw, field)
			}
		}
	}
	for path, code := range map[string]string{
		"q/schedules/.x": "bad_name", "q/schedules/_x": "bad_name", "q/schedules/" + strings.Repeat("x", 129): "bad_name", "_q/schedules/x": "bad_queue", "q/schedules/x?a=1": "bad_parameter",
	} {
		if r := p.do("PUT", "/v1/mail/"+path, `{"every":"1h"}`); r.Error != code {
			t.Errorf("%s: got %d %s, want %s", path, r.status, r.raw, code)
		}
	}
	for path, code := range map[string]string{
		"q/schedules/x/trigger?force=yes": "bad_force", "q/schedules/x/backfill": "bad_from", "q/schedules/x/backfill?from=2026-01-01T00:00:00Z": "bad_to", "q/schedules/x/backfill?from=x": "bad_from",
		"q/schedules/x/backfill?to=2025-01-01T00:00:00Z&from=2026-01-01T00:00:00Z": "bad_to", "q/schedules/x/backfill?to=2026-01-01T00:00:00Z&from=2026-01-01T00:00:00Z": "bad_to", "_times?count=1001": "bad_count", "_times?from=" + url.QueryEscape("0001-01-01T00:00:00Z"): "bad_from",
	} {
		if r := p.do("POST", "/v1/mail/"+path, `{"every":"1h"}`); r.Error != code {
			t.Errorf("%s: got %d %s, want %s", path, r.status, r.raw, code)
		}
	}
	if r := p.do("POST", "/v1/mail/_times?count=2&from=2026-10-24T12:00:00Z", `{"cron":"30 2 * * *","tz":"Europe/Berlin"}`); r.raw != `{"next":["2026-10-25T02:30:00+02:00","2026-10-26T02:30:00+01:00"]}`+"\n" {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}

// A schedule that moved with the spread would be put, and fire, a second time.
func TestASchedulesPlaceStaysWhenTheSpreadRises(t *testing.T) {
	t.Parallel()
	p := startFiring(t, "embedded:", func(p *job.Policy) { p.Shards, p.Spread = 8, map[string]int{"reports": 2} })
	const n = 20
	for i := range n {
		p.expect(201, "created", "PUT", fmt.Sprint("reports/schedules/s", i), `{"every":"1h"}`)
	}
	for _, spread := range []map[string]int{{"reports": 3}, {"reports": 8}, nil} {
		policy := job.DefaultPolicy()
		policy.Shards, policy.Spread = 8, spread
		if err := p.store.SetNamespaces(t.Context(), map[string]job.Policy{"mail": policy}); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			p.expect(200, "unchanged", "PUT", fmt.Sprint("reports/schedules/s", i), `{"every":"1h"}`)
		}
		all, err := p.store.CountSchedules(t.Context(), p.store.Namespace("mail"))
		if list, _, listed := p.store.Schedules(t.Context(), p.store.Namespace("mail"), "", "", 100); all != n || len(list) != n || err != nil || listed != nil {
			t.Errorf("spread %v: %d schedules, %d listed: %v %v", spread, all, len(list), err, listed)
		}
	}
}

func TestAPublishWithAtIsReadyThen(t *testing.T) {
	t.Parallel()
	p := startFiring(t, "embedded:", nil)
	at := time.Now().Add(5 * time.Second).UTC()
	p.expect(200, `"accepted":1`, "POST", "once?at="+at.Format("2006-01-02T15:04:05.999Z"), "x")
	// The clock of the store is known to half of the time that an answer took, which a busy machine makes long.
	if r := p.do("POST", "/v1/mail/once/claim?wait=20s", ""); r.data() != "x" || time.Now().Before(at.Add(-2*time.Second)) {
		t.Errorf("got %s before %s", r.raw, at)
	}
	for _, wrong := range []string{"2001-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "9999-01-01T00:00:00Z", "tomorrow", "", at.Add(time.Hour).Format(time.RFC3339) + "&delay=5s"} {
		p.expect(400, "bad_at", "POST", "once?at="+wrong, "x")
	}
}

func TestAForecastTellsTicks(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "embedded:", "redis": redistest.Start(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startFiring(t, url, nil)
			p.expect(200, `"due":[],"scheduled":[],"scheduled_by":"ticks"`, "GET", "reports/forecast", "")
			p.expect(201, "", "PUT", "reports/schedules/hourly", `{"every":"1h"}`)
			p.expect(201, "", "PUT", "reports/schedules/twice", `{"every":"30m"}`)
			p.expect(201, "", "PUT", "reports/schedules/paused", `{"every":"1h"}`)
			p.expect(200, "", "POST", "reports/schedules/paused/pause", "")
			p.expect(201, "", "PUT", "other/schedules/hourly", `{"every":"1h"}`)
			p.expect(200, "", "POST", "reports?delay=90m", "x")
			p.expect(200, `"due":[0,1],"scheduled":[3,3,3],"scheduled_by":"ticks"`, "GET", "reports/forecast?step=1h&steps=3", "")
		})
	}
}

// What a schedule publishes counts against the token's rate where a caller asks for it, and a run is no larger than a publish.
func TestTriggersAndBackfillsAreBounded(t *testing.T) {
	t.Parallel()
	p := startFiring(t, "embedded:", nil)
	big := strings.Repeat("x", 33<<10)
	p.expect(413, "entry_too_large", "PUT", "reports/schedules/big", `{"every":"1h","data":"`+big+`"}`)
	p.expect(413, "entry_too_large", "PUT", "reports/schedules/big", `{"every":"1h","data":"`+big[:20<<10]+`","attributes":{"a":"`+big[:20<<10]+`"}}`)
	p.expect(400, "1 MiB together", "PUT", "reports/schedules/big", `{"every":"1h","shards":100,"data":"`+big[:20<<10]+`"}`)
	id := p.expect(200, "", "POST", "other", "x").IDs[0]
	p.expect(400, `"field":"queue"`, "PUT", id+"/schedules/s", `{"every":"1h"}`)
	p.expect(201, "", "PUT", "reports/schedules/big", `{"every":"1h","shards":30,"data":"`+big[:20<<10]+`"}`)
	// A call of the store has 1 MiB at most, so each tick is one.
	p.expect(200, `"ticks":3,"accepted":90`, "POST", "reports/schedules/big/backfill?from=2026-10-01T01:00:00Z&to=2026-10-01T04:00:00Z", "")
}

func TestADelayedJobIsGivenAnotherTimeOrPayload(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "embedded:", "redis": redistest.Start(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startFiring(t, url, nil)
			publish := func(query string) string {
				return "once/jobs/" + p.expect(200, `"accepted":1`, "POST", "once?"+query, "before").IDs[0]
			}
			job := publish("delay=1h&tries=7&id=mine&ttl=3h")
			at := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Millisecond)
			p.expect(200, `"state":"delayed","due_ms":`, "PATCH", job, `{"at":"`+at.Format(time.RFC3339Nano)+`"}`)
			p.expect(400, "bad_ttl", "PATCH", job, `{"delay_ms":10860000}`)
			p.expect(200, `"due_ms":`, "PATCH", job, ` { "data" : {"a": [1, 2]} } `)
			shown := p.expect(200, `"state":"delayed"`, "GET", job, "")
			if data := base64.StdEncoding.EncodeToString([]byte(`{"a": [1, 2]}`)); !strings.Contains(shown.raw, data) ||
				!strings.Contains(shown.raw, `"tries":7`) || !strings.Contains(shown.raw, `"expires_ms":`) {
				t.Errorf("got %s", shown.raw)
			}
			p.expect(409, "not_delayed", "PATCH", publish(""), `{"delay_ms":0}`)
			p.do("DELETE", "/v1/mail/once?state=ready", "")
			p.expect(200, "", "PATCH", job, `{"delay_ms":1,"data_base64":"AP8="}`)
			got := p.do("POST", "/v1/mail/once/claim?wait=20s", "")
			if got.data() != "\x00\xff" || got.Jobs[0].ID != strings.TrimPrefix(job, "once/jobs/") {
				t.Errorf("got %s", got.raw)
			}
			p.expect(409, "not_delayed", "PATCH", job, `{"data":1}`)
			p.do("POST", "/v1/mail/once/settle", `{"id":"`+got.Jobs[0].ID+`","do":"nack","ms":60000}`)
			p.expect(409, "not_delayed", "PATCH", job, `{"data":1}`)
			p.expect(200, "", "DELETE", job, "")
			p.expect(404, "no_such_job", "PATCH", job, `{"delay_ms":1}`)
			p.expect(404, "no_such_job", "PATCH", strings.Replace(job, "once", "other", 1), `{"delay_ms":1}`)
			residual, err := p.store.Audit(t.Context(), p.store.Namespace("mail"))
			if err != nil || residual != 0 {
				t.Errorf("residual %d, %v", residual, err)
			}
		})
	}
}

func TestAPreparedJobIsCommittedOrRolledBack(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "embedded:", "redis": redistest.Start(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startFiring(t, url, nil)
			prepare := func(query string) string {
				return "once/jobs/" + p.expect(200, `"accepted":1`, "POST", "once?prepare=1"+query, "x", "Idempotency-Key: "+query).IDs[0]
			}
			kept, dropped, later := prepare("&on_end=done"), prepare("&id=mine&check=asked"), prepare("&delay=1h")
			p.expect(200, `"state":"prepared"`, "GET", kept, "")
			p.expect(200, "", "POST", "once/claim", "")
			p.expect(409, `"prepared"`, "DELETE", kept, "")
			p.expect(409, `"prepared"`, "POST", "once/settle", `{"id":"`+strings.TrimPrefix(kept, "once/jobs/")+`","do":"ack"}`)
			p.expect(409, "not_delayed", "PATCH", kept, `{"delay_ms":1}`)
			for range 2 {
				p.expect(200, `{"result":"committed"}`, "POST", kept+"/commit", "")
				p.expect(200, `{"result":"rolled_back"}`, "POST", dropped+"/rollback", "")
			}
			p.expect(409, "already_decided", "POST", kept+"/rollback", "")
			p.expect(409, "already_decided", "POST", dropped+"/commit", "")
			p.expect(200, `"due_ms":`, "POST", later+"/commit", "")
			p.expect(200, `"state":"delayed"`, "GET", later, "")
			p.expect(404, "no_such_job", "POST", strings.Replace(kept, "once", "other", 1)+"/commit", "")
			p.expect(404, "no_such_job", "POST", "once/jobs/none/commit", "")
			p.expect(404, "no_such_route", "POST", kept+"/cancel", "")
			p.expect(405, "", "GET", kept+"/commit", "")
			plain := "once/jobs/" + p.expect(200, "", "POST", "once", "x").IDs[0]
			p.expect(409, "not_prepared", "POST", plain+"/commit", "")
			for query, code := range map[string]string{
				"prepare=yes": "bad_prepare", "check=a": "bad_check", "prepare=1&check=_out": "bad_check", "prepare=1&checks=3": "bad_checks",
				"prepare=1&check=a&checks=0": "bad_checks", "prepare=1&check=a&checks=101": "bad_checks",
				"prepare=1&check_after=1ms": "bad_check_after", "prepare=1&check_after=25h": "bad_check_after", "check_after=1m": "bad_check_after",
			} {
				p.expect(400, code, "POST", "once?"+query, "x")
			}
			undecided := prepare("&check_after=1s")
			redistest.Until(t, 20*time.Second, "nobody decided", func() bool {
				return strings.Contains(p.do("GET", "/v1/mail/"+undecided, "").raw, `"reason":"undecided"`)
			})
			residual, err := p.store.Audit(t.Context(), p.store.Namespace("mail"))
			if err != nil || residual != 0 {
				t.Errorf("residual %d, %v", residual, err)
			}
		})
	}
}

func TestSchedulesOfAServiceFireWhileItLives(t *testing.T) {
	t.Parallel()
	for name, url := range storesOf(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startFiring(t, url, func(p *job.Policy) { p.Shards = 3 })
			p.expect(200, `"created":2,"deleted":0`, "PUT", "_owners/billing?version=1&ttl=1h",
				`{"schedules":[{"queue":"reports","name":"a","every":"1s"},{"queue":"invoices","name":"b","every":"1s"}]}`)
			eventually(t, "it fires", func() bool { return p.schedule("a").Ticks["fired"] > 0 })
			p.expect(200, `"state":"ended"`, "DELETE", "_owners/billing", "")
			fired := p.schedule("a").Ticks["fired"]
			eventually(t, "its ticks are unregistered", func() bool { return p.schedule("a").Ticks["unregistered"] > 1 })
			if s := p.schedule("a"); s.Ticks["fired"] != fired {
				t.Errorf("it fired without its service: %v, before %d", s.Ticks, fired)
			}
			p.expect(200, `"accepted":1`, "POST", "reports/schedules/a/trigger", "")
			p.expect(404, "no_such_owner", "POST", "_owners/billing/heartbeat", "")
			p.expect(200, `"unchanged":2,"until_ms":`, "PUT", "_owners/billing?version=1&ttl=1h",
				`{"schedules":[{"queue":"reports","name":"a","every":"1s"},{"queue":"invoices","name":"b","every":"1s"}]}`)
			eventually(t, "it fires again", func() bool { return p.schedule("a").Ticks["fired"] > fired })
			p.expect(200, `"until_ms":`, "POST", "_owners/billing/heartbeat?ttl=1s", "")
		})
	}
}

func TestARollingDeployCannotBringOldSchedulesBack(t *testing.T) {
	t.Parallel()
	p := startFiring(t, redistest.Start(t).URL(), func(p *job.Policy) { p.Shards = 2 })
	const one, two = `{"schedules":[{"queue":"reports","name":"a","every":"1h"},{"queue":"mails","name":"b","every":"1h"}]}`,
		`{"schedules":[{"queue":"reports","name":"a","every":"2h"},{"queue":"reports","name":"c","every":"1h"}]}`
	p.expect(200, `"created":2`, "PUT", "_owners/billing?version=7", one)
	p.expect(200, `"created":1,"deleted":1,"owner":"billing","replaced":1`, "PUT", "_owners/billing?version=8", two)
	p.expect(409, "old_version", "PUT", "_owners/billing?version=7", one)
	p.expect(200, `"created":0,"deleted":0,"owner":"billing","replaced":0,"state":"registered","unchanged":2`, "PUT", "_owners/billing?version=8", two)
	p.expect(404, "no_such_schedule", "GET", "mails/schedules/b", "")
	p.expect(200, `"schedules":[{"queue":"reports","name":"a","version":8},{"queue":"reports","name":"c","version":8}]`, "GET", "_owners/billing", "")
	p.expect(200, `{"owners":[{"owner":"billing","version":8,"state":"registered","until_ms":`, "GET", "_owners", "")
	p.expect(200, `,"owns":2}]}`, "GET", "_owners", "")

	// Others may pause and delete what belongs to it, and not put it.
	p.expect(409, "other_owner", "PUT", "reports/schedules/a", `{"every":"1s"}`)
	p.expect(409, "other_owner", "PUT", "_owners/mailer?version=1", `{"schedules":[{"queue":"reports","name":"a","every":"1s"}]}`)
	p.expect(200, `"owner":"billing"`, "GET", "reports/schedules/a", "")
	p.expect(200, `"paused"`, "POST", "reports/schedules/a/pause", "")
	p.expect(200, `"deleted"`, "DELETE", "reports/schedules/c", "")
	p.expect(200, `"schedules":[{"queue":"reports","name":"a","version":8}]`, "GET", "_owners/billing", "")

	// It stays registered with its version, until it is deleted with all it has.
	p.expect(200, `"deleted":0`, "DELETE", "_owners/billing", "")
	p.expect(409, "old_version", "PUT", "_owners/billing?version=7", one)
	p.expect(200, `"deleted":1`, "DELETE", "_owners/billing?schedules=delete", "")
	p.expect(404, "no_such_owner", "GET", "_owners/billing", "")
	p.expect(404, "no_such_owner", "DELETE", "_owners/billing", "")
	p.expect(200, `"created":2`, "PUT", "_owners/billing?version=1", one)
}

func TestARegistrationSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := startFiring(t, "embedded:", func(p *job.Policy) { p.MaxSchedules = 2 })
	many := `{"schedules":[` + strings.Repeat(`{"queue":"q","name":"a","every":"1h"},`, 500) + `{"queue":"q","name":"a","every":"1h"}]}`
	for body, field := range map[string]string{
		`{}`: "schedules", `{"schedules":null}`: "schedules", `[]`: "", `{"schedules":[{"every":"1h","name":"a"}]}`: "queue", many: "schedules",
		`{"schedules":[{"every":"1h","queue":"q"}]}`: "name", `{"schedules":[{"every":"1h","queue":"q","name":"_a"}]}`: "name",
		`{"schedules":[{"every":"1h","queue":"_out","name":"a"}]}`: "queue", `{"schedules":[{"cron":"60 * * * *","queue":"q","name":"a"}]}`: "cron",
		`{"schedules":[{"every":"1h","queue":"q","name":"a"},{"every":"2h","queue":"q","name":"a"}]}`: "name",
		`{"schedules":[{"every":"1h","queue":"q","name":"a","owner":"x"}]}`:                           "owner",
		`{"schedules":[{"every":"1h","queue":"q","name":"a","evry":1}]}`:                              "evry", `{"schedules":[],"schedules":[]}`: "schedules", `{"schedules":[]}x`: "",
	} {
		r := p.do("PUT", "/v1/mail/_owners/billing?version=1", body)
		var got struct{ Field string }
		_ = json.Unmarshal([]byte(r.raw), &got)
		if r.status != 400 || r.Error != "bad_schedule" || got.Field != field {
			t.Errorf("%.90s: got %d %s, want the field %q", body, r.status, r.raw, field)
		}
	}
	for path, code := range map[string]string{
		"_owners/a": "bad_version", "_owners/a?version=0": "bad_version", "_owners/a?version=-1": "bad_version", "_owners/a?version=9007199254740992": "bad_version",
		"_owners/a?version=1&ttl=10ms": "bad_ttl", "_owners/a?version=1&ttl=25h": "bad_ttl", "_owners/.a?version=1": "bad_name", "_owners/_a?version=1": "bad_name",
		"_owners/" + strings.Repeat("x", 129) + "?version=1": "bad_name", "_owners/?version=1": "no_such_route", "_owners/a/b?version=1": "no_such_route", "_owners?version=1": "method_not_allowed",
		"q/schedules/a": "bad_schedule",
	} {
		if r := p.do("PUT", "/v1/mail/"+path, `{"owner":"a","every":"1h"}`); r.Error != code {
			t.Errorf("%s: got %d %s, want %s", path, r.status, r.raw, code)
		}
	}
	p.expect(400, "bad_schedules", "DELETE", "_owners/a?schedules=all", "")
	p.expect(429, "too_many_schedules", "PUT", "_owners/billing?version=1",
		`{"schedules":[{"queue":"q","name":"a","every":"1h"},{"queue":"q","name":"b","every":"1h"},{"queue":"q","name":"c","every":"1h"}]}`)
	if r := p.do("PUT", "/v1/mail/_owners/billing?version=1", `{"schedules":[{"queue":"q","name":"c","every":"1h"}]}`); !strings.Contains(r.Message, "schedule c of queue q") {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}
