package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

func TestARiskThatEndedIsToldForAMinute(t *testing.T) {
	t.Parallel()
	h := held{states: map[heldState]heldFinding{}}
	fails := Finding{Level: Risk, state: "sink crm", Namespace: "kart", What: "sink crm fails; 7 entries wait"}
	idle := Finding{Level: Notice, state: "sink crm", Namespace: "kart", What: "sink crm fails; nothing waits"}
	evicted := Finding{Level: Loss, Namespace: "kart", What: "3 entries were evicted"} // which its own notice holds
	const passed = "no data is being lost, but it was at risk within the last minute\nrisk kart: "
	for _, step := range []struct {
		at    time.Duration
		found []Finding
		gone  bool
		want  string
	}{
		{0, []Finding{fails}, false, atRisk + "\nrisk kart: sink crm fails; 7 entries wait"},
		{time.Second, []Finding{idle}, false, passed + "sink crm fails; nothing waits"},
		{59 * time.Second, nil, false, passed + "not now, but 59.0s ago: sink crm fails; 7 entries wait"},
		{59 * time.Second, nil, true, calm},
		{time.Minute, nil, false, calm},
		{time.Minute, []Finding{fails}, false, atRisk + "\nrisk kart: sink crm fails; 7 entries wait"},
		{90 * time.Second, []Finding{fails, evicted}, false, losing + "\nloss kart: 3 entries were evicted\nrisk kart: sink crm fails; 7 entries wait"},
		{149 * time.Second, nil, false, passed + "not now, but 59.0s ago: sink crm"},
	} {
		wantFound(t, step.at.String(), step.want, func(j *judge) {
			j.found = h.keep(step.found, judgedAt.Add(step.at), func(string) bool { return !step.gone })
		})
	}
}

// A state that nobody looked at is told after all: the server looks itself.
func TestTheServerHoldsWhatItFound(t *testing.T) {
	t.Parallel()
	mail, _ := job.NewNamespace("sw", "mail", job.DefaultPolicy())
	health, now := &fakeHealth{}, time.Now()
	push := pushing{{Namespace: "mail", Label: "http://crm", State: guard.Failing}}
	v := View{Store: &fakeStore{}, Health: health, Jobs: []JobStore{spacesOf{ns: mail}}, Push: []Pusher{push}}
	s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return v }}, zap.NewNop())
	s.observer.now = func() time.Time { return now }
	s.observer.follow(v.Store, s.observer.observed(v))
	for range 2 {
		s.observer.note(&s.observer.queues, "mail", reading{jobs: job.Ledger{Ready: 2}, at: now})
	}
	s.judge(v, "")
	push[0].State = guard.Open
	now = now.Add(5 * time.Second)
	answer := func() string { return ask(s, "GET", "/api/v1/findings?namespace=mail", "127.0.0.1:8081").Body.String() }
	if got := answer(); !strings.Contains(got, `"what":"not now, but 5.0s ago: sink http://crm fails; 2 jobs of the namespace wait"`) {
		t.Errorf("got %s", got)
	}
	health.err = errors.New("refused")
	if got := answer(); !strings.Contains(got, `"what":"the store is not ready`) || strings.Contains(got, "crm") {
		t.Errorf("while nothing is known of it: %s", got)
	}
	health.err, now = nil, now.Add(5*time.Second)
	if got := answer(); !strings.Contains(got, `"what":"not now, but 5.0s ago: the store is not ready`) || !strings.Contains(got, "10.0s ago: sink") {
		t.Errorf("after the store came back: %s", got)
	}
	if w := ask(s, "GET", "/readyz", "127.0.0.1:8081"); w.Code != 200 {
		t.Errorf("readyz: got %d %s", w.Code, w.Body)
	}
}

func TestAPausedQueueIsFoundWhoeverPausedIt(t *testing.T) {
	t.Parallel()
	q := newQueued(t)
	q.publish("out", 0, "1", "2")
	answer := func() string { return send(q.Server, "GET", "/api/v1/findings", "operator", "").Body.String() }
	q.observer.read(t.Context())
	q.observer.readAges(t.Context())
	if err := q.store.Pause(t.Context(), q.ns, "out", partition.Pause{By: "eve", Reason: "drill"}); err != nil { // by another process
		t.Fatal(err)
	}
	q.observer.readAges(t.Context())
	for _, want := range []string{`"level":"risk","namespace":"mail","queue":"out","what":"queue out is paused (by eve, `, `): drill, and 2 jobs wait"`, `"since_ms":`, `"command":"spillway resume mail out"`} {
		if got := answer(); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	q.ask("POST", "/queues/out/resume", `{}`, &PauseState{})
	if got := answer(); strings.Contains(got, "paused") {
		t.Errorf("after a resume by this process: %s", got)
	}
	q.ask("POST", "/queues/in/pause", `{}`, &PauseState{})
	if got := answer(); !strings.Contains(got, `"level":"notice","namespace":"mail","queue":"in","what":"queue in is paused (by `) {
		t.Errorf("after a pause by this process: %s", got)
	}
}
