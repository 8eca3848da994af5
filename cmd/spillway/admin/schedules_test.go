package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

func TestOperatorsActOnSchedulesAndViewersSeeThem(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	const of, one = "/api/v1/namespaces/mail/queues/reports/schedules/", "/api/v1/namespaces/mail/queues/reports/schedules/daily"
	expect := func(status int, part, method, path, who, body string) string {
		t.Helper()
		w := send(q.Server, method, path, who, body)
		if w.Code != status || !strings.Contains(w.Body.String(), part) {
			t.Errorf("%s %s by %s: got %d %s, want %d with %s", method, path, who, w.Code, w.Body, status, part)
		}
		return w.Body.String()
	}
	daily := `{"cron":"30 2 * * *","tz":"Europe/Berlin","data":{"password":"canary"}}`
	expect(403, "role", "POST", one+"/put", "viewer", daily)
	expect(200, `"result":"created","rev":1`, "POST", one+"/put", "operator", daily)
	expect(200, `"result":"unchanged"`, "POST", one+"/put", "operator", daily)
	expect(400, `"bad_schedule","message":"cron: `, "POST", of+"bad/put", "operator", `{"cron":"60 * * * *"}`)
	big := strings.Repeat("x", 20<<10)
	expect(413, "entry_too_large", "POST", of+"big/put", "operator", `{"every":"1h","data":"`+big+big+`"}`)
	expect(413, "entry_too_large", "POST", of+"big/put", "operator", `{"every":"1h","data":"`+big+`","attributes":{"a":"`+big+`"}}`)
	expect(400, `"bad_schedule","message":"shards: `, "POST", of+"big/put", "operator", `{"every":"1h","shards":1000,"data":"`+strings.Repeat("x", 950)+`"}`)
	expect(404, "no_such_schedule", "POST", of+"_bad/put", "operator", daily)
	for i := range 3 {
		expect(200, "created", "POST", fmt.Sprint("/api/v1/namespaces/mail/queues/q", i, "/schedules/x/put"), "operator", `{"every":"1h"}`)
	}
	if list := expect(200, `"next":"q0/x"`, "GET", "/api/v1/namespaces/mail/schedules?limit=1", "viewer", ""); strings.Contains(list, "spec") {
		t.Errorf("a viewer sees %s", list)
	}
	expect(200, `"queue":"q1"`, "GET", "/api/v1/namespaces/mail/schedules?limit=1&after=q0/x", "viewer", "")
	expect(200, `"name":"daily","queue":"reports"`, "GET", "/api/v1/namespaces/mail/schedules", "viewer", "")
	expect(403, "role", "GET", one, "viewer", "")
	if body := expect(200, `"password":"***"`, "GET", one, "operator", ""); strings.Contains(body, "canary") {
		t.Errorf("an operator sees %s", body)
	}
	expect(200, "canary", "GET", one+"?unmasked=1", "admin", "")
	expect(200, `"state":"paused","rev":2`, "POST", one+"/pause", "operator", "{}")
	expect(200, `"jobs":1`, "POST", one+"/trigger", "operator", "{}")
	expect(200, `{"next":["2026-10-25T02:30:00+02:00","2026-10-26T02:30:00+01:00"]}`, "GET", one+"/times?count=2&from=2026-10-24T12:00:00Z", "viewer", "")
	for _, query := range []string{"count=0", "count=1001", "from=tomorrow", "from=0001-01-01T00:00:00Z"} {
		expect(400, "bad_request", "GET", one+"/times?"+query, "viewer", "")
	}
	october := `{"from":"2026-10-01T00:00:00Z","to":"2026-10-31T23:00:00Z"`
	expect(403, "role", "POST", one+"/backfill", "viewer", october+`,"dry_run":true}`)
	expect(400, "dry_run", "POST", one+"/backfill", "operator", october+`}`)
	expect(200, `{"dry_run":true,"ticks":31,"jobs":31}`, "POST", one+"/backfill", "operator", october+`,"dry_run":true}`)
	expect(409, "confirmed", "POST", one+"/backfill", "operator", october+`,"confirm":30}`)
	expect(200, `{"dry_run":false,"ticks":31,"jobs":31}`, "POST", one+"/backfill", "operator", october+`,"confirm":31}`)
	expect(200, `{"dry_run":false,"ticks":31,"jobs":0}`, "POST", one+"/backfill", "operator", october+`,"confirm":31}`)
	for _, body := range []string{`{"dry_run":true}`, `{"from":"2026-10-01T00:00:00Z","dry_run":true}`, `{"from":"x","to":"y","dry_run":true}`,
		`{"from":"2026-10-02T00:00:00Z","to":"2026-10-01T00:00:00Z","dry_run":true}`, `{"from":"2026-10-01T00:00:00Z","to":"2250-10-01T00:00:00Z","dry_run":true}`} {
		expect(400, "bad_request", "POST", one+"/backfill", "operator", body)
	}
	expect(400, "more than 1000 ticks", "POST", one+"/backfill", "operator", `{"from":"2016-10-01T00:00:00Z","to":"2026-10-01T00:00:00Z","dry_run":true}`)
	expect(200, `"state":"active","rev":3`, "POST", one+"/resume", "operator", "{}")
	expect(200, "deleted", "POST", one+"/delete", "operator", "{}")
	for _, act := range []string{"delete", "pause", "resume", "trigger"} {
		expect(404, "no_such_schedule", "POST", one+"/"+act, "operator", "{}")
	}
	expect(404, "no_such_schedule", "POST", one+"/backfill", "operator", october+`,"dry_run":true}`)
	expect(404, "no_such_schedule", "GET", one+"/times", "viewer", "")
	expect(404, "no_such_schedule", "GET", one, "operator", "")
	expect(404, "kind buffer", "GET", "/api/v1/namespaces/default/schedules", "viewer", "")
	for _, act := range []string{"put_schedule", "pause_schedule", "trigger_schedule", "backfill_schedule", "resume_schedule", "delete_schedule"} {
		expect(200, `"action":"`+act+`"`, "GET", "/api/v1/audit", "viewer", "")
	}
}

