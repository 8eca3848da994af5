package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
)

// process is an engine with a data port, as one process of several on a Redis.
type process struct {
	*port
	store  *job.Store
	stored *prometheus.Registry // metrics of the store
}

// startProcess serves until the test ends.
func startProcess(t testing.TB, url string, policy job.Policy, edit func(*ingest.Config)) *process {
	t.Helper()
	return startLimited(t, url, policy, nil, edit)
}

// startLimited is startProcess where the rates of tokens hold for what their schedules publish.
func startLimited(t testing.TB, url string, policy job.Policy, rates job.TakeRate, edit func(*ingest.Config)) *process {
	t.Helper()
	b := backendtest.Open(t, backend.Config{URL: url})
	stored := prometheus.NewRegistry()
	s, err := job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: map[string]job.Policy{"mail": policy}, TakeRate: rates}, b, stored, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, 20*time.Second, "the store can be used", func() bool { _, err := s.Check(t.Context()); return err == nil })
	promoter := job.NewPromoter(s)
	if err := promoter.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = promoter.Stop(context.Background()) })
	cfg := DefaultConfig()
	cfg.FlushTimeout = time.Minute // the patience of the backend
	e, err := New(cfg, s, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	fake := newFake(t, map[string]job.Policy{"mail": policy})
	return &process{listen(t, fake, e, edit), s, stored}
}

