package jobs

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
)

// A claim that waits for a slot of one process gets the job when another process frees it.
func TestAPollHearsOfASlotThatAnotherProcessFrees(t *testing.T) {
	t.Parallel()
	at, policy := redistest.Start(t).URL(), job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "*", Concurrency: 1}}
	a, b := startProcess(t, at, policy, nil), startProcess(t, at, policy, nil)
	const jobs = 20
	ids := a.do("POST", "/v1/mail/q", strings.Repeat("1\n", jobs), "Content-Type: application/x-ndjson").IDs
	a.do("POST", "/v1/mail/q/claim", "")
	for i, id := range ids[:jobs-1] {
		next := make(chan *reply, 1)
		go func() { next <- b.do("POST", "/v1/mail/q/claim?wait=60s&count=5", "") }()
		verb := []string{"ack", "bury"}[i%2]
		if r := a.do("POST", "/v1/mail/q/settle", `{"id":"`+id+`","do":"`+verb+`"}`); r.status != 200 {
			t.Fatalf("%s: got %d %s", verb, r.status, r.raw)
		}
		if r := <-next; strings.Count(r.raw, `"id"`) != 1 || !strings.Contains(r.raw, ids[i+1]) {
			t.Fatalf("job %d: got %s", i+1, r.raw)
		}
	}
}

// A rule that becomes looser at run time has the claims ask again that wait.
func TestAPollHearsOfAHigherLimit(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "*", Concurrency: 1}}
	p := startProcess(t, redistest.Start(t).URL(), policy, nil)
	p.do("POST", "/v1/mail/q", "1\n2\n", "Content-Type: application/x-ndjson")
	p.do("POST", "/v1/mail/q/claim", "")
	next := make(chan *reply, 1)
	go func() { next <- p.do("POST", "/v1/mail/q/claim?wait=60s", "") }()
	e := p.engine
	redistest.Until(t, 20*time.Second, "the claim waits", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.polls) == 1
	})
	policy.Rules = []job.Rule{{Match: "*", Concurrency: 2}}
	if err := p.store.SetNamespaces(t.Context(), map[string]job.Policy{"mail": policy}); err != nil {
		t.Fatal(err)
	}
	e.Refresh()
	if r := <-next; !strings.Contains(r.raw, `"data":"Mg=="`) {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}

func TestAPublishGivesItsJobsAttributes(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.do("POST", "/v1/mail/q?attribute.tenant=red&attribute.plan="+url.QueryEscape(`"a"/ü`), "[1,2]", asJSON)
	p.do("POST", "/v1/mail/q?attribute.tenant=red&shards=2", "x")
	r := p.do("POST", "/v1/mail/q/claim?count=4", "")
	var answer struct {
		Jobs []struct{ Attributes map[string]string }
	}
	if err := json.Unmarshal([]byte(r.raw), &answer); err != nil || len(answer.Jobs) != 4 {
		t.Fatalf("got %s", r.raw)
	}
	plain := "map[plan:\"a\"/ü tenant:red]"
	for i, want := range []string{plain, plain, "map[shard_index:0 shard_total:2 tenant:red]", "map[shard_index:1 shard_total:2 tenant:red]"} {
		if got := fmt.Sprint(answer.Jobs[i].Attributes); got != want {
			t.Errorf("job %d: got %s, want %s", i, got, want)
		}
	}
	many := ""
	for i := range 17 {
		many += fmt.Sprintf("&attribute.a%d=x", i)
	}
	for query, want := range map[string]string{
		"attribute.=x": "bad_parameter", "attribute.a%20b=x": "bad_parameter", "attribute." + strings.Repeat("x", 129) + "=": "bad_parameter",
		"attribute.tick=1": "bad_parameter", "attribute.sqs=1": "bad_parameter", "attribute.a=1&attribute.a=1": "bad_parameter",
		"attribute.a=%ff": "bad_parameter", many[1:]: "bad_parameter", "attribute.a=" + strings.Repeat("x", 4000): "", "attribute.%c3%bc=1": "bad_parameter",
	} {
		if r := p.do("POST", "/v1/mail/q?"+query, "x"); r.Error != want {
			t.Errorf("%.40s: got %d %s", query, r.status, r.raw)
		}
	}
	if r := p.do("POST", "/v1/mail/q?attribute.a=1", strings.Repeat("x", 32<<10)); r.Error != "entry_too_large" {
		t.Errorf("with its attributes it is too large: got %d %s", r.status, r.raw)
	}
}

func TestWeightsDrawTheOrderOfQueues(t *testing.T) {
	t.Parallel()
	first := map[string]int{}
	for range 6000 {
		queues, rejected := wanted("a*3,b,c*2,a")
		if rejected != nil || len(queues) != 3 {
			t.Fatalf("got %v, %v", queues, rejected)
		}
		first[queues[0]]++
		if slices.Sort(queues); fmt.Sprint(queues) != "[a b c]" {
			t.Fatalf("got %v", queues)
		}
	}
	// Each is off by 5 standard deviations at most.
	for queue, want := range map[string]int{"a": 3000, "b": 1000, "c": 2000} {
		if n := first[queue]; n < want-195 || n > want+195 {
			t.Errorf("%s was first %d times of 6,000, want %d", queue, n, want)
		}
	}
	if queues, _ := wanted("b,a"); fmt.Sprint(queues) != "[b a]" {
		t.Errorf("without weights: %v", queues)
	}
	p := served(t, nil, nil)
	p.do("POST", "/v1/mail/b", "x")
	if r := p.do("POST", "/v1/mail/a*1000,b*1/claim", ""); r.status != 200 || !strings.Contains(r.raw, `"queue":"b"`) {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	for _, queues := range []string{"a*0", "a*1001", "a*", "a*-1", "a*+1", "a*1*2", "*5", "a*1.5", "a*99999999999999999999"} {
		if r := p.do("POST", "/v1/mail/"+queues+"/claim", ""); r.status != 400 || r.Error != "bad_queue" {
			t.Errorf("%s: got %d %s", queues, r.status, r.raw)
		}
	}
}
