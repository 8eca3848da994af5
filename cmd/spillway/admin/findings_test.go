package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/job"
)

var judgedAt = time.UnixMilli(1_800_000_000_000)

func msAgo(d time.Duration) *int64 { at := judgedAt.Add(-d).UnixMilli(); return &at }

// ended are n endings that began a while ago.
func ended(n int64, began, last time.Duration) drops.Ending {
	return drops.Ending{Since: judgedAt.Add(-began), Last: judgedAt.Add(-last), N: n}
}

// found are the headline and the findings with their levels; a judge of no store finds what judge does.
func found(judged func(*judge)) string {
	j := judge{now: judgedAt}
	judged(&j)
	all := conclude(judgedAt.UnixMilli(), j.found)
	text := all.Headline
	for _, f := range all.Findings {
		text += fmt.Sprintf("\n%s %s", f.Level, f.Text())
		if f.Partition != "" || f.Queue != "" {
			text += " @" + f.Partition + f.Queue
		}
	}
	return text
}

// What is found of a namespace, by its headline.
const calm, atRisk, losing = "no data is being lost", "no data is being lost, but it is at risk", "data is being lost or rejected"

// wantFound expects a part of what is found; calm is all of it.
func wantFound(t *testing.T, name, want string, judged func(*judge)) {
	t.Helper()
	got := found(judged)
	if got != want && (want == calm || !strings.Contains(got, want)) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestBuffersAreJudgedByTheirFigures(t *testing.T) {
	t.Parallel()
	crm := Sink{Label: "http://crm", State: "failing", FailingSinceMS: msAgo(3 * time.Minute), LastError: "refused"}
	ends := func(outcome string, e drops.Ending) func(*NamespaceOverview, *evidence) {
		return func(_ *NamespaceOverview, ev *evidence) { ev.ends = map[string]drops.Ending{outcome: e} }
	}
	for name, tt := range map[string]struct {
		change func(*NamespaceOverview, *evidence)
		want   string
	}{
		"all is well": {func(*NamespaceOverview, *evidence) {}, calm},
		"entries are evicted": {func(n *NamespaceOverview, e *evidence) {
			ends("evicted", ended(812, 190*time.Second, time.Second))(n, e)
			n.Rates = map[string]float32{"evicted": 12.04}
			e.makers = map[string]Maker{"evicted": {Partition: "flood", Share: 0.94}, "expired": {Partition: "other", Share: 1}}
		}, losing + "\nloss kart: 812 entries were evicted within 3m09s, 12.0/s now; 94% in partition flood; partitions are full, and each keeps its newest; " + entriesEnd[2].do + ": spillway ls kart --sort evicted @flood"},
		"in one flood": {func(n *NamespaceOverview, e *evidence) {
			ends("evicted", ended(3, time.Second, time.Second))(n, e)
			e.makers = map[string]Maker{"evicted": {Partition: "flood", Share: 1, Cause: "5 entries came at once, and the partition keeps 2"}}
			n.Sinks = []Sink{crm}
		}, "5 entries came at once, and the partition keeps 2; "},
		"a moment ago": {ends("lost", ended(50, 13*time.Second, 13*time.Second)),
			"no data is being lost now, but it was within the last minute\nloss kart: not now: 50 entries were lost, the last 13.0s ago; something other"},
		"their sink fails": {func(n *NamespaceOverview, e *evidence) {
			ends("expired", ended(1, 0, 0))(n, e)
			n.Sinks = []Sink{crm}
		}, losing + "\nloss kart: 1 entry expired; older than max_age before a sink took them; sink http://crm fails for 3m: refused; " + entriesEnd[1].do +
			": spillway ls kart --sort age\nrisk kart: sink http://crm fails for 3m: refused; 7 entries wait; repair its target: Spillway goes on by itself"},
		"lost entries have nothing to do with it": {func(n *NamespaceOverview, e *evidence) {
			ends("lost", ended(1, 0, 0))(n, e)
			n.Sinks = []Sink{crm}
		}, "loss kart: 1 entry was lost; something other than Spillway removed them from Redis; check that"},
		"dead letters": {func(n *NamespaceOverview, e *evidence) {
			ends("dead", ended(2, time.Minute, 0))(n, e)
			n.Sinks = []Sink{{Label: "http://old", State: "open", LastError: "timeout", LastErrorAtMS: msAgo(time.Hour)}, {Label: "http://crm", State: "open", LastError: "422", LastErrorAtMS: msAgo(time.Minute)}}
		}, atRisk + "\nrisk kart: 2 entries became dead letters within 1m; the sink rejects them for good; dead letters are kept; lastly: 422; repair"},
		"dead letters are dropped": {ends("dead_letters_evicted", ended(2, 0, 0)), losing + "\nloss kart: 2 dead letters were dropped; there are more than max_dead"},
		"a few are rejected": {func(n *NamespaceOverview, e *evidence) {
			e.rejected = map[string]drops.Ending{"stale": ended(1, 20*time.Second, 20*time.Second), "too_large": ended(2, 10*time.Second, 0)}
			n.Rates = map[string]float32{"accepted": 1000, "rejected": 2}
			e.makers = map[string]Maker{"too_large": {Partition: "big", Share: 1}}
		}, calm + "\nnotice kart: 3 entries were rejected, and their senders told within 20.0s, 2.0/s now; 100% in partition big; 2 too_large, 1 stale: spillway drops kart @big"},
		"many are": {func(n *NamespaceOverview, e *evidence) {
			e.rejected = map[string]drops.Ending{"stale": ended(9, 0, 0)}
			n.Rates = map[string]float32{"accepted": 100, "rejected": 2}
		}, atRisk + "\nrisk kart: 9 entries"},
		"nearly too old": {func(n *NamespaceOverview, e *evidence) { e.oldestAge = 42 * time.Second },
			atRisk + "\nrisk kart: 7 entries wait, the oldest for 42.0s of 1m; see whether the sink keeps up: spillway ls kart --sort age"},
		"in a partition": {func(n *NamespaceOverview, e *evidence) { e.oldestAge, e.oldestIn = 42*time.Second, "flood" },
			"risk kart: 7 entries wait, the oldest for 42.0s of 1m in partition flood; see whether the sink keeps up: spillway ls kart --sort age @flood"},
		"old enough":   {func(n *NamespaceOverview, e *evidence) { e.oldestAge = 41 * time.Second }, calm},
		"none is left": {func(n *NamespaceOverview, e *evidence) { e.oldestAge, n.Buffered = time.Hour, 0 }, calm},
		"paused": {func(n *NamespaceOverview, e *evidence) {
			n.Paused = &Pause{SinceMS: *msAgo(time.Hour), By: "bob", Reason: "new certificate"}
		}, atRisk + "\nrisk kart: delivery is paused (by bob, 1h ago): new certificate, and 7 entries wait: spillway resume kart"},
		"paused, and empty": {func(n *NamespaceOverview, e *evidence) { n.Paused, n.Buffered = &Pause{By: "bob"}, 0 }, calm + "\nnotice kart: delivery is paused"},
		"paused in part":    {func(n *NamespaceOverview, e *evidence) { n.PausedPartitions = 2 }, calm + "\nnotice kart: 2 partitions are paused: spillway ls kart --paused"},
		"nothing waits for a sink": {func(n *NamespaceOverview, e *evidence) { n.Sinks, n.Buffered = []Sink{crm}, 0 },
			calm + "\nnotice kart: sink http://crm fails for 3m: refused; nothing waits for it"},
		"a sink failed once": {func(n *NamespaceOverview, e *evidence) {
			n.Sinks = []Sink{{Label: "http://crm", State: "failing", FailingSinceMS: msAgo(100 * time.Millisecond)}}
		}, calm},
		"nobody drains": {func(n *NamespaceOverview, e *evidence) {
			n.Rates, n.Overdue, n.OverdueMS = map[string]float32{"delivered": 0}, 31*time.Second, 31_000
		}, atRisk + "\nrisk kart: 7 entries wait, due for 31.0s, and none is delivered; see that a process with the role drain"},
		"its Redis is away":    {func(n *NamespaceOverview, e *evidence) { e.late, n.ReadAtMS = 16*time.Second, *msAgo(40 * time.Second) }, losing + "\nloss kart: its Redis has not answered for 40.0s: what"},
		"its Redis never came": {func(n *NamespaceOverview, e *evidence) { e.late, n.ReadAtMS = time.Hour, 0 }, calm + "\nnotice kart: it was not read yet: it is new"},
		"its account can wait": {func(n *NamespaceOverview, e *evidence) { e.late = 15 * time.Second }, calm},
	} {
		n := NamespaceOverview{Buffered: 7, MaxAgeMS: 60_000, ReadAtMS: *msAgo(time.Second)}
		n.Namespace = "kart"
		var e evidence
		tt.change(&n, &e)
		wantFound(t, name, tt.want, func(j *judge) { j.buffer(n, e) })
	}
}

func TestQueuesAreJudgedByTheirFigures(t *testing.T) {
	t.Parallel()
	three, none := int64(3), int64(0)
	crm := Sink{Label: "http://crm", State: "tripped", FailingSinceMS: msAgo(3 * time.Minute), Queue: "out", Waiting: &three}
	died := func(e *evidence, queue string) {
		e.ends, e.dying = map[string]drops.Ending{"died": ended(5, time.Minute, 0)}, queue
		e.sinkOf = func(queue string) *Sink {
			if queue == "out" {
				return &crm
			}
			return nil
		}
	}
	paused := func(queues int, ready int64) (list []pausedQueue) {
		for i := range queues {
			list = append(list, pausedQueue{job.PausedQueue{Queue: fmt.Sprint("q", i), Pause: partition.Pause{Since: judgedAt.Add(-time.Hour), By: "bob", Reason: "drill"}}, ready})
		}
		return list
	}
	for name, tt := range map[string]struct {
		change func(*QueueOverview, *evidence)
		want   string
	}{
		"all is well": {func(*QueueOverview, *evidence) {}, calm},
		"lost and expired": {func(q *QueueOverview, e *evidence) {
			e.ends = map[string]drops.Ending{"lost": ended(1, 0, 0), "expired": ended(2, 0, 0)}
		}, losing + "\nloss mail: 2 jobs expired; nobody acked them within their ttl; see whether workers claim them, and keep up: spillway jobs ls mail\nloss mail: 1 job was lost; something other"},
		"dead letters of a queue that is pushed": {func(q *QueueOverview, e *evidence) { died(e, "out") },
			atRisk + "\nrisk mail: 5 jobs died within 1m; most in queue out; their tries are used up, or a worker gave them up; dead letters are kept; sink http://crm fails for 3m; see why, repair it, then respawn them: spillway jobs dead mail out --by cause @out"},
		"dead letters of another queue": {func(q *QueueOverview, e *evidence) { died(e, "in"); q.Sinks = []Sink{crm} },
			"\nrisk mail: 5 jobs died within 1m; most in queue in; their tries are used up, or a worker gave them up; dead letters are kept; see why, repair it, then respawn them: spillway jobs dead mail in --by cause @in"},
		"a sink fails": {func(q *QueueOverview, e *evidence) { q.Sinks = []Sink{crm} },
			atRisk + "\nrisk mail: sink http://crm fails for 3m; 3 jobs wait for it; repair its target: Spillway goes on by itself @out"},
		"and nothing waits for it":  {func(q *QueueOverview, e *evidence) { q.Sinks = []Sink{crm}; q.Sinks[0].Waiting = &none }, calm + "\nnotice mail: sink http://crm"},
		"and it was not counted":    {func(q *QueueOverview, e *evidence) { q.Sinks = []Sink{crm}; q.Sinks[0].Waiting = nil }, atRisk + "\nrisk mail: sink http://crm fails for 3m; 2 jobs of the namespace wait; "},
		"it is nearly full":         {func(q *QueueOverview, e *evidence) { q.Jobs, q.Largest = 80, &LargestQueue{"bulk", 70} }, atRisk + "\nrisk mail: it holds 80 of 100 jobs: publishes beyond that are rejected; 70 are in queue bulk; see whether workers keep up, then raise max_jobs: spillway jobs ls mail @bulk"},
		"it is not":                 {func(q *QueueOverview, e *evidence) { q.Jobs = 79 }, calm},
		"a schedule is overdue":     {func(q *QueueOverview, e *evidence) { q.Schedules = &job.ScheduleTotals{Overdue: 1} }, atRisk + "\nrisk mail: 1 schedule is overdue by more than 10 s"},
		"services are gone":         {func(q *QueueOverview, e *evidence) { q.Schedules = &job.ScheduleTotals{Gone: 2} }, atRisk + "\nrisk mail: 2 services are gone, and their schedules do not fire; start them, or delete what shall not come back: spillway schedules owners mail"},
		"a follow-up waits":         {func(q *QueueOverview, e *evidence) { q.Outbox = OutboxState{7, 61_000} }, atRisk + "\nrisk mail: 7 follow-ups wait for 1m01s; the queue that should hear is full"},
		"a follow-up waits shortly": {func(q *QueueOverview, e *evidence) { q.Outbox = OutboxState{7, 59_999} }, calm},
		"a queue is paused": {func(q *QueueOverview, e *evidence) { e.paused = paused(1, 3) },
			atRisk + "\nrisk mail: queue q0 is paused (by bob, 1h ago): drill, and 3 jobs wait: spillway resume mail q0 @q0"},
		"and nothing waits": {func(q *QueueOverview, e *evidence) { e.paused = paused(1, 0) },
			calm + "\nnotice mail: queue q0 is paused (by bob, 1h ago): drill: spillway resume mail q0 @q0"},
		"as are many": {func(q *QueueOverview, e *evidence) { e.paused = paused(7, 0) },
			"spillway resume mail q4 @q4\nnotice mail: 2 more queues are paused: spillway jobs ls mail"},
		"its Redis is away": {func(q *QueueOverview, e *evidence) { e.late = 16 * time.Second; q.Jobs = 99 }, losing + "\nloss mail: its Redis has not answered for 1.0s: what clients send is rejected"},
	} {
		q := QueueOverview{Namespace: "mail", Jobs: 2, MaxJobs: 100, ReadAtMS: *msAgo(time.Second), Ledger: job.Ledger{Ready: 1, Delayed: 1}}
		var e evidence
		tt.change(&q, &e)
		wantFound(t, name, tt.want, func(j *judge) { j.queue(q, e) })
	}
}

// The queue whose dead letters rose is named, not the one that has most of them.
func TestTheQueueWhoseJobsDieIsNamed(t *testing.T) {
	t.Parallel()
	mail, _ := job.NewNamespace("sw", "mail", job.DefaultPolicy())
	now := time.Now()
	v := View{Store: &fakeStore{}, Health: &fakeHealth{}, Jobs: []JobStore{spacesOf{ns: mail}},
		Push: []Pusher{pushing{{Namespace: "mail", Label: "http://crm", Sink: "crm", State: guard.Failing}}}}
	s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return v }}, zap.NewNop())
	b := s.observer
	b.follow(v.Store, b.observed(v))
	counted := func(at time.Time, old, crm int64) {
		b.keep(tableKey{"mail", ""}, &queueTable{at: at, total: 2, rows: []queueCounts{{name: "old", Counts: job.Counts{Dead: old}}, {name: "crm", Counts: job.Counts{Dead: crm}}}})
	}
	counted(now.Add(-time.Minute), 900, 0)
	for i, died := range []int64{900, 905} {
		l := job.Ledger{Died: died}
		b.note(&b.queues, "mail", reading{jobs: l, totals: l.Totals(), at: now.Add(time.Duration(i-1) * time.Second)})
	}
	answer := func() string { return ask(s, "GET", "/api/v1/findings?namespace=mail", "127.0.0.1:8081").Body.String() }
	if got := answer(); !strings.Contains(got, `"what":"5 jobs died`) || strings.Contains(got, "most in") || strings.Contains(got, "kept; sink") {
		t.Errorf("before they were counted: %s", got)
	}
	counted(now.Add(time.Second), 900, 5)
	if got := answer(); !strings.Contains(got, "most in queue crm") || !strings.Contains(got, `dead letters are kept; sink http://crm fails"`) || !strings.HasPrefix(got, `{"now_ms":`) {
		t.Errorf("got %s", got)
	}
}