func TestJobsOnARealRedis(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards, policy.MaxJobs = 4, 400
	p := startProcess(t, redistest.Start(t).URL(), policy, nil)

	ids := p.do("POST", "/v1/mail/q?tries=2", "[1,2,3]", asJSON).IDs
	if again := p.do("POST", "/v1/mail/q?id=one", "x"); again.Accepted != 1 || len(again.IDs) != 1 {
		t.Errorf("got %s", again.raw)
	} else if exists := p.do("POST", "/v1/mail/q?id=one", "y"); !exists.Exists || exists.IDs[0] != again.IDs[0] {
		t.Errorf("got %s", exists.raw)
	}
	first := p.do("POST", "/v1/mail/k", "[1,2]", asJSON, "Idempotency-Key: k")
	if repeat := p.do("POST", "/v1/mail/k", "[1,2]", asJSON, "Idempotency-Key: k"); !repeat.Repeated || fmt.Sprint(repeat.IDs) != fmt.Sprint(first.IDs) {
		t.Errorf("got %s and %s", first.raw, repeat.raw)
	}
	if peek := p.do("GET", "/v1/mail/q/peek", ""); !strings.Contains(peek.raw, ids[0]) {
		t.Errorf("got %s", peek.raw)
	}
	got := p.do("POST", "/v1/mail/none,q,k/claim?count=4&ttr=1h", "")
	if got.data() != "1 2 3 x" {
		t.Fatalf("got %s", got.raw)
	}
	if r := p.do("GET", "/v1/mail/q/jobs/"+ids[1], ""); r.State != "leased" {
		t.Errorf("got %s", r.raw)
	}
	lines := func(format string, ids ...string) (all string) {
		for _, id := range ids {
			all += fmt.Sprintf(format+"\n", id)
		}
		return all
	}
	r := p.do("POST", "/v1/mail/q/settle", lines(`{"id":%q,"attempt":1,"do":"ack"}`, ids[0])+lines(`{"id":%q,"attempt":1,"do":"nack"}`, ids[1])+lines(`{"id":%q,"attempt":1,"do":"bury"}`, ids[2]))
	if len(r.Results) != 3 || r.Results[0].State != "acked" || r.Results[1].State != "ready" || r.Results[2].State != "dead" {
		t.Errorf("got %s", r.raw)
	}
	var counts struct{ Ready, Leased, Dead int }
	if err := json.Unmarshal([]byte(p.do("GET", "/v1/mail/q", "").raw), &counts); err != nil || counts.Ready != 1 || counts.Leased != 1 || counts.Dead != 1 {
		t.Errorf("got %+v %v", counts, err)
	}
	if r := p.do("POST", "/v1/mail/q/dead?do=respawn", ""); !strings.Contains(r.raw, `"respawned":1`) {
		t.Errorf("got %s", r.raw)
	}
	if r := p.do("POST", "/v1/mail/q/claim?count=9", ""); len(r.Jobs) != 2 || r.Jobs[0].Attempt != 2 {
		t.Errorf("got %s", r.raw)
	}
	if r := p.do("POST", "/v1/mail/d?delay=1h", "x"); r.status != 200 {
		t.Errorf("got %s", r.raw)
	}
	if r := p.do("GET", "/v1/mail/d/forecast?step=30m&steps=3", ""); !strings.Contains(r.raw, `"due":[0,1]`) && !strings.Contains(r.raw, `"due":[0,0,1]`) {
		t.Errorf("got %s", r.raw)
	}
	if r := p.do("DELETE", "/v1/mail/d?state=all", ""); !strings.Contains(r.raw, `"deleted":1`) {
		t.Errorf("got %s", r.raw)
	}
	began := time.Now()
	p.do("POST", "/v1/mail/d?delay=300ms", "late")
	if r := p.do("POST", "/v1/mail/d/claim?wait=20s", ""); r.data() != "late" || time.Since(began) < 300*time.Millisecond {
		t.Errorf("after %v: got %s", time.Since(began), r.raw)
	}
	if r := p.do("POST", "/v1/mail/full", strings.Repeat("x\n", 101), asNDJSON); r.status != 429 || r.Error != "too_many_jobs" || r.Scope != "namespace" {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}

func TestAPollHearsOfJobsOfAnotherProcess(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 4, map[string]int{"wide": 4}
	a, b := startProcess(t, redis.URL(), policy, nil), startProcess(t, redis.URL(), policy, nil)
	for _, queue := range []string{"q", "wide", "wide", "wide", "wide"} {
		answer := make(chan *reply, 1)
		go func() { answer <- a.do("POST", "/v1/mail/other,"+queue+"/claim?wait=20s", "") }()
		eventually(t, "the poll waits", func() bool { return a.waiting() == 1 })
		b.do("POST", "/v1/mail/"+queue, "x")
		if r := <-answer; r.data() != "x" { // without the wake it would end empty
			t.Errorf("%s: got %s", queue, r.raw)
		}
	}
}

// Two processes, and clients that come and go away. In the end every job was acked once,
// and none is left. A client may go away in the moment in which it is answered: then the
// lease ends it, so those who go away have a short one.
func TestNoJobIsSwallowedOrForgotten(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 3, map[string]int{"c": 3}
	procs := []*process{startProcess(t, redis.URL(), policy, nil), startProcess(t, redis.URL(), policy, nil)}
	queues := []string{"a", "b", "c"}
	var published, acked, again atomic.Int64
	var publishers, workers sync.WaitGroup
	done := make(chan struct{})
	for w := range 8 {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(w)))
			p := procs[w%2]
			for {
				select {
				case <-done:
					if published.Load() == acked.Load() {
						return
					}
				default:
				}
				order := []string{queues[w%3], queues[(w+1)%3], queues[(w+2)%3]}
				if r.IntN(3) == 0 { // a client that goes away
					c, err := net.Dial("tcp", p.addr)
					if err != nil {
						t.Error(err)
						return
					}
					fmt.Fprintf(c, "POST /v1/mail/%s/claim?wait=10s&ttr=1s&count=3 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", strings.Join(order, ","))
					_ = c.Close()
					continue
				}
				got := p.do("POST", "/v1/mail/"+strings.Join(order, ",")+"/claim?wait=500ms&ttr=1h&count=3", "")
				if got.status != http.StatusOK {
					t.Errorf("got %d %s", got.status, got.raw)
					return
				}
				for _, j := range got.Jobs {
					if j.Attempt != 1 {
						again.Add(1)
					}
					s := p.do("POST", "/v1/mail/"+j.Queue+"/settle", fmt.Sprintf(`{"id":%q,"attempt":%d,"do":"ack"}`, j.ID, j.Attempt))
					if len(s.Results) != 1 || s.Results[0].State != "acked" {
						t.Errorf("got %s", s.raw)
					}
					acked.Add(1)
				}
			}
		})
	}
	publishes := 150
	if testing.Short() {
		publishes = 40
	}
	for i := range 2 {
		publishers.Go(func() {
			r := rand.New(rand.NewPCG(8, uint64(i)))
			for range publishes {
				n := 1 + r.IntN(3)
				delay := ""
				if r.IntN(5) == 0 {
					delay = "&delay=50ms"
				}
				if got := procs[i].do("POST", "/v1/mail/"+queues[r.IntN(3)]+"?tries=1000"+delay, strings.Repeat("x\n", n), asNDJSON); got.status != 200 {
					t.Errorf("got %d %s", got.status, got.raw)
				}
				published.Add(int64(n))
			}
		})
	}
	publishers.Wait()
	close(done)
	workers.Wait()
	if again.Load() > published.Load()/10 {
		t.Errorf("%d of %d jobs were swallowed until their lease ended", again.Load(), published.Load())
	}
	eventually(t, "nothing is left", func() bool {
		l, err := procs[0].store.Ledger(t.Context(), procs[0].store.Namespace("mail"))
		return err == nil && l.Published == published.Load() && l.Acked == l.Published && l.Ready+l.Leased+l.Delayed+l.Dead+l.Expired+l.Lost+l.Deleted == 0
	})
}

