package job

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
)

func startPromoter(t *testing.T, s *Store) {
	t.Helper()
	p := NewPromoter(s)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
}

func TestManyDelayedJobsBecomeReady(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "embedded:", "redis": "redis://" + redistest.Shared(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, url, func(p *Policy) { p.Shards = 3 })
			for i := range 100 { // more queues than a call takes
				store1(t, s, fmt.Sprint("q", i), 20, 20*time.Millisecond, 0)
			}
			startPromoter(t, s)
			startPromoter(t, s)
			redistest.Until(t, most, "all are ready", func() bool { return ledgerOf(t, s).Ready == 2000 })
			if got, want := ledgerOf(t, s), (Ledger{Published: 2000, Ready: 2000}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// A delayed job is ready in its time, not at the promoter's next look, a second after the last.
func TestADelayedJobBringsTheNextLookForward(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	sh := s.Namespace("mail").shardAt(0)
	store1(t, s, "q", 1, time.Hour, 0)
	p := NewPromoter(s)
	var looks sync.WaitGroup
	p.round(t.Context(), &looks)
	looks.Wait()
	<-s.alarm.wake // the look has ended
	s.alarm.until.Store(math.MaxInt64)
	store1(t, s, "q", 1, 100*time.Millisecond, 0)
	if now, _ := s.backend.Now(); len(s.alarm.wake) != 1 || sh.look.Load() > now+600 {
		t.Errorf("the promoter was not woken, or looks at %d, now is %d", sh.look.Load(), now)
	}
	sleeps := p.round(t.Context(), &looks)
	looks.Wait()
	if sleeps > 600*time.Millisecond && ledgerOf(t, s).Ready == 0 {
		t.Errorf("it sleeps for %v", sleeps)
	}
}

// What other processes left is promoted in time after a step of Redis's clock, although no call
// of this process wakes the promoter.
func TestAnIdlePromoterNoticesThatTheClockOfRedisStepped(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		was     time.Duration // the old clock, from the new one
		noticed bool          // something else read the new one
	}{
		"forward":              {-time.Hour, false},
		"forward, and noticed": {-time.Hour, true},
		"back":                 {time.Hour, false},
		"back, and noticed":    {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			idle, gone := openAt(t, server.URL(), "sw", true, nil), openAt(t, server.URL(), "sw", true, nil)
			if err := idle.space.CheckOne(t.Context(), idle.Namespace("mail").Home); err != nil {
				t.Fatal(err)
			}
			was := time.Now().Add(row.was).UnixMilli()
			sh := idle.Namespace("mail").shardAt(0)
			sh.look.Store(was + promoteEvery)
			if !row.noticed {
				idle.backend.Clock().Observe(time.Now(), time.Now(), was)
			}
			store1(t, gone, "q", 1, time.Millisecond, 0)
			startPromoter(t, idle)
			redistest.Until(t, most, "the job is ready", func() bool {
				return server.Client().LLen(t.Context(), sh.ready("q")).Val() == 1
			})
		})
	}
}

// Jobs that cannot become ready do not hide others for ever.
func TestDueJobsOfABrokenQueueDoNotHideOthers(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	client, sh := redistest.SharedClient(t), s.Namespace("mail").shardAt(0)
	store1(t, s, "bad", 600, time.Millisecond, 0)
	store1(t, s, "good", 1, 30*time.Millisecond, 0)
	client.Set(t.Context(), sh.ready("bad"), "x", 0)
	startPromoter(t, s)
	redistest.Until(t, most, "the good job is ready", func() bool {
		return client.LLen(t.Context(), sh.ready("good")).Val() == 1
	})
	if n := client.ZCount(t.Context(), sh.delay, "-inf", "+inf").Val(); n != 600 {
		t.Errorf("%d jobs wait, want 600", n)
	}
}

// An idle promoter asks at most about once a second.
func TestAnIdlePromoterAsksRarely(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openAt(t, server.URL(), "sw", true, nil)
	publishOne(t, s, "q")
	var calls map[string]int
	var began time.Time
	c := server.Client()
	startPromoter(t, s)
	redistest.Until(t, most, "it has looked once", func() bool {
		began = time.Now()
		calls, _ = commandStats(t, c)
		return calls["zrange"] >= 3
	})
	redistest.Until(t, most, "it has looked thrice more", func() bool {
		now, _ := commandStats(t, c)
		return now["zrange"] >= calls["zrange"]+9
	})
	if took := time.Since(began); took < 1800*time.Millisecond {
		t.Errorf("three looks in %v", took)
	}
}