func TestTheFindingsAreOfTheStoreAndOfWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	health := &fakeHealth{warns: []string{"r:1: its append-only file is off"}}
	store := &fakeStore{overview: func() (partition.Overview, error) { return partition.Overview{}, nil }}
	v := View{Store: store, Health: health}
	s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return v }}, zap.NewNop())
	s.observer.read(t.Context())
	answer := func(query string) string {
		return ask(s, "GET", "/api/v1/findings"+query, "127.0.0.1:8081").Body.String()
	}
	if got := answer(""); !strings.Contains(got, `"level":"notice","headline":"no data is being lost","findings":[{"level":"notice","what":"r:1: its append-only file is off"}]`) {
		t.Errorf("a warning: %s", got)
	}
	s.observer.buffers.drops.Note("default", map[string]int64{}, map[string]int64{"lost": 7}, now)
	if got := answer("?namespace=default"); !strings.Contains(got, `{"level":"loss","namespace":"default","what":"7 entries were lost"`) {
		t.Errorf("a loss: %s", got)
	}
	if got := answer("?namespace=nowhere"); !strings.Contains(got, "no_such_namespace") {
		t.Errorf("an unknown namespace: %s", got)
	}
	if got := answer("?audit=2"); !strings.Contains(got, "audit is 1 or 0") {
		t.Errorf("a wrong flag: %s", got)
	}
	health.warns = []string{"r:1: its memory is full"}
	if got := answer(""); !strings.Contains(got, `"what":"the store's memory is full`) {
		t.Errorf("a full store: %s", got)
	}
	health.err = fmt.Errorf("connection refused")
	if got := answer(""); !strings.Contains(got, `"findings":[{"level":"loss","what":"the store is not ready: what clients send is rejected, and nothing is delivered","why":"connection refused"`) || strings.Contains(got, "default") {
		t.Errorf("no store: %s", got)
	}
}