// Whoever waits asks again under a namespace that is not the one of before.
func TestAPolicyThatDidNotChangeKeepsItsNamespace(t *testing.T) {
	t.Parallel()
	p := startProcess(t, "embedded:", job.DefaultPolicy(), nil)
	before, other := p.store.Namespace("mail"), job.DefaultPolicy()
	for range 2 {
		other.MaxJobs--
		if err := p.store.SetNamespaces(t.Context(), map[string]job.Policy{"mail": job.DefaultPolicy(), "other": other}); err != nil {
			t.Fatal(err)
		}
		if p.store.Namespace("mail") != before {
			t.Error("a change of another namespace replaces it")
		}
	}
	if err := p.store.SetNamespaces(t.Context(), map[string]job.Policy{"mail": other}); err != nil {
		t.Fatal(err)
	}
	if p.store.Namespace("mail") == before {
		t.Error("a changed policy has the namespace of before")
	}
}

func TestJobsOnARedisCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 3)
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 12, map[string]int{"wide": 12}
	a, b := startProcess(t, cluster.URL(), policy, nil), startProcess(t, cluster.URL(), policy, nil)
	if len(a.engine.lanes) <= a.engine.cfg.Lanes {
		t.Errorf("%d lanes for all masters", len(a.engine.lanes))
	}
	for i := range 24 {
		queue := "wide"
		if i%2 == 0 {
			queue = fmt.Sprint("q", i)
		}
		answer := make(chan *reply, 1)
		go func() { answer <- a.do("POST", "/v1/mail/none,"+queue+"/claim?wait=20s&ttr=1h", "") }()
		eventually(t, "the poll waits", func() bool { return a.waiting() == 1 })
		b.do("POST", "/v1/mail/"+queue, "x")
		if r := <-answer; r.data() != "x" {
			t.Errorf("%s: got %s", queue, r.raw)
		} else if s := b.do("POST", "/v1/mail/"+queue+"/settle", fmt.Sprintf(`{"id":%q,"attempt":1,"do":"ack"}`, r.Jobs[0].ID)); len(s.Results) != 1 || s.Results[0].State != "acked" {
			t.Errorf("%s: got %s", queue, s.raw)
		}
	}
}

// Over HTTP: an acked job is read and listed with its result, and who waits for its end gets it.
func TestAnAckedJobIsKeptOverHTTP(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "q", KeepAcked: job.Span(time.Hour)}}
	p := startProcess(t, redistest.Start(t).URL(), policy, nil)
	ids, ends := map[string]string{}, map[string]chan string{}
	for _, queue := range []string{"q", "plain", "dead"} {
		id, end := p.do("POST", "/v1/mail/"+queue+"?tries=1", "x").IDs[0], make(chan string, 1)
		ids[queue], ends[queue] = id, end
		p.do("POST", "/v1/mail/"+queue+"/claim", "")
		go func() { end <- p.do("GET", "/v1/mail/"+queue+"/jobs/"+id+"?wait=5m", "").raw }()
	}
	if r := p.do("GET", "/v1/mail/q/jobs/"+ids["q"]+"?wait=30ms", ""); !strings.Contains(r.raw, `"state":"leased"`) {
		t.Errorf("at the end of the wait: %d %s", r.status, r.raw)
	}
	for queue, do := range map[string]string{"q": `"ack","result":{"sum":42}`, "plain": `"ack"`, "dead": `"bury"`} {
		p.do("POST", "/v1/mail/"+queue+"/settle", `{"id":"`+ids[queue]+`","attempt":1,"do":`+do+`}`)
	}
	kept := p.do("GET", "/v1/mail/q/jobs/"+ids["q"], "")
	for _, part := range []string{`"state":"acked","acked_ms":17`, `"result":{"sum":42}`, `"data":"eA=="`, `"attempt":1,"tries":1`} {
		if !strings.Contains(kept.raw, part) {
			t.Errorf("%d %s lacks %s", kept.status, kept.raw, part)
		}
	}
	if got := <-ends["q"]; got != kept.raw {
		t.Errorf("who waits got %s, want %s", got, kept.raw)
	}
	if got := <-ends["plain"]; !strings.Contains(got, `"data":"","state":"gone"`) {
		t.Errorf("who waits for one that is not kept got %s", got)
	}
	if got := <-ends["dead"]; !strings.Contains(got, `"state":"dead"`) {
		t.Errorf("who waits for one that dies got %s", got)
	}
	if r := p.do("GET", "/v1/mail/plain/jobs/"+ids["plain"]+"?wait=5m", ""); r.status != 404 {
		t.Errorf("one that was gone before: %d %s", r.status, r.raw)
	}
	list := p.do("GET", "/v1/mail/q/jobs?state=acked&data=1", "")
	for _, part := range []string{`"state":"acked"`, `"acked_ms":17`, `"result":{"sum":42}`, `"data":"eA=="`} {
		if !strings.Contains(list.raw, part) {
			t.Errorf("%d %s lacks %s", list.status, list.raw, part)
		}
	}
}

