package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	zaplog "go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/mask"
	"github.com/spillway-io/spillway/partition/schedule"
)

// queued is a server on a store of queues, with a token of each role.
type queued struct {
	*Server
	t     *testing.T
	store *job.Store
	ns    *job.Namespace
	lane  *job.Lane
}

func newQueued(t *testing.T) *queued { return newQueuedAt(t, "embedded:", job.DefaultPolicy()) }

func newQueuedAt(t *testing.T, url string, policy job.Policy) *queued {
	t.Helper()
	b := backendtest.Open(t, backend.Config{URL: url})
	policy.Rules = []job.Rule{{Match: "kept", KeepAcked: job.Span(time.Hour)}, {Match: "seen", KeepTrace: job.Span(time.Hour)}}
	store, err := job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: map[string]job.Policy{"mail": policy}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := &queued{t: t, store: store, ns: store.Namespace("mail"), lane: store.NewLane()}
	q.Server = New(Config{Listen: "127.0.0.1:8081", Source: func() View {
		return View{
			Store: &fakeStore{}, Health: &fakeHealth{}, Metrics: prometheus.NewRegistry(), Tokens: tokensOfEachRole(), MaskFields: mask.DefaultFields(),
			Jobs: []JobStore{store}, Limits: schedule.Limits{Entry: 32 << 10, Entries: 1000, Body: 1 << 20},
		}
	}}, zap.NewNop())
	return q
}

// publish stores jobs and returns their ids.
func (q *queued) publish(queue string, delay time.Duration, payloads ...string) (ids []string) {
	q.t.Helper()
	p := &job.Publish{Namespace: q.ns, Queue: queue, Shard: q.ns.Shards(queue)[0], Delay: delay, TTL: time.Hour, Tries: 3}
	for _, text := range payloads {
		p.Messages = append(p.Messages, job.Message{Payload: []byte(text), Attributes: []byte(`{"a":"<b>","token":"canary"}`)})
	}
	q.store.Run(q.t.Context(), q.lane, &job.Batch{Publishes: []*job.Publish{p}})
	if p.Err != nil {
		q.t.Fatal(p.Err)
	}
	for i := range p.Messages {
		ids = append(ids, q.ns.ID(p.Shard, queue, p.First+int64(i), ""))
	}
	return ids
}

// bury makes the first jobs of a queue dead letters.
func (q *queued) bury(queue string, n int) { q.buryFor(queue, make([]string, n)...) }

// buryFor does so with what their workers said.
func (q *queued) buryFor(queue string, errors ...string) {
	q.t.Helper()
	n := len(errors)
	c := &job.Claim{Namespace: q.ns, Shard: q.ns.Shards(queue)[0], Queues: []string{queue}, TTR: time.Minute, Count: n}
	q.store.Run(q.t.Context(), q.lane, &job.Batch{Claims: []*job.Claim{c}})
	var b job.Batch
	for i, j := range c.Jobs {
		b.Settles = append(b.Settles, &job.Settle{Namespace: q.ns, Queue: queue, Ref: j.Ref, Attempt: j.Attempt, Verb: job.Bury, Error: errors[i]})
	}
	q.store.Run(q.t.Context(), q.lane, &b)
	if len(b.Settles) != n || b.Settles[0].State != job.Dead {
		q.t.Fatalf("buried %d", len(b.Settles))
	}
}

// actedJobs is the answer to an act on jobs.
type actedJobs struct {
	DryRun   bool `json:"dry_run"`
	Jobs     int64
	Complete bool
	State    string // of one job
	Result   string // of a decision
}

// ask sends a request as an operator and reads the answer into body.
func (q *queued) ask(method, path, text string, body any) {
	q.t.Helper()
	w := send(q.Server, method, "/api/v1/namespaces/mail"+path, "operator", text)
	if err := json.Unmarshal(w.Body.Bytes(), body); err != nil || w.Code != 200 {
		q.t.Fatalf("%s %s %s: %d %s", method, path, text, w.Code, w.Body)
	}
}

// rejected sends a request and checks that it is rejected.
func (q *queued) rejected(method, path, role, text string, status int, want string) {
	q.t.Helper()
	w := send(q.Server, method, "/api/v1/namespaces/mail"+path, role, text)
	if w.Code != status || !strings.Contains(w.Body.String(), want) {
		q.t.Errorf("%s %s %s as %s: got %d %s, want %d %s", method, path, text, role, w.Code, w.Body, status, want)
	}
}