// Entries that move while they are counted are none that are missing.
func TestAnAuditBelievesAResidualThatStays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		residuals []int64
		want      string
	}{{[]int64{0}, `"findings":[]`}, {[]int64{3, -1}, `"findings":[]`}, {[]int64{3, 3, 3}, `"what":"the ledger and a count differ by 3"`}} {
		left := slices.Clone(tt.residuals)
		store := &auditedStore{next: func() (n int64) { n, left = left[0], left[1:]; return n }}
		s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return View{Store: store, Health: &fakeHealth{}} }}, zap.NewNop())
		s.observer.read(t.Context())
		if got := ask(s, "GET", "/api/v1/findings?audit=1", "127.0.0.1:8081").Body.String(); !strings.Contains(got, tt.want) || len(left) > 0 {
			t.Errorf("%v: %s", tt.residuals, got)
		}
	}
}

type auditedStore struct {
	fakeStore
	next func() int64
}

func (s *auditedStore) Audit(context.Context, *partition.Namespace) (int64, error) {
	return s.next(), nil
}

// A reading that rests is none that failed: it is late from when somebody looks.
func TestALedgerThatRestsIsNotLate(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return judgedAt.Add(-d) }
	for name, tt := range map[string]struct {
		f    figures
		w    watched
		want time.Duration
	}{
		"it was read just now":                 {figures{reading: reading{at: ago(0)}, changed: ago(time.Hour)}, watched{ago(time.Hour), ago(0)}, 0},
		"it rests, and somebody looks":         {figures{reading: reading{at: ago(20 * time.Second)}, changed: ago(time.Hour)}, watched{ago(0), ago(0)}, 0},
		"it rested for too long":               {figures{reading: reading{at: ago(50 * time.Second)}, changed: ago(time.Hour)}, watched{ago(0), ago(0)}, 20 * time.Second},
		"somebody has looked for a while":      {figures{reading: reading{at: ago(20 * time.Second)}, changed: ago(time.Hour)}, watched{ago(16 * time.Second), ago(0)}, 16 * time.Second},
		"it changed, so it should be read now": {figures{reading: reading{at: ago(20 * time.Second)}, changed: ago(20 * time.Second)}, watched{ago(0), ago(0)}, 20 * time.Second},
	} {
		if got := tt.f.late(judgedAt, time.Hour, tt.w); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

func TestAlertsAndFindingsHaveTheSameThresholds(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile("../../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for alert, want := range map[string]string{
		"SpillwayEntriesNearMaxAge":  fmt.Sprint(nearMaxAge),
		"SpillwayEntriesRejected":    fmt.Sprint(rejectedShare),
		"SpillwayBacklogNotDraining": fmt.Sprint(overdueFor.Seconds()),
	} {
		_, rule, _ := strings.Cut(string(alerts), "alert: "+alert+"\n")
		rule, _, _ = strings.Cut(rule, "- alert:")
		rule, _, _ = strings.Cut(rule, "labels: {severity")
		numbers := map[string]bool{}
		for _, m := range regexp.MustCompile(`> ([\d.]+)`).FindAllStringSubmatch(rule, -1) {
			numbers[m[1]] = true
		}
		if !numbers[want] {
			t.Errorf("%s compares with %v, and a finding with %s", alert, slices.Sorted(maps.Keys(numbers)), want)
		}
	}
}

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
	health.err = errors.New("no answer")
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
	q.ask("POST", "/resume", `{"part":"out"}`, &PauseState{})
	if got := answer(); strings.Contains(got, "paused") {
		t.Errorf("after a resume by this process: %s", got)
	}
	q.ask("POST", "/pause", `{"part":"in"}`, &PauseState{})
	if got := answer(); !strings.Contains(got, `"level":"notice","namespace":"mail","queue":"in","what":"queue in is paused (by `) {
		t.Errorf("after a pause by this process: %s", got)
	}
}