// Over HTTP: a double is rejected whatever became of the first, which it may change while that waits.
func TestAPublishIsUniqueOverHTTP(t *testing.T) {
	t.Parallel()
	p := startProcess(t, redistest.Start(t).URL(), job.DefaultPolicy(), nil)
	publish := func(query, body string) (id string, said string) {
		r := p.do("POST", "/v1/mail/q?unique=1h&"+query, body)
		if r.status != 200 || len(r.IDs) != 1 {
			t.Fatalf("%s: %d %s", query, r.status, r.raw)
		}
		said, _, _ = strings.Cut(r.raw, `,"ids"`)
		return r.IDs[0], said
	}
	const stored, exists, changed = `{"accepted":1`, `{"accepted":0,"exists":true`, `{"changed":true,"accepted":0,"exists":true`
	first, _ := publish("unique_key=a%20b&delay=1h", "1")
	for _, c := range []struct{ query, body, want, data string }{
		{"unique_key=a%20b", "2", exists, "MQ=="},
		{"unique_key=a%20b&on_conflict=keep", "2", exists, "MQ=="},
		{"unique_key=a%20b&on_conflict=extend&delay=2h", "2", changed, "MQ=="},
		{"unique_key=a%20b&on_conflict=replace&delay=3h", "3", changed, "Mw=="},
	} {
		id, said := publish(c.query, c.body)
		if r := p.do("GET", "/v1/mail/q/jobs/"+first, ""); id != first || said != c.want || !strings.Contains(r.raw, `"data":"`+c.data+`"`) {
			t.Errorf("%s: %s, %s, then %s", c.query, id, said, r.raw)
		}
	}
	p.do("POST", "/v1/mail/q/jobs/"+first+"/promote", "")
	if id, said := publish("unique_key=a%20b&on_conflict=replace", "4"); id != first || said != exists {
		t.Errorf("once it is ready: %s, %s", id, said)
	}
	p.do("DELETE", "/v1/mail/q/jobs/"+first, "")
	if id, said := publish("unique_key=a%20b&on_conflict=extend&delay=1h", "5"); id != first || said != exists {
		t.Errorf("once it is gone: %s, %s", id, said)
	}
	if id, said := publish("unique_key=b", "6"); id == first || said != stored {
		t.Errorf("under another key: %s, %s", id, said)
	}
	byID, said := publish("id=b", "7")
	if said != stored {
		t.Errorf("an id is no unique_key: %s", said)
	}
	p.do("DELETE", "/v1/mail/q/jobs/"+byID, "")
	if id, said := publish("id=b", "8"); id != byID || said != exists {
		t.Errorf("by id, once it is gone: %s, %s", id, said)
	}
	for _, named := range []string{"unique_key=a%20b", "id=order-7"} {
		first, _ := publish(named, "1")
		for _, released := range []bool{true, false} {
			if r := p.do("DELETE", "/v1/mail/q/unique?"+named, ""); r.status != 200 || r.raw != fmt.Sprintf("{\"released\":%t}\n", released) {
				t.Errorf("%s: %d %s", named, r.status, r.raw)
			}
		}
		if strings.HasPrefix(named, "id=") {
			if id, said := publish(named, "2"); id != first || said != exists {
				t.Errorf("%s, while that job exists: %s", named, said)
			}
		}
		p.do("DELETE", "/v1/mail/q/jobs/"+first, "")
		if id, said := publish(named, "2"); id == first && !strings.HasPrefix(named, "id=") || said != stored {
			t.Errorf("%s: %s", named, said)
		}
	}
	for query, code := range map[string]string{"": "bad_unique_key", "?unique_key=a&id=b": "bad_unique_key", "?id=a%20b": "bad_id"} {
		if r := p.do("DELETE", "/v1/mail/q/unique"+query, ""); r.Error != code {
			t.Errorf("%s: %d %s", query, r.status, r.raw)
		}
	}
}

