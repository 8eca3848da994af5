package jobs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

const (
	manySchedules   = 36
	firingProcesses = 3 // processes
)

// A scheduleLoad is three processes that fire schedules of 1 and 2 s, and their users, who put,
// pause, resume and trigger them all the time. Nobody claims until the end, so what is in the
// store then is all that its schedules have published.
type scheduleLoad struct {
	t      testing.TB
	procs  []*process
	queues []string         // one on each shard
	first  map[string]int64 // the first tick of each schedule, Unix ms, by its path

	ended     chan struct{}
	users     sync.WaitGroup
	triggered atomic.Int64 // jobs that users were told of
	failed    atomic.Int64 // requests that were answered 503
}

func (l *scheduleLoad) queue(i int) string           { return l.queues[i%len(l.queues)] }
func (l *scheduleLoad) path(i int) string            { return fmt.Sprint(l.queue(i), "/schedules/s", i) }
func (l *scheduleLoad) every(i int) (ms int64)       { return int64(1000 * (1 + i/2%2)) }
func (l *scheduleLoad) ns(p *process) *job.Namespace { return p.store.Namespace("mail") }

func startScheduleLoad(t *testing.T, url string, shards int) *scheduleLoad {
	t.Helper()
	l := &scheduleLoad{t: t, first: map[string]int64{}, ended: make(chan struct{})}
	for range firingProcesses {
		l.procs = append(l.procs, startFiring(t, url, func(p *job.Policy) { p.Shards = shards }))
	}
	for i := 0; len(l.queues) < shards; i++ {
		if q := fmt.Sprint("q", i); l.ns(l.procs[0]).ScheduleShard(q) == len(l.queues) {
			l.queues = append(l.queues, q)
		}
	}
	for i := range manySchedules {
		r := l.procs[0].expect(201, "created", "PUT", l.path(i), l.spec(i, 1))
		var answer struct{ Next []time.Time }
		if err := json.Unmarshal([]byte(r.raw), &answer); err != nil {
			t.Fatal(err)
		}
		l.first[l.path(i)] = answer.Next[0].UnixMilli()
	}
	for w, p := range l.procs {
		l.users.Go(func() { l.use(w, p) })
	}
	return l
}

// spec is a specification, whose times stay the same.
func (l *scheduleLoad) spec(i, tries int) string {
	more := [4]string{"", `,"jitter":"300ms"`, `,"overlap":"skip"`, `,"overlap":"buffer"`}[i/4%4]
	return fmt.Sprintf(`{"every":"%dms","data":%d,"tries":%d%s}`, l.every(i), i, tries, more)
}

func (l *scheduleLoad) use(w int, p *process) {
	r := rand.New(rand.NewPCG(uint64(w), 22))
	every := 5 * time.Millisecond
	if testing.Short() {
		every = 20 * time.Millisecond
	}
	pause := time.NewTicker(every)
	defer pause.Stop()
	for n := 0; ; n++ {
		select {
		case <-l.ended:
			return
		case <-pause.C:
		}
		i := r.IntN(manySchedules)
		switch path := l.path(i); r.IntN(8) {
		case 0:
			l.ask(p, "PUT", path, l.spec(i, 1+r.IntN(9)))
		case 1:
			l.ask(p, "POST", path+"/pause", "")
		case 2, 3:
			l.ask(p, "POST", path+"/resume", "")
		case 4: // until it is known what became of it
			key := fmt.Sprintf("Idempotency-Key: %d-%d", w, n)
			eventually(l.t, "a trigger is answered", func() bool {
				status := l.ask(p, "POST", path+"/trigger", "", key)
				if status == 200 {
					l.triggered.Add(1)
				}
				return status != 503
			})
		}
	}
}

func (l *scheduleLoad) ask(p *process, method, path, body string, headers ...string) (status int) {
	r := p.do(method, "/v1/mail/"+path, body, headers...)
	switch r.status {
	case 200, 409:
	case 503:
		l.failed.Add(1)
	default:
		l.t.Errorf("%s %s: %d %s", method, path, r.status, r.raw)
	}
	return r.status
}