// register registers a service with schedules of the queue reports that tick once an hour.
func (q *queued) register(owner string, names ...string) {
	q.t.Helper()
	r := &schedule.Registration{Namespace: q.ns, Owner: owner, Version: 7, TTL: time.Hour}
	for _, name := range names {
		spec, err := schedule.Parse([]byte(`{"every":"1h"}`))
		if err != nil {
			q.t.Fatal(err)
		}
		r.Schedules = append(r.Schedules, schedule.Registered{Queue: "reports", Name: name, Spec: spec})
	}
	if err := r.Register(q.t.Context(), q.store); err != nil {
		q.t.Fatal(err)
	}
}

// miss counts a tick of a schedule as missed.
func (q *queued) miss(queue, name string) {
	q.t.Helper()
	found, err := q.store.GetSchedule(q.t.Context(), q.ns, queue, name)
	if err != nil {
		q.t.Fatal(err)
	}
	state, _ := schedule.ReadState(found.State)
	now, err := q.store.Clock(q.t.Context(), q.ns, queue)
	if err != nil {
		q.t.Fatal(err)
	}
	f := &job.Firing{Queue: queue, Name: name, State: found.State, Left: -1, Next: state.Next, Look: state.Next, Missed: 1}
	if _, err := q.store.Fire(q.t.Context(), q.ns, q.ns.ScheduleShard(queue), now, []*job.Firing{f}); err != nil || f.Status != job.Fired {
		q.t.Fatal(err, f.Status)
	}
}

func TestSchedulesAreFoundByQueueOwnerAndFailure(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	for i := range 5 {
		path := fmt.Sprint("/api/v1/namespaces/mail/queues/q", i%2, "/schedules/s", i, "/put")
		if w := send(q.Server, "POST", path, "operator", `{"every":"1h"}`); w.Code != 200 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	}
	q.register("billing", "a", "b", "c")
	q.register("mailer", "d")
	q.miss("reports", "b")
	for query, want := range map[string]string{
		"":                                 "q0/s0 q0/s2 q0/s4 q1/s1 q1/s3 reports/a reports/b reports/c reports/d",
		"queue=q1":                         "q1/s1 q1/s3",
		"queue=q0&limit=2":                 "q0/s0 q0/s2 → q0/s2",
		"queue=q0&limit=2&after=q0/s2":     "q0/s4",
		"queue=none":                       "",
		"owner=billing":                    "reports/a reports/b reports/c",
		"owner=billing&limit=2":            "reports/a reports/b → reports/b",
		"owner=billing&after=reports/b":    "reports/c",
		"owner=mailer&queue=reports":       "reports/d",
		"owner=mailer&queue=q0":            "",
		"failing=1":                        "reports/b",
		"failing=1&owner=mailer":           "",
		"failing=0&after=reports/c":        "reports/d",
		"failing=1&limit=1&after=q1/s3":    "reports/b → reports/b",
		"failing=1&limit=1&after=reports/": "reports/b → reports/b",
	} {
		var list ScheduleList
		q.ask("GET", "/schedules?"+query, "", &list)
		var got []string
		for _, s := range list.Schedules {
			got = append(got, s.Queue+"/"+s.Name)
		}
		if list.Next != "" {
			got = append(got, "→", list.Next)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", query, got, want)
		}
	}
	for _, query := range []string{"queue=_out", "failing=perhaps", "limit=1001"} {
		if w := send(q.Server, "GET", "/api/v1/namespaces/mail/schedules?"+query, "viewer", ""); w.Code != 400 {
			t.Errorf("%s: got %d %s", query, w.Code, w.Body)
		}
	}
}

func TestAViewerSeesWhichServicesLive(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	q.register("billing", "a", "b")
	q.register("mailer", "c")
	if err := q.store.Deregister(t.Context(), q.ns, "mailer"); err != nil {
		t.Fatal(err)
	}
	var list schedule.OwnerList
	if q.ask("GET", "/owners", "", &list); len(list.Owners) != 2 {
		t.Fatalf("got %+v", list)
	}
	billing, mailer := list.Owners[0], list.Owners[1]
	if billing.UntilMS < time.Now().UnixMilli() {
		t.Errorf("its registration ended at %d", billing.UntilMS)
	}
	billing.UntilMS = 0
	if got, want := fmt.Sprint(billing, mailer), "{{billing 7 registered 0} 2} {{mailer 7 ended 0} 1}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if w := send(q.Server, "GET", "/api/v1/namespaces/default/owners", "viewer", ""); w.Code != 404 {
		t.Errorf("a namespace of partitions: got %d %s", w.Code, w.Body)
	}
}
