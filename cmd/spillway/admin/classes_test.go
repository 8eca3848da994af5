package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/php"
)

// phpShop is a server on queues of a PHP application.
func phpShop(t *testing.T, masks ...string) (*Server, *php.Store) {
	t.Helper()
	b, err := backend.Open(backend.Config{URL: redistest.Start(t).URL()}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	policy := php.DefaultPolicy("laravel")
	policy.Rules = []job.Rule{{Match: "mail"}}
	store, err := php.Open(php.Config{Prefix: "sw", Namespaces: map[string]php.Policy{"shop": policy}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return New(Config{Listen: "127.0.0.1:8081", Source: func() View {
		return View{
			Store: &fakeStore{}, Health: &fakeHealth{}, Metrics: prometheus.NewRegistry(), Tokens: tokensOfEachRole(), MaskFields: masks, Jobs: []JobStore{store},
			Workers: func(string) []jobs.Worker { return []jobs.Worker{{Name: "host-1", Children: 4, SinceMS: 1}} },
		}
	}}, zap.NewNop()), store
}

// die publishes jobs of a class, and makes them dead letters.
func die(t *testing.T, store *php.Store, class string, n int) {
	t.Helper()
	ns, lane := store.Namespace("shop"), store.NewLane()
	for n > 0 {
		page := min(n, 100)
		n -= page
		p := &job.Publish{Namespace: ns, Queue: "mail"}
		for range page {
			text, _ := json.Marshal(map[string]any{"displayName": class, "job": class + "@handle", "maxTries": 1, "data": map[string]string{"password": "canary"}, "id": "x", "attempts": 0})
			p.Messages = append(p.Messages, job.Message{Payload: text})
		}
		store.Run(t.Context(), lane, &job.Batch{Publishes: []*job.Publish{p}})
		c := &job.Claim{Namespace: ns, Queues: []string{"mail"}, TTR: time.Minute, Count: page}
		store.Run(t.Context(), lane, &job.Batch{Claims: []*job.Claim{c}})
		b := &job.Batch{}
		for _, j := range c.Jobs {
			b.Settles = append(b.Settles, &job.Settle{Namespace: ns, Queue: "mail", Ref: j.Ref, Attempt: j.Attempt, Verb: job.Bury})
		}
		if store.Run(t.Context(), lane, b); p.Err != nil || c.Err != nil || len(b.Settles) != page {
			t.Fatal(p.Err, c.Err, len(b.Settles))
		}
	}
}

func TestTheNewestDeadLettersOfPHPAreCountedByClass(t *testing.T) {
	t.Parallel()
	s, store := phpShop(t, DefaultMaskFields()...)
	die(t, store, `App\Jobs\Old`, 150)
	die(t, store, `App\Jobs\Mail`, 900)
	die(t, store, strings.Repeat("L", 300), 30)
	var got DeadJobs
	read := func(role, query string) {
		t.Helper()
		got = DeadJobs{}
		w := send(s, "GET", "/api/v1/namespaces/shop/queues/mail/dead?"+query, role, "")
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || strings.Contains(w.Body.String(), "canary") {
			t.Fatalf("%v: %d %.300s", err, w.Code, w.Body)
		}
	}
	read("operator", "classes=1&limit=1")
	want := fmt.Sprint(map[string]int{`App\Jobs\Old`: 70, `App\Jobs\Mail`: 900, strings.Repeat("L", 200): 30})
	if fmt.Sprint(got.Classes) != want || got.Classed != 1000 || got.Total != 1080 || got.Jobs[0].Class != `App\Jobs\Old` || got.Jobs[0].Attempt == nil || *got.Jobs[0].Attempt != 1 {
		t.Errorf("got %v of %d, %+v", got.Classes, got.Classed, got.Jobs)
	}
	if read("operator", "limit=1"); got.Classes != nil || got.Classed != 0 {
		t.Errorf("without classes=1: got %v", got.Classes)
	}
	if w := send(s, "GET", "/api/v1/namespaces/shop/queues/mail/dead?classes=1", "viewer", ""); w.Code != http.StatusForbidden {
		t.Errorf("a viewer: %d", w.Code)
	}
}

func TestAClassIsMaskedWithTheKeysThatNameIt(t *testing.T) {
	t.Parallel()
	s, store := phpShop(t, "password", "JOB")
	die(t, store, `App\Jobs\Mail`, 2)
	w := send(s, "GET", "/api/v1/namespaces/shop/queues/mail/dead?classes=1", "operator", "")
	if !strings.Contains(w.Body.String(), `"classes":{"***":2},"classed":2`) || !strings.Contains(w.Body.String(), `"class":"***"`) {
		t.Errorf("got %s", w.Body)
	}
	if w = send(s, "GET", "/api/v1/namespaces/shop/queues/mail/dead?classes=1&unmasked=1", "admin", ""); !strings.Contains(w.Body.String(), `{"App\\Jobs\\Mail":2}`) {
		t.Errorf("an admin: got %s", w.Body)
	}
}

func TestWorkersAreListedAndThoseOfPHPRestartedByAnOperator(t *testing.T) {
	t.Parallel()
	s, _ := phpShop(t)
	if w := send(s, "GET", "/api/v1/namespaces/shop/workers", "viewer", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"name":"host-1","children":4`) || !strings.Contains(w.Body.String(), `"since_ms":1`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	for role, want := range map[string]int{"viewer": 403, "operator": 200} {
		if w := send(s, "POST", "/api/v1/namespaces/shop/workers/restart", role, "{}"); w.Code != want {
			t.Errorf("%s: got %d %s", role, w.Code, w.Body)
		}
	}
	if w := send(s, "GET", "/api/v1/audit", "viewer", ""); !strings.Contains(w.Body.String(), `"action":"restart_workers","namespace":"shop"`) {
		t.Errorf("the audit trail: %s", w.Body)
	}
	q := newQueued(t)
	q.rejected("POST", "/workers/restart", "operator", "{}", 404, "send them SIGTERM")
}