// state is that of a schedule; ok is false while the store is away.
func (l *scheduleLoad) state(i int) (s schedule.State, ok bool) {
	p := l.procs[i%len(l.procs)]
	found, err := p.store.GetSchedule(l.t.Context(), l.ns(p), l.queue(i), fmt.Sprint("s", i))
	if err != nil {
		return s, false
	}
	return schedule.ReadState(found.State)
}

// ticks are those that are over, of all schedules, and which of them fired, by queue; ok is false
// while the store is away.
func (l *scheduleLoad) ticks() (sum schedule.Ticks, fired map[string]int64, ok bool) {
	p, fired := l.procs[0], map[string]int64{}
	for _, q := range l.queues {
		list, _, err := p.store.Schedules(l.t.Context(), l.ns(p), q, "", manySchedules)
		if err != nil {
			return sum, nil, false
		}
		for _, found := range list {
			s, ok := schedule.ReadState(found.State)
			if !ok {
				return sum, nil, false
			}
			fired[q] += s.Ticks.Fired
			sum = plus(sum, s.Ticks)
		}
	}
	return sum, fired, true
}

func plus(a, b schedule.Ticks) schedule.Ticks {
	a.Fired, a.Missed, a.Overlapped = a.Fired+b.Fired, a.Missed+b.Missed, a.Overlapped+b.Overlapped
	a.Paused, a.Superseded = a.Paused+b.Paused, a.Superseded+b.Superseded
	return a
}

// fires waits until the schedules have fired 24 more ticks, with -short 12, as many in each queue.
func (l *scheduleLoad) fires(when string) {
	l.t.Helper()
	more := 24
	if testing.Short() {
		more = 12
	}
	var before map[string]int64
	eventually(l.t, "schedules fire "+when, func() bool {
		_, now, ok := l.ticks()
		if !ok {
			return false
		}
		if before == nil {
			before = now
		}
		for _, q := range l.queues {
			if now[q] < before[q]+int64(more/len(l.queues)) {
				return false
			}
		}
		return true
	})
}

// account ends it, and holds what is in the store against what schedules and ledger say. A
// failover may take back what it had not replicated, of a shard schedules and jobs together: so
// that is exact, too. Only of the triggers that users were told of it may miss some: forgets.
func (l *scheduleLoad) account(forgets bool) {
	l.t.Helper()
	eventually(l.t, "enough has happened to prove something", func() bool {
		sum, _, ok := l.ticks()
		return ok && sum.Fired > 0 && sum.Overlapped > 0 && sum.Paused > 0 && l.triggered.Load() > 0
	})
	close(l.ended)
	l.users.Wait()
	for i := range manySchedules {
		eventually(l.t, "a schedule is paused", func() bool { return l.ask(l.procs[i%3], "POST", l.path(i)+"/pause", "") == 200 })
	}
	p := l.procs[1]
	var ledger job.Ledger
	eventually(l.t, "the ledger is read", func() (ok bool) {
		var err error
		ledger, err = p.store.Ledger(l.t.Context(), l.ns(p))
		return err == nil
	})
	ids, ticks, triggered := map[string]bool{}, map[string]int64{}, int64(0)
	seen := map[string]string{}
	eventually(l.t, "each job is claimed", func() bool {
		for _, q := range l.queues {
			for _, j := range p.do("POST", "/v1/mail/"+q+"/claim?count=1000&ttr=1h", "").Jobs {
				if ids[j.ID] {
					l.t.Errorf("%s was claimed twice", j.ID)
				}
				ids[j.ID] = true
				path := q + "/schedules/" + j.Attributes["schedule"]
				tick, err := time.Parse(time.RFC3339, j.Attributes["tick"])
				if key := path + " " + j.Attributes["tick"]; j.Attributes["cause"] == "triggered" {
					triggered++
				} else if err != nil || seen[key] != "" || tick.UnixMilli() > j.Published {
					l.t.Errorf("%s: %s and %s, published %d: %v", key, seen[key], j.ID, j.Published, err)
				} else {
					seen[key] = j.ID
					ticks[path]++
				}
			}
		}
		return int64(len(ids)) >= ledger.Published
	})
	var sum schedule.Ticks
	for i := range manySchedules {
		s, ok := l.state(i)
		if !ok {
			l.t.Fatalf("%s: not read", l.path(i))
		}
		if want := (s.Next - l.first[l.path(i)]) / l.every(i); s.Ticks.Total() != want || s.Ticks.Fired != ticks[l.path(i)] {
			l.t.Errorf("%s: %d ticks are over, and the store has jobs of %d: %+v", l.path(i), want, ticks[l.path(i)], s.Ticks)
		}
		sum = plus(sum, s.Ticks)
	}
	l.t.Logf("%+v; %d triggered of %d; %d requests failed", sum, triggered, l.triggered.Load(), l.failed.Load())
	if sum.Fired == 0 || sum.Overlapped == 0 || sum.Paused == 0 || triggered == 0 {
		l.t.Error("too little happened: this proves nothing")
	}
	if told := l.triggered.Load(); triggered > told || !forgets && triggered < told {
		l.t.Errorf("%d jobs were triggered, users were told of %d", triggered, told)
	}
	residual, err := p.store.Audit(l.t.Context(), l.ns(p))
	if err != nil || residual != 0 || ledger.Ready != ledger.Published || int64(len(ids)) != ledger.Published {
		l.t.Errorf("residual %d, %v, %d jobs: %+v", residual, err, len(ids), ledger)
	}
}