func TestQueuesAreListedWithTheirJobsInAnyOrder(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	q.publish("b", 0, "1", "2", "3")
	q.publish("a", time.Hour, "4")
	q.publish("c.dead", 0, "5")
	q.bury("c.dead", 1)
	var list QueueList
	q.ask("GET", "/queues", "", &list)
	if list.Total != 3 || list.LeftOut != 0 || len(list.Queues) != 3 || list.Queues[0].Queue != "a" || list.Queues[1].Ready != 3 {
		t.Fatalf("got %+v", list)
	}
	if a := list.Queues[0]; *a.Delayed != 1 || *a.Leased != 0 || a.OldestReadyAgeMS != nil || a.Pending != 1 {
		t.Errorf("delayed: %+v", a)
	}
	if b := list.Queues[1]; b.OldestReadyAgeMS == nil || *b.OldestReadyAgeMS > 60_000 {
		t.Errorf("ready: %+v", b)
	}
	for query, want := range map[string]string{
		"sort=ready": "b a c.dead", "sort=dead": "c.dead a b", "sort=delayed": "a b c.dead", "order=desc": "c.dead b a",
		"sort=oldest_ready_age": "b a c.dead", "search=c.": "c.dead", "offset=1&limit=1": "b", "sort=leased&order=asc": "a b c.dead", "offset=1000": "",
	} {
		var list QueueList
		q.ask("GET", "/queues?"+query, "", &list)
		var names []string
		for _, row := range list.Queues {
			names = append(names, row.Queue)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	for query, want := range map[string]string{"": "3 [a b c.dead]", "&search=c.": "1 [c.dead]", "&offset=1&limit=1": "3 [b]", "&search=x": "0 []"} {
		var list QueueList
		q.ask("GET", "/queues?names=1"+query, "", &list)
		if got := fmt.Sprint(list.Total, " ", list.Names); got != want || len(list.Queues) > 0 {
			t.Errorf("names %s: got %s, want %s", query, got, want)
		}
	}
	var row QueueRow
	if q.ask("GET", "/queues/c.dead", "", &row); row.Dead != 1 || row.Ready != 0 || row.Paused != nil {
		t.Errorf("one queue: %+v", row)
	}
	var paused PauseState
	if q.ask("POST", "/pause", `{"part":"c.dead","reason":"no mail"}`, &paused); paused.Paused == nil {
		t.Errorf("pause: %+v", paused)
	}
	if q.ask("GET", "/queues/c.dead", "", &row); row.Paused == nil || row.Paused.Reason != "no mail" {
		t.Errorf("a paused queue: %+v", row)
	}
	q.rejected("POST", "/resume", "operator", `{"part":"c.dead"}`, 200, `{"paused":null,"was_paused":true}`)
	q.rejected("POST", "/resume", "operator", `{"part":"c.dead"}`, 200, `{"paused":null}`)
	if got := send(q.Server, "GET", "/api/v1/audit", "viewer", "").Body.String(); strings.Count(got, "it was not paused") != 1 {
		t.Errorf("the trail: %s", got)
	}
	var due verb.Forecast
	if q.ask("GET", "/queues/a/forecast?step=1h&steps=2", "", &due); due.Due[len(due.Due)-1] != 1 {
		t.Errorf("forecast: %+v", due)
	}
	if q.ask("GET", "/forecast?step=1h&steps=2", "", &due); due.Due[len(due.Due)-1] != 1 {
		t.Errorf("forecast of the namespace: %+v", due)
	}
	for path, want := range map[string]string{
		"/queues?sort=x": "sort is queue or", "/queues?order=up": "order is", "/queues?limit=0": "limit is a number", "/queues?limit=1025": "limit", "/queues?offset=-1": "offset",
		"/queues?search=" + strings.Repeat("x", 256): "search: want", "/forecast?steps=1001": "bad_steps", "/forecast?step=1ms": "bad_step",
	} {
		q.rejected("GET", path, "viewer", "", 400, want)
	}
	q.rejected("GET", "/queues/a%2Fb", "viewer", "", 400, "bad_queue")
	q.rejected("GET", "/partitions", "viewer", "", 404, `is of kind queue: its routes are below /queues`)
	for _, path := range []string{"drops", "deliveries"} {
		if w := send(q.Server, "GET", "/api/v1/"+path+"?namespace=mail", "viewer", ""); w.Code != 404 || !strings.Contains(w.Body.String(), "is of kind queue: its routes") {
			t.Errorf("%s of a queue: %d %.200s", path, w.Code, w.Body)
		}
	}
	q.rejected("POST", "/pause", "operator", "{}", 404, `"no_such_route","message":"the namespace \"mail\" is of kind queue: pause one of its queues`)
	if w := send(q.Server, "GET", "/api/v1/namespaces/default/queues", "viewer", ""); w.Code != 404 || !strings.Contains(w.Body.String(), "of kind buffer") {
		t.Errorf("queues of a buffer: %d %s", w.Code, w.Body)
	}
}

func TestJobsAreShownMaskedAndDeletedOneByOne(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	ids := q.publish("q", 0, `{"n":1,"password":"canary"}`, "two")
	var j Job
	q.ask("GET", "/queues/q/peek", "", &j)
	if j.ID != ids[0] || j.State != "ready" || j.Tries != 3 || j.Attempt == nil || *j.Attempt != 0 || j.Reason != "" || j.AtMS != 0 || j.ExpiresMS-j.PublishedMS < 3590_000 {
		t.Errorf("peek: %+v", j)
	}
	if text := string(j.Data) + string(j.Attributes); strings.Contains(text, "canary") || !strings.Contains(text, `"n":1`) || !strings.Contains(text, `"a":`) {
		t.Errorf("masks: %s", text)
	}
	q.rejected("GET", "/queues/q/peek?unmasked=1", "operator", "", 403, "unmasked needs the role admin")
	q.rejected("GET", "/queues/none/peek", "operator", "", 404, "no_such_job")
	q.ask("GET", "/queues/q/jobs/"+ids[1], "", &j)
	if j.Text != "two" {
		t.Errorf("get: %+v", j)
	}
	q.rejected("GET", "/queues/other/jobs/"+ids[1], "operator", "", 404, "no_such_job")
	q.rejected("POST", "/queues/q/jobs/"+ids[1]+"/delete", "viewer", "{}", 403, "needs the role operator")
	q.rejected("POST", "/queues/q/jobs/"+ids[1]+"/delete", "operator", `{"force":true}`, 400, "bad_parameter")
	var done actedJobs
	if q.ask("POST", "/queues/q/jobs/"+ids[1]+"/delete", "{}", &done); done.State != "deleted" {
		t.Errorf("delete: %+v", done)
	}
	q.rejected("POST", "/queues/q/jobs/"+ids[1]+"/delete", "operator", "{}", 404, "no_such_job")
	q.trail(`"action":"delete_job","namespace":"mail","queue":"q","detail":"` + ids[1] + `","result":"ok","entries":1`)
	var account QueueAccount
	if q.ask("GET", "?audit=1", "", &account); account.Kind != "queue" || account.Ledger.Deleted != 1 || account.Ledger.Ready != 1 || account.Residual == nil || *account.Residual != 0 {
		t.Errorf("account: %+v", account)
	}
}

func TestErrorsInATraceAreMaskedAndHiddenOnceTheJobIsGone(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	tracer := job.NewTracer(q.store)
	if err := tracer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := q.publish("seen", 0, `{"token":"canary"}`)[0]
	ref, _ := q.ns.ParseID("seen", id)
	c := &job.Claim{Namespace: q.ns, Shard: ref.Shard, Queues: []string{"seen"}, TTR: time.Minute, Count: 1}
	q.store.Run(t.Context(), q.lane, &job.Batch{Claims: []*job.Claim{c}})
	x := &job.Settle{Namespace: q.ns, Queue: "seen", Ref: ref, Attempt: 1, Verb: job.Bury, Error: "canary is rejected"}
	q.store.Run(t.Context(), q.lane, &job.Batch{Settles: []*job.Settle{x}})
	trace := "/queues/seen/jobs/" + id + "/trace"
	for written := time.NewTicker(10 * time.Millisecond); !strings.Contains(send(q.Server, "GET", "/api/v1/namespaces/mail"+trace, "viewer", "").Body.String(), `"dead"`); {
		<-written.C
	}
	if err := tracer.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	q.rejected("GET", trace, "viewer", "", 200, `"event":"buried","attempt":1,"error":"*** is rejected"}`)
	q.rejected("GET", trace+"?unmasked=1", "admin", "", 200, `"error":"canary is rejected"`)
	q.rejected("GET", trace+"?unmasked=1", "operator", "", 403, "admin")
	q.ask("POST", "/queues/seen/purge", `{"all":true,"confirm":1}`, &actedJobs{})
	q.rejected("GET", trace, "viewer", "", 200, `"event":"buried","attempt":1,"error":"***"}`)
	q.rejected("GET", "/queues/out/jobs/"+q.publish("out", 0, "x")[0]+"/trace", "viewer", "", 404, "none of its queue's rules has keep_trace")
}

func TestAPreparedJobIsDecidedOnAndNotDeleted(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	p := &job.Publish{Namespace: q.ns, Queue: "q", Shard: q.ns.Shards("q")[0], Tries: 1, Prepare: &job.Prepare{After: time.Minute},
		Messages: []job.Message{{Payload: []byte("x")}, {Payload: []byte("y")}}}
	q.store.Run(t.Context(), q.store.NewLane(), &job.Batch{Publishes: []*job.Publish{p}})
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	path := func(i int64) string { return "/queues/q/jobs/" + q.ns.ID(p.Shard, "q", p.First+i, "") }
	var j Job
	if q.ask("GET", path(0), "", &j); j.State != "prepared" {
		t.Errorf("got %+v", j)
	}
	q.rejected("POST", path(0)+"/delete", "operator", "{}", 409, "the job is prepared")
	q.rejected("POST", path(0)+"/commit", "viewer", "{}", 403, "needs the role operator")
	var done actedJobs
	if q.ask("POST", path(0)+"/commit", "{}", &done); done.Result != "committed" {
		t.Errorf("got %+v", done)
	}
	if q.ask("POST", path(1)+"/rollback", "{}", &done); done.Result != "rolled_back" {
		t.Errorf("got %+v", done)
	}
	q.rejected("POST", path(0)+"/rollback", "operator", "{}", 409, "the opposite was decided before")
	q.trail(`"action":"commit_job","namespace":"mail"`, `"action":"rollback_job"`)
	var account QueueAccount
	if q.ask("GET", "?audit=1", "", &account); account.Ledger.Ready != 1 || account.Ledger.Deleted != 1 || *account.Residual != 0 {
		t.Errorf("account: %+v", account)
	}
}

// trail checks that the audit trail has each text.
func (q *queued) trail(want ...string) {
	q.t.Helper()
	body := send(q.Server, "GET", "/api/v1/audit", "viewer", "").Body.String()
	for _, text := range want {
		if !strings.Contains(body, text) {
			q.t.Errorf("the trail lacks %s:\n%s", text, body)
		}
	}
}

func TestDeadLettersOfAQueueAreRespawnedAndDeletedAsConfirmed(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	q.publish("q", 0, "1", "2", "3", "4", "5")
	q.bury("q", 5)
	var page DeadJobs
	q.ask("GET", "/queues/q/dead?limit=2&offset=1", "", &page)
	if page.Total != 5 || len(page.Jobs) != 2 || page.Jobs[0].Text+string(page.Jobs[0].Data) != "2" || page.Jobs[0].State != "dead" || page.Jobs[0].AtMS == 0 {
		t.Fatalf("got %+v", page)
	}
	raw := send(q.Server, "GET", "/api/v1/namespaces/mail/queues/q/jobs/"+page.Jobs[0].ID, "operator", "").Body.String()
	if page.Jobs[0].Reason != "buried" || !strings.Contains(raw, `"reason":"buried"`) || strings.Contains(raw, "attempt") || page.Jobs[0].ExpiresMS != 0 || !strings.Contains(raw, `"expires_at_ms":0`) {
		t.Errorf("got %+v and %s", page.Jobs[0], raw)
	}
	q.rejected("GET", "/queues/q/dead", "viewer", "", 403, "forbidden")
	q.rejected("POST", "/queues/q/dead/respawn", "viewer", `{"confirm":1}`, 403, "forbidden")
	q.rejected("POST", "/queues/q/dead/respawn", "operator", `{}`, 400, "dry_run")
	q.rejected("POST", "/queues/q/dead/respawn", "operator", `{"confirm":1,"ttl":"-1s"}`, 400, "bad_ttl")
	q.rejected("POST", "/queues/q/dead/respawn", "operator", `{"confirm":1,"limit":-1}`, 400, "bad_limit")
	q.rejected("POST", "/queues/q/dead/delete", "operator", `{"confirm":0}`, 400, "from 1 to")
	q.rejected("POST", "/queues/q/dead/delete", "operator", `{"confirm":1,"ttl":"5s"}`, 400, "bad_parameter")
	for _, empty := range []string{`"ids":[]`, `"ids":[""]`, `"error":""`, `"reason":""`} { // each would select all
		q.rejected("POST", "/queues/q/dead/delete", "operator", `{"confirm":100,`+empty+`}`, 400, "bad_")
	}
	var done actedJobs
	if q.ask("POST", "/queues/q/dead/respawn", `{"dry_run":true,"limit":3}`, &done); done != (actedJobs{DryRun: true, Jobs: 3, Complete: true}) {
		t.Errorf("dry run: %+v", done)
	}
	if q.ask("POST", "/queues/q/dead/respawn", `{"confirm":2,"limit":3,"ttl":"1m"}`, &done); done != (actedJobs{Jobs: 2, Complete: true}) {
		t.Errorf("respawn: %+v", done)
	}
	if q.ask("POST", "/queues/q/dead/delete", `{"confirm":100}`, &done); done != (actedJobs{Jobs: 3, Complete: true}) {
		t.Errorf("delete: %+v", done)
	}
	q.publish("s", 0, "1", "2", "3", "4")
	q.bury("s", 4)
	q.ask("GET", "/queues/s/dead?limit=9", "", &page)
	for body, want := range map[string]int64{`{"dry_run":true,"reason":"lapsed"}`: 0, `{"dry_run":true,"reason":"buried"}`: 4, `{"dry_run":true,"age":"1h"}`: 0,
		`{"dry_run":true,"error":"never said"}`: 0, `{"dry_run":true,"ids":["` + page.Jobs[1].ID + `"]}`: 1} {
		if q.ask("POST", "/queues/s/dead/respawn", body, &done); done != (actedJobs{DryRun: true, Jobs: want, Complete: true}) {
			t.Errorf("%s: %+v", body, done)
		}
	}
	if q.ask("POST", "/queues/s/dead/respawn", `{"confirm":1,"ids":["`+page.Jobs[1].ID+`"]}`, &done); done != (actedJobs{Jobs: 1, Complete: true}) {
		t.Errorf("respawn by id: %+v", done)
	}
	q.rejected("POST", "/queues/s/dead/delete", "operator", `{"confirm":1,"ids":["`+page.Jobs[1].ID+`"],"limit":3}`, 400, "or select some")
	q.rejected("POST", "/queues/s/dead/delete", "operator", `{"confirm":1,"ids":["x"]}`, 400, "the id of no job")
	q.rejected("POST", "/queues/s/dead/delete", "operator", `{"confirm":1,"reason":"bored"}`, 400, "nacked or")
	q.rejected("POST", "/queues/s/dead/delete", "operator", `{"confirm":1,"age":"-1s"}`, 400, "bad_age")
	q.rejected("POST", "/queues/s/jobs/"+page.Jobs[1].ID+"/promote", "operator", `{}`, 409, "not_delayed")
	var published Published
	if q.ask("POST", "/queues/new/jobs", `{"data":[{"a": 1},"b"],"delay_ms":60000,"tries":2}`, &published); len(published.IDs) != 2 {
		t.Errorf("published: %+v", published)
	}
	var made Job
	if q.ask("GET", "/queues/new/jobs/"+published.IDs[0], "", &made); made.State != "delayed" || made.Tries != 2 || string(made.Data) != `{"a":1}` {
		t.Errorf("published: %+v", made)
	}
	for body, want := range map[string]string{`{}`: "data: want 1 to 1000", `{"data":[1],"tries":-1}`: "tries: want", `{"data":[1],"ttl_ms":1,"delay_ms":2}`: "ttl_ms: want",
		`{"data":[1],"delay_ms":-2}`: "delay_ms: want", `{"data":[1],"delay_ms":18446744073710}`: "delay_ms: want", `{"data":1}`: "body: "} {
		q.rejected("POST", "/queues/new/jobs", "operator", body, 400, want)
	}
	q.rejected("POST", "/queues/new/jobs", "viewer", `{"data":[1]}`, 403, "forbidden")
	q.trail(`"action":"publish_jobs","namespace":"mail","queue":"new"`)
	q.rejected("POST", "/queues/s/jobs/"+page.Jobs[1].ID+"/promote", "viewer", `{}`, 403, "forbidden")
	var j Job
	if q.ask("GET", "/queues/q/peek", "", &j); j.Attempt == nil || j.Tries != *j.Attempt+1 || j.ExpiresMS == 0 {
		t.Errorf("respawned: %+v", j)
	}
	q.trail(`"action":"respawn_jobs","namespace":"mail","queue":"q","detail":"confirmed 2","result":"ok","entries":2`,
		`"name":"operator-1","role":"operator","action":"delete_dead_jobs"`)
	q.acts.Lock()
	q.rejected("POST", "/queues/q/dead/delete", "operator", `{"confirm":1}`, 409, "under way")
	q.acts.Unlock()
}

func TestAPurgeOfAQueueTakesNoMoreThanWereConfirmed(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	q.publish("q", 0, "1", "2", "3")
	q.bury("q", 1)
	q.publish("q", time.Hour, "4")
	var done actedJobs
	if q.ask("POST", "/queues/q/purge", `{"dry_run":true}`, &done); done.Jobs != 2 {
		t.Errorf("ready: %+v", done)
	}
	if q.ask("POST", "/queues/q/purge", `{"all":true,"dry_run":true}`, &done); done.Jobs != 4 {
		t.Errorf("all: %+v", done)
	}
	q.rejected("POST", "/queues/q/purge", "operator", `{"confirm":1}`, 409, "there are more")
	q.rejected("POST", "/queues/q/purge", "operator", `{"state":"all","confirm":1}`, 400, "bad_parameter")
	q.rejected("POST", "/queues/q/purge", "operator", `{"all":true}`, 400, "dry_run")
	q.rejected("POST", "/queues/q/purge", "viewer", `{"all":true,"confirm":9}`, 403, "forbidden")
	if q.ask("POST", "/queues/q/purge", `{"confirm":2}`, &done); done.Jobs != 2 || !done.Complete {
		t.Errorf("purge: %+v", done)
	}
	if q.ask("POST", "/queues/q/purge", `{"all":true,"confirm":9}`, &done); done.Jobs != 2 {
		t.Errorf("purge of all: %+v", done)
	}
	q.trail(`"action":"purge_jobs","namespace":"mail","queue":"q","detail":"state all, confirmed 9","result":"ok","entries":2`)
}

func TestOverviewAndMetricsHaveTheAccountsOfQueues(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	q.publish("q", 0, "1", "2", "3")
	q.bury("q", 1)
	q.observer.read(t.Context())
	q.observer.readAges(t.Context())
	var o Overview
	if err := json.Unmarshal(send(q.Server, "GET", "/api/v1/overview?namespace=mail", "viewer", "").Body.Bytes(), &o); err != nil {
		t.Fatal(err)
	}
	if len(o.Namespaces) != 0 || len(o.Queues) != 1 {
		t.Fatalf("got %+v", o)
	}
	mail := o.Queues[0]
	if mail.Ledger.Published != 3 || mail.Ledger.Died != 1 || mail.Jobs != 3 || mail.MaxJobs != 10_000_000 || *mail.Queues != 1 || mail.OldestReadyAgeMS == nil || mail.ReadAtMS == 0 {
		t.Errorf("got %+v", mail)
	}
	err := testutil.CollectAndCompare(q.observer.metrics(), strings.NewReader(`
# HELP spillway_account_jobs Jobs stored now, by state: ready, prepared, delayed, leased or dead. The store's figure: the same in every process.
# TYPE spillway_account_jobs gauge
spillway_account_jobs{namespace="mail",state="dead"} 1
spillway_account_jobs{namespace="mail",state="delayed"} 0
spillway_account_jobs{namespace="mail",state="leased"} 0
spillway_account_jobs{namespace="mail",state="prepared"} 0
spillway_account_jobs{namespace="mail",state="ready"} 2
`), "spillway_account_jobs")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(q.observer.metrics()); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	if raw := send(q.Server, "GET", "/api/v1/overview?namespace=mail", "viewer", "").Body.String(); !strings.Contains(raw, `"sinks":[]`) {
		t.Errorf("nothing is pushed, and the overview says %s", raw)
	}
	body := send(q.Server, "GET", "/api/v1/namespaces", "viewer", "").Body.String()
	if !strings.Contains(body, `{"namespace":"mail","kind":"queue","shards":1,"max_jobs":10000000,"max_queues":10000,"max_keys":1000000,"max_schedules":100000,"max_traces":10000,"dead":"keep","reply_ttl_ms":600000}`) {
		t.Errorf("namespaces: %s", body)
	}
}

// pushing is a pusher with these targets.
type pushing []guard.TargetStatus

func (p pushing) Status() guard.Status { return guard.Status{Targets: p} }

// SinkOf is the queue itself, where it is the name of a sink.
func (p pushing) SinkOf(_, queue string) string {
	for _, t := range p {
		if t.Sink == queue {
			return queue
		}
	}
	return ""
}

func TestOnlyTheJobsOfQueuesWhoseSinkFailsWaitForIt(t *testing.T) {
	t.Parallel()
	mail, _ := job.NewNamespace("sw", "mail", job.DefaultPolicy())
	v := View{Health: &fakeHealth{}, Jobs: []JobStore{spacesOf{ns: mail}}, Push: []Pusher{
		pushing{{Namespace: "mail", Sink: "crm", State: guard.Failing}, {Namespace: "mail", Sink: "erp", State: guard.Open}},
	}}
	b := newObserver(nil, zap.NewNop())
	b.follow(v.Store, b.observed(v))
	waiting := func() *int64 { return b.queueOverview(v, "", time.Now(), &judge{})[0].Sinks[0].Waiting }
	if got := waiting(); got != nil {
		t.Errorf("%d jobs wait before they are counted", *got)
	}
	rows := []queueCounts{
		{name: "crm", Counts: job.Counts{Ready: 200, Delayed: 70, Leased: 5, Pending: 75, Dead: 9}},
		{name: "erp", Counts: job.Counts{Ready: 5_500, Delayed: 12, Pending: 12}},
		{name: "worked", Counts: job.Counts{Ready: 7}},
	}
	b.keep(tableKey{"mail", ""}, &queueTable{at: time.Now(), total: 3, rows: rows})
	if got := waiting(); got == nil || *got != 275 {
		t.Errorf("%v jobs wait for a sink that fails, want the 275 of crm", got)
	}
	b.keep(tableKey{"mail", ""}, &queueTable{at: time.Now(), total: 4, rows: rows})
	if got := waiting(); got != nil {
		t.Errorf("%d jobs wait, and a queue was not counted", *got)
	}
	v.Push = []Pusher{pushing{{Namespace: "mail", Sink: "crm", State: guard.Open}}}
	b.keep(tableKey{"mail", ""}, &queueTable{at: time.Now(), total: 3, rows: rows})
	if got := waiting(); got != nil {
		t.Errorf("%d jobs wait for a sink that fails, and none does", *got)
	}
}

func TestTheOverviewOfAQueueHasTheSinksThatItIsPushedTo(t *testing.T) {
	t.Parallel()
	mail, _ := job.NewNamespace("sw", "mail", job.DefaultPolicy())
	sms, _ := job.NewNamespace("sw", "sms", job.DefaultPolicy())
	at := time.UnixMilli(1_763_629_675_000)
	v := View{Health: &fakeHealth{}, Jobs: []JobStore{spacesOf{ns: mail}, spacesOf{ns: sms}}, Push: []Pusher{
		pushing{{Namespace: "sms", Label: "http://sms", State: guard.Open}},
		pushing{
			{Namespace: "mail", Label: "http://crm", Type: "http", State: guard.Failing, FailingSince: at, LastError: "rejected", LastErrorAt: at, Retries: 7, InFlight: 1, Concurrency: 4},
			{Namespace: "mail", Label: "http://erp", State: guard.Open},
		},
	}}
	for _, q := range newObserver(nil, zap.NewNop()).queueOverview(v, "", at, &judge{}) {
		got, _ := json.Marshal(q.Sinks)
		want := `[{"label":"http://sms","type":"","state":"open","failing_since_ms":null,`
		if q.Namespace == "mail" {
			want = `[{"label":"http://crm","type":"http","state":"failing","failing_since_ms":1763629675000,"p50_ms":null,"p99_ms":null,"writes_per_s":0,"retries":7,` +
				`"last_error":"rejected","last_error_at_ms":1763629675000,"in_flight":1,"concurrency":4,"coalescer_fill":null,"waiting":null},{"label":"http://erp",`
		}
		if !strings.HasPrefix(string(got), want) {
			t.Errorf("%s: got %s, want %s", q.Namespace, got, want)
		}
	}
}

func TestRatesOfQueuesAreThoseOfTheLastSeconds(t *testing.T) {
	t.Parallel()
	core, logs := zaplog.New(zap.InfoLevel)
	b := newObserver(nil, zap.New(core))
	ns, _ := job.NewNamespace("sw", "mail", job.DefaultPolicy())
	v := View{Health: &fakeHealth{}, Jobs: []JobStore{spacesOf{ns: ns}}}
	b.follow(v.Store, b.observed(v))
	note := func(l job.Ledger, at time.Time) {
		b.note(&b.queues, "mail", reading{jobs: l, totals: l.Totals(), at: at})
	}
	overview := func(at time.Time) QueueOverview { return b.queueOverview(v, "", at, &judge{})[0] }
	at := time.UnixMilli(1_763_629_675_000)
	for i := range int64(20) {
		note(job.Ledger{Published: 10 * i, Acked: 8 * i, Lost: i}, at.Add(time.Duration(i)*time.Second))
	}
	o := overview(at)
	if o.Rates["published"] != 10 || o.Rates["acked"] != 8 || o.Rates["lost"] != 1 || o.Rates["expired"] != 0 {
		t.Errorf("rates %v", o.Rates)
	}
	if o := overview(at.Add(time.Minute)); len(o.Rates) != 0 || o.Ledger.Published != 190 {
		t.Errorf("a minute after the last answer: %+v", o)
	}
	if lost := logs.FilterMessageSnippet("jobs are lost").Len(); lost != 1 {
		t.Errorf("%d lines say that jobs are lost", lost)
	}
	note(job.Ledger{Published: 1}, at.Add(time.Hour)) // another Redis
	if o := overview(at.Add(time.Hour)); len(o.Rates) != 0 || o.Ledger.Published != 1 {
		t.Errorf("after a reset: %+v", o)
	}
	b.forget(nil)
	if len(b.spaces) != 0 {
		t.Error("a namespace that is gone is kept")
	}
}

// spacesOf is a store that has one namespace and no job.
type spacesOf struct {
	JobStore
	ns *job.Namespace
}

func (s spacesOf) Namespaces() []*job.Namespace { return []*job.Namespace{s.ns} }

func (s spacesOf) Namespace(string) *job.Namespace { return s.ns }

// slowQueues takes 10 ms to list its 100 queues, and as long to count some.
type slowQueues struct {
	spacesOf
	busy    time.Duration
	counted int
}

func (s *slowQueues) Queues(context.Context, *job.Namespace) (names []string, err error) {
	time.Sleep(10 * time.Millisecond)
	s.busy += 10 * time.Millisecond
	for i := range 100 {
		names = append(names, fmt.Sprint(i))
	}
	return names, nil
}

func (s *slowQueues) Kept(_ context.Context, _ *job.Namespace, queues []string) ([]*int64, error) {
	return make([]*int64, len(queues)), nil
}

func (s *slowQueues) KeptQueues(context.Context, *job.Namespace) ([]string, error) { return nil, nil }

func (s *slowQueues) CountAll(_ context.Context, _ *job.Namespace, queues []string) ([]job.Counts, error) {
	time.Sleep(10 * time.Millisecond)
	s.busy += 10 * time.Millisecond
	s.counted++
	return make([]job.Counts, len(queues)), nil
}

// A hundred viewers with a hundred searches read one table after the other, with rests.
func TestManyReadersOfQueuesCostTheStoreAShareOfItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns, _ := job.NewNamespace("sw", "mail", job.DefaultPolicy())
		store := &slowQueues{spacesOf: spacesOf{ns: ns}}
		b := newObserver(nil, zap.NewNop())
		began := time.Now()
		for i := range 100 {
			for range 3 {
				if _, err := b.table(t.Context(), jobSpace{store, ns}, fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if share := float64(store.busy) / float64(time.Since(began)); share > 0.25 || store.counted != 100 {
			t.Errorf("the store was busy for %v of %v, with %d tables", store.busy, time.Since(began), store.counted)
		}
		if len(b.tables) > maxTables {
			t.Errorf("%d tables are kept", len(b.tables))
		}
	})
}

// grownQueues has one queue more each time, and takes no time to say so.
type grownQueues struct {
	slowQueues
	names []string
}

func (s *grownQueues) Queues(context.Context, *job.Namespace) ([]string, error) {
	s.names = append(s.names, fmt.Sprint("q", len(s.names)))
	return append([]string(nil), s.names...), nil
}

func (s *grownQueues) CountAll(_ context.Context, _ *job.Namespace, queues []string) ([]job.Counts, error) {
	return make([]job.Counts, len(queues)), nil
}

// A queue that another process published into is in the next list.
func TestAListOfQueuesIsAsTheyAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns, _ := job.NewNamespace("sw", "mail", job.DefaultPolicy())
		store := &grownQueues{slowQueues: slowQueues{spacesOf: spacesOf{ns: ns}}}
		b := newObserver(nil, zap.NewNop())
		for i := range 5 {
			list, err := b.table(t.Context(), jobSpace{store, ns}, "")
			if err != nil || list.total != 2*i+1 {
				t.Errorf("list %d: got %d queues, %v", i, list.total, err)
			}
			if names, err := b.namesOf(t.Context(), jobSpace{store, ns}, time.Now()); err != nil || len(names.names) != 2*i+2 {
				t.Errorf("names %d: got %v, %v", i, names.names, err)
			}
		}
	})
}

