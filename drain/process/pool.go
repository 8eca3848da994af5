package process

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// PoolConfig is how a Pool works. A limit of 0 is none.
type PoolConfig struct {
	// Run starts a child in the slot, and returns when it has ended. It is called again and again
	// until the slot is Leaving. An error is a crash: the next call waits for 1 s, and after more of
	// them in a row longer, up to a minute.
	Run func(*Slot) error
	// Memory is that of a child, in bytes. One with more is due, one with twice as much is ended.
	Memory int64
	// MaxTime and MaxUses make a child due, each with a jitter of a tenth, so that children of one
	// age do not end together.
	MaxTime time.Duration
	MaxUses int
	// Ending is told of a child that is ended before it ends by itself.
	Ending func(m *Member, why string)
	// Crashed is told before the wait after so many crashes in a row.
	Crashed func(slot, times int, wait time.Duration, err error)
}

// Of crashes in a row.
const (
	crashBase = time.Second
	crashMax  = time.Minute
)

// A Pool keeps children running, each in a slot.
type Pool struct {
	PoolConfig
	stopping   context.Context
	turn       chan struct{} // who sends to it may replace its child
	slots      sync.WaitGroup
	watching   chan struct{}
	wanted     atomic.Int64
	failing    atomic.Int64
	generation atomic.Int64

	mu       sync.Mutex
	children map[*Member]bool
}

// NewPool returns a pool without slots, which stops when ctx ends. The caller then calls Wait.
func NewPool(ctx context.Context, cfg PoolConfig) *Pool {
	p := &Pool{PoolConfig: cfg, stopping: ctx, turn: make(chan struct{}, 1),
		watching: make(chan struct{}), children: map[*Member]bool{}}
	p.slots.Go(p.watch)
	return p
}

// Resize adds slots at once, or lets those beyond n leave when their children may.
func (p *Pool) Resize(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := int(p.wanted.Swap(int64(n))); i < n && p.stopping.Err() == nil; i++ {
		s := &Slot{N: i, pool: p}
		p.slots.Go(s.run)
	}
}

// Size is how many slots there are to be; failing of them wait because of crashes.
func (p *Pool) Size() (n, failing int) { return int(p.wanted.Load()), int(p.failing.Load()) }

// Restart makes all children due.
func (p *Pool) Restart() { p.generation.Add(1) }

// Children are those that run.
func (p *Pool) Children() (list []*Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m := range p.children {
		list = append(list, m)
	}
	return list
}

// Wait waits until all slots have left.
func (p *Pool) Wait() {
	<-p.stopping.Done()
	p.Resize(0)
	p.slots.Wait()
}

const watchEvery = time.Second

// watch ends children that have grown too large.
func (p *Pool) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.stopping.Done():
			if len(p.Children()) == 0 {
				return
			}
			<-tick.C
		}
		for _, m := range p.Children() {
			memory := m.Memory()
			m.memory.Store(memory)
			if p.Memory > 0 && memory > 2*p.Memory {
				m.End("memory")
			}
		}
	}
}

// A Slot is the place of one child after another.
type Slot struct {
	N       int // from 0
	Deaths  int // of its children in a row, by the caller's count
	pool    *Pool
	crashes int
	turn    bool
}

func (s *Slot) run() {
	for !s.Leaving() {
		if err := s.pool.Run(s); err == nil {
			s.crashes = 0
		} else if !s.Leaving() {
			s.crash(err)
		}
	}
	s.Ready()
}

func (s *Slot) crash(err error) {
	s.Ready()
	wait := min(crashBase<<min(s.crashes, 10), crashMax)
	s.crashes++
	s.pool.Crashed(s.N, s.crashes, wait, err)
	s.pool.failing.Add(1)
	defer s.pool.failing.Add(-1)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.pool.stopping.Done():
	}
}

// Leaving reports whether the slot starts no further child.
func (s *Slot) Leaving() bool {
	return s.pool.stopping.Err() != nil || s.N >= int(s.pool.wanted.Load())
}

// Ready says that the child works, so that another slot may replace its own.
func (s *Slot) Ready() {
	if s.turn {
		s.turn = false
		<-s.pool.turn
	}
}
