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
	expect(403, "role", "PUT", one, "viewer", daily)
	expect(201, `"result":"created","rev":1`, "PUT", one, "operator", daily)
	expect(200, `"result":"unchanged"`, "PUT", one, "operator", daily)
	for rev, status := range map[string]int{`"2"`: 412, "1": 200, "x": 400} {
		if w := send(q.Server, "PUT", one, "operator", daily, "If-Match", rev); w.Code != status {
			t.Errorf("If-Match %s: got %d %s", rev, w.Code, w.Body)
		}
	}
	if w := send(q.Server, "PUT", one, "operator", daily, "Content-Type", "text/plain"); w.Code != 415 {
		t.Errorf("a form could put: %d %s", w.Code, w.Body)
	}
	expect(400, `"bad_schedule","message":"cron: `, "PUT", of+"bad", "operator", `{"cron":"60 * * * *"}`)
	big := strings.Repeat("x", 20<<10)
	expect(413, "entry_too_large", "PUT", of+"big", "operator", `{"every":"1h","data":"`+big+big+`"}`)
	expect(413, "entry_too_large", "PUT", of+"big", "operator", `{"every":"1h","data":"`+big+`","attributes":{"a":"`+big+`"}}`)
	expect(400, `"bad_schedule","message":"shards: `, "PUT", of+"big", "operator", `{"every":"1h","shards":1000,"data":"`+strings.Repeat("x", 950)+`"}`)
	expect(400, "bad_name", "PUT", of+"_bad", "operator", daily)
	for i := range 3 {
		expect(201, "created", "PUT", fmt.Sprint("/api/v1/namespaces/mail/queues/q", i, "/schedules/x"), "operator", `{"every":"1h"}`)
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
	expect(200, `"state":"paused","changed":true,"rev":2`, "POST", one+"/pause", "operator", "{}")
	expect(200, `"accepted":1,"ids":["`, "POST", one+"/trigger", "operator", "{}")
	expect(200, `{"next":["2026-10-25T02:30:00+02:00","2026-10-26T02:30:00+01:00"]}`, "GET", one+"/times?count=2&from=2026-10-24T12:00:00Z", "viewer", "")
	for _, query := range []string{"count=0", "count=1001", "from=tomorrow", "from=0001-01-01T00:00:00Z"} {
		expect(400, "bad_"+query[:strings.Index(query, "=")], "GET", one+"/times?"+query, "viewer", "")
	}
	expect(400, "bad_parameter", "GET", one+"/times?cuont=2", "viewer", "")
	expect(400, "given twice", "GET", one+"/times?count=2&count=3", "viewer", "")
	const october = one + "/backfill?from=2026-10-01T00:00:00Z&to=2026-10-31T23:00:00Z"
	expect(403, "role", "POST", october+"&dry_run=1", "viewer", "")
	expect(400, "dry_run", "POST", october, "operator", "")
	expect(400, "bad_parameter", "POST", october+"&confirm=0", "operator", "")
	expect(200, `{"dry_run":true,"ticks":31,"accepted":0,"jobs":31}`, "POST", october+"&dry_run=1", "operator", "")
	expect(409, "confirmed", "POST", october+"&confirm=30", "operator", "")
	expect(200, `{"ticks":31,"accepted":31}`, "POST", october+"&confirm=31", "operator", "{}")
	expect(200, `{"ticks":31,"accepted":0}`, "POST", october+"&confirm=31", "operator", "{}")
	for query, code := range map[string]string{"": "bad_from", "from=2026-10-01T00:00:00Z": "bad_to", "from=x&to=y": "bad_from",
		"from=2026-10-02T00:00:00Z&to=2026-10-01T00:00:00Z": "bad_to", "from=2026-10-01T00:00:00Z&to=2250-10-01T00:00:00Z": "bad_to"} {
		expect(400, code, "POST", one+"/backfill?dry_run=1&"+query, "operator", "")
	}
	expect(400, "more than 1000 ticks", "POST", one+"/backfill?from=2016-10-01T00:00:00Z&to=2026-10-01T00:00:00Z&dry_run=1", "operator", "")
	expect(200, `"state":"active","changed":true,"rev":3`, "POST", one+"/resume", "operator", "{}")
	expect(200, "deleted", "DELETE", one, "operator", "")
	expect(404, "no_such_schedule", "DELETE", one, "operator", "")
	for _, act := range []string{"pause", "resume", "trigger"} {
		expect(404, "no_such_schedule", "POST", one+"/"+act, "operator", "{}")
	}
	if trail := send(q.Server, "GET", "/api/v1/audit", "viewer", "").Body.String(); strings.Count(trail, "the queue has no such schedule") != 4 {
		t.Errorf("what the store rejected is an act: %s", trail)
	}
	expect(404, "no_such_schedule", "POST", october+"&dry_run=1", "operator", "")
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
		path := fmt.Sprint("/api/v1/namespaces/mail/queues/q", i%2, "/schedules/s", i)
		if w := send(q.Server, "PUT", path, "operator", `{"every":"1h"}`); w.Code != 201 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	}
	q.register("billing", "a", "b", "c")
	q.register("mailer", "d")
	q.miss("reports", "b")
	for query, want := range map[string]string{
		"":                                 "q0/s0 q0/s2 q0/s4 q1/s1 q1/s3 reports/a reports/b reports/c reports/d",
		"queue=q1":                         "q1/s1 q1/s3",
		"queue=q0&limit=2":                 "q0/s0 q0/s2 → s2",
		"queue=q0&limit=2&after=s2":        "q0/s4",
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
		var list struct {
			Schedules []schedule.Shown
			Next      string
		}
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