func TestSeveralProcessesFireEachTickOnce(t *testing.T) {
	t.Parallel()
	l := startScheduleLoad(t, redistest.Start(t).URL(), 2)
	l.fires("at first")
	if !testing.Short() {
		l.fires("again")
		l.fires("and again")
	}
	l.account(false)
}

// replicated waits until a replica has all that its master has now.
func replicated(t *testing.T, master, replica *redistest.Server) {
	t.Helper()
	offset := func(s *redistest.Server, of string) (n int64) {
		n, _ = strconv.ParseInt(s.Client().InfoMap(t.Context(), "replication").Item("Replication", of), 10, 64)
		return n
	}
	want := offset(master, "master_repl_offset")
	eventually(t, "the schedules are replicated", func() bool { return offset(replica, "slave_repl_offset") >= want })
}

func TestSchedulesSurviveASentinelFailover(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	l := startScheduleLoad(t, servers.URL(), 2)
	l.fires("before")
	replicated(t, servers.Primary, servers.Replica)
	servers.Failover(t)
	l.fires("after the failover")
	if l.failed.Load() == 0 {
		t.Error("nothing failed: this proves nothing")
	}
	l.account(true)
}

func TestSchedulesSurviveAClusterFailover(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	l := startScheduleLoad(t, servers.URL(), 6)
	l.fires("before")
	failing := servers.MasterOf("sw:{mail.0}:ledger")
	replicated(t, servers.Masters[failing], servers.Replicas[failing])
	servers.Failover(t, "sw:{mail.0}:ledger")
	l.fires("after the failover")
	if l.failed.Load() == 0 {
		t.Error("nothing failed: this proves nothing")
	}
	l.account(true)
}

// The slot of a shard moves to another master, and back, while its schedules fire and are put:
// nothing is lost.
func TestSchedulesFireWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 2)
	l := startScheduleLoad(t, servers.URL(), 2)
	from := servers.MasterOf("sw:{mail.0}:ledger")
	l.fires("before it moves")
	servers.MoveSlot(t, "sw:{mail.0}:ledger", from, 1-from)
	l.fires("on the other master")
	servers.MoveSlot(t, "sw:{mail.0}:ledger", 1-from, from)
	l.fires("where it was before")
	l.account(false)
}