func TestAQueueSaysHowManyAckedJobsItKeeps(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	q.publish("kept", 0, `{"password":"hunter2"}`)
	q.publish("q", 0, "1")
	c := &job.Claim{Namespace: q.ns, Shard: q.ns.Shards("kept")[0], Queues: []string{"kept"}, TTR: time.Minute, Count: 1}
	q.store.Run(t.Context(), q.lane, &job.Batch{Claims: []*job.Claim{c}})
	q.store.Run(t.Context(), q.lane, &job.Batch{Acks: []*job.Ack{
		{Namespace: q.ns, Queue: "kept", Ref: c.Jobs[0].Ref, Result: []byte(`{"sent":true,"password":"hunter2"}`)},
	}})
	var kept, other QueueRow
	if q.ask("GET", "/queues/kept", "", &kept); kept.Acked == nil || *kept.Acked != 1 || kept.Ready != 0 {
		t.Errorf("got %+v", kept)
	}
	if q.ask("GET", "/queues/q", "", &other); other.Acked != nil {
		t.Errorf("a queue that keeps none says %d", *other.Acked)
	}
	var queues QueueList
	if q.ask("GET", "/queues", "", &queues); len(queues.Queues) != 2 || queues.Queues[0].Queue != "kept" || *queues.Queues[0].Acked != 1 || queues.Queues[1].Acked != nil {
		t.Errorf("listed are %+v", queues)
	}
	if f := q.observer.spaces["mail"]; f != nil && f.counted.jobs != 1 {
		t.Errorf("%d queues have jobs", f.counted.jobs)
	}
	var list JobPage
	if q.ask("GET", "/queues/kept/jobs?state=acked", "", &list); len(list.Jobs) != 1 || strings.Contains(string(list.Jobs[0].Result), "hunter2") {
		t.Errorf("got %+v", list)
	}
}

func TestJobsOfAQueueAreListedByState(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	q.publish("q", 0, "1", "2", "3")
	q.publish("late", time.Hour, "4")
	var first, second, late JobPage
	q.ask("GET", "/queues/q/jobs?state=ready&limit=2", "", &first)
	q.ask("GET", "/queues/q/jobs?state=ready&limit=2&after="+first.Next, "", &second)
	if len(first.Jobs) != 2 || len(second.Jobs) != 1 || second.Next != "" || second.Jobs[0].State != "ready" || second.Jobs[0].Bytes != 1 {
		t.Errorf("got %+v, then %+v", first, second)
	}
	if q.ask("GET", "/queues/late/jobs?state=delayed", "", &late); len(late.Jobs) != 1 || late.Jobs[0].DueMS == 0 || late.Jobs[0].Data != nil {
		t.Errorf("got %+v", late)
	}
	q.rejected("GET", "/queues/late/jobs?state=ready&after="+first.Next, "operator", "", 400, "after is not")
	q.rejected("GET", "/queues/q/jobs", "operator", "", 400, "state is ready or prepared")
	q.rejected("GET", "/queues/q/jobs?state=ready", "viewer", "", 403, "forbidden")
}