// A job that comes due while the promoter decides how long to sleep is not forgotten.
func TestWhatComesDueDuringARoundWakesThePromoter(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", nil)
	store1(t, s, "q", 1, time.Hour, 0) // the clock is known
	mail := s.Namespace("mail")
	sh := mail.shardAt(0)
	now, _ := s.backend.Now()
	sh.look.Store(now + 900)
	s.alarm.until.Store(1)
	p := NewPromoter(s)
	p.mu.Lock() // the round has looked at mail, and is held up
	ended := make(chan struct{})
	var looks sync.WaitGroup
	go func() { defer close(ended); p.round(t.Context(), &looks) }()
	redistest.Until(t, most, "the round begins", func() bool { return s.alarm.until.Load() != 1 })
	for range 1000 {
		runtime.Gosched()
	}
	s.comesDue(sh, now+5)
	p.mu.Unlock()
	<-ended
	looks.Wait()
	if until := s.alarm.until.Load(); len(s.alarm.wake) != 1 && until > now+5 {
		t.Errorf("the promoter sleeps until %d, and a job is due at %d", until, now+5)
	}
}

func TestANamespaceThatCannotBeCheckedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 3)
	s := openAt(t, servers.URL(), "sw", true, nil)
	redistest.Until(t, most, "the store can be used", func() bool { _, err := s.Check(t.Context()); return err == nil })
	here, name := servers.MasterOf("sw:{mail.0}:ledger"), ""
	for i := 0; name == "" || servers.MasterOf("sw:{"+name+".0}:ledger") == here; i++ {
		name = fmt.Sprint("absent", i)
	}
	away := servers.Masters[servers.MasterOf("sw:{"+name+".0}:ledger")]
	away.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { away.Signal(syscall.SIGCONT) })
	if err := s.swap(map[string]Policy{"mail": s.Namespace("mail").Policy, name: DefaultPolicy()}); err != nil {
		t.Fatal(err)
	}
	startPromoter(t, s)
	store1(t, s, "q", 1, time.Millisecond, 0)
	redistest.Until(t, most, "the job of another is ready", func() bool { return ledgerOf(t, s).Ready == 1 })
	if known, err := s.space.Known(s.Namespace(name).Home); known {
		t.Errorf("a namespace whose master is frozen was checked: %v", err)
	}
	away.Signal(syscall.SIGCONT)
	redistest.Until(t, most, "it is checked once it answers", func() bool {
		known, err := s.space.Known(s.Namespace(name).Home)
		return known && err == nil
	})
}

// What is long overdue in one shard does not keep the promoter from others of the server.
func TestALookEndsBeforeALongBacklogDoes(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	for range 5 {
		store1(t, s, "q", 1000, time.Millisecond, 0)
	}
	ns := s.Namespace("mail")
	sh := ns.shardAt(0)
	redistest.Until(t, most, "they are due", func() bool {
		now, err := s.backend.ReadTime(t.Context())
		return err == nil && now > sh.look.Load()
	})
	p := NewPromoter(s)
	p.look(t.Context(), []place{{ns, sh}})
	if got := ledgerOf(t, s); got.Ready != lookPages*promotePage || sh.look.Load() != 0 {
		t.Errorf("%d are ready, the next look is at %d", got.Ready, sh.look.Load())
	}
	startPromoter(t, s)
	redistest.Until(t, most, "all are ready", func() bool { return ledgerOf(t, s).Ready == 5000 })
}

// first are names of processes that come before all but one of four million others for shard 0.
var first = []string{"ghost2400097", "ghost8648795"}

// Of several processes two look at a shard every second. Every other one still promotes in time what it
// published itself.
func TestAProcessThatLeavesAShardToOthersPromotesItsOwnJobs(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	client, mail := redistest.SharedClient(t), s.Namespace("mail")
	store1(t, s, "q", 1, 0, 0) // the namespace is checked
	e := NewExpirer(s)         // says that this process lives
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	others := func() bool {
		at := float64(client.Time(t.Context()).Val().UnixMilli() + 3000)
		for _, name := range first {
			client.ZAdd(t.Context(), s.prefix+":{mail}:drainers", redis.Z{Score: at, Member: "p:" + name})
		}
		return mail.Home.Rest(0) > 0
	}
	redistest.Until(t, most, "two others come before it", others)
	startPromoter(t, s)
	sh := mail.shardAt(0)
	redistest.Until(t, most, "it leaves the shard to them", func() bool {
		now, _ := s.backend.Now()
		return others() && sh.look.Load() > now+2*promoteEvery
	})
	store1(t, s, "q", 1, 300*time.Millisecond, 0)
	redistest.Until(t, most, "its own job is ready", func() bool {
		_ = others()
		return client.LLen(t.Context(), sh.ready("q")).Val() == 2
	})
}