// Over HTTP: what happened to a job, by whom, also when it is gone.
func TestTheTraceOfAJobOverHTTP(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "q", KeepTrace: job.Span(time.Hour)}}
	p := startProcess(t, redistest.Start(t).URL(), policy, nil)
	tracer := job.NewTracer(p.store)
	if err := tracer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := p.do("POST", "/v1/mail/q?id=order-1", "x").IDs[0]
	p.do("POST", "/v1/mail/q/claim", "")
	p.do("POST", "/v1/mail/q/settle", `{"id":"`+id+`","attempt":1,"do":"requeue"}`)
	p.do("DELETE", "/v1/mail/q/jobs/"+id, "")
	if err := tracer.Stop(context.Background()); err != nil { // it writes what it holds
		t.Fatal(err)
	}
	r := p.do("GET", "/v1/mail/q/jobs/"+id+"/trace", "")
	var trace struct{ Events []job.TraceEvent }
	told := ""
	if err := json.Unmarshal([]byte(r.raw), &trace); err != nil || r.status != 200 {
		t.Fatalf("got %d %s", r.status, r.raw)
	}
	for _, e := range trace.Events {
		told += fmt.Sprint(e.Event, e.Attempt, " ")
	}
	if told != "published0 claimed1 requeued1 deleted0 " {
		t.Errorf("got %s", r.raw)
	}
	other := p.do("POST", "/v1/mail/other", "x").IDs[0]
	for _, path := range []string{"other/jobs/" + other, "q/jobs/" + other, "q/jobs/nothing"} {
		if r := p.do("GET", "/v1/mail/"+path+"/trace", ""); r.status != 404 || r.Error != "no_such_trace" {
			t.Errorf("%s: got %d %s", path, r.status, r.raw)
		}
	}
	if r := p.do("POST", "/v1/mail/q/jobs/"+id+"/trace", ""); r.status != 405 {
		t.Errorf("POST: got %d", r.status)
	}
}

// Over HTTP: what an ack says of its work comes with the follow-up, and a deferred job shows itself.
func TestFollowUpsAndDeferredJobsOverHTTP(t *testing.T) {
	t.Parallel()
	p := startProcess(t, redistest.Start(t).URL(), job.DefaultPolicy(), nil)
	m := job.NewMover(p.store)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop(context.Background()) })
	ids := p.do("POST", "/v1/mail/q?on_end=done&id=order-1", `{"n":1}`).IDs
	p.do("POST", "/v1/mail/q/claim", "")
	if r := p.do("POST", "/v1/mail/q/settle", `{"id":"`+ids[0]+`","attempt":1,"do":"defer","ms":60000}`); !strings.Contains(r.raw, `"state":"leased"`) {
		t.Errorf("got %s", r.raw)
	}
	if r := p.do("GET", "/v1/mail/q/jobs/"+ids[0], ""); !strings.Contains(r.raw, `"state":"leased","deferred":true`) {
		t.Errorf("got %s", r.raw)
	}
	p.do("POST", "/v1/mail/q/settle", `{"id":"`+ids[0]+`","do":"ack","result":{"paid":[1, 2]}}`)
	r := p.do("POST", "/v1/mail/done/claim?wait=10s", "")
	var answer struct{ Jobs []struct{ Data []byte } }
	if err := json.Unmarshal([]byte(r.raw), &answer); err != nil || len(answer.Jobs) != 1 {
		t.Fatalf("got %s", r.raw)
	}
	if got := string(answer.Jobs[0].Data); !strings.HasPrefix(got, `{"event":"acked","queue":"q","id":"`+ids[0]+`","at_ms":`) || !strings.HasSuffix(got, `,"result":{"paid":[1,2]}}`) {
		t.Errorf("got %s", got)
	}
}
