package process

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Member is a child of a Pool.
type Member struct {
	*Child
	Slot  *Slot
	Uses  int // by the caller's count
	Began time.Time
	Done  chan struct{} // closes when it has ended, and all that it wrote is heard
	Err   error         // of its end, when Done

	generation int64
	jitter     float64
	memory     atomic.Int64
	exited     chan struct{}
	finishing  atomic.Bool // its stdin has ended: it may take lateFinish
	mu         sync.Mutex
	why        string
}

// Start starts a child, with a descriptor 3 if extra. Its stdin is input, which it need not read;
// nil: the caller writes it. heard is told each line of its stream 1, 2 or 3. cut: it was longer.
func (s *Slot) Start(c Command, extra bool, input []byte, heard func(stream int,
	line []byte, cut bool)) (*Member, error) {
	child, err := c.Start(extra)
	if err != nil {
		return nil, err
	}
	p := s.pool
	m := &Member{Child: child, Slot: s, Began: time.Now(), Done: make(chan struct{}),
		generation: p.generation.Load(),
		jitter:     0.9 + 0.2*rand.Float64(), exited: make(chan struct{})}
	p.mu.Lock()
	p.children[m] = true
	p.mu.Unlock()
	var pipes sync.WaitGroup
	for stream, file := range []*Pipe{1: child.Stdout, 2: child.Stderr, 3: child.Extra} {
		if file != nil {
			pipes.Go(func() {
				eachLine(file, func(line []byte, cut bool) { heard(stream, line, cut) })
				if stream == 3 {
					m.Deaf()
				}
			})
		}
	}
	if input != nil {
		pipes.Go(func() {
			_, _ = child.Stdin.Write(input)
			_ = child.Stdin.Close()
		})
	}
	go func() {
		m.Err = child.Wait()
		close(m.exited)
		pipes.Wait()
		child.Close()
		p.mu.Lock()
		delete(p.children, m)
		p.mu.Unlock()
		close(m.Done)
	}()
	return m, nil
}

// blame notes why a child is ended. The first reason counts; false: there is one, or it has exited.
func (m *Member) blame(why string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.exited:
		return false
	default:
	}
	if m.why != "" {
		return false
	}
	m.why = why
	return true
}

// Why is why the child is ended; "": it is not, or by itself.
func (m *Member) Why() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.why
}

// RSS is Memory as it was within the last second or two.
func (m *Member) RSS() int64 { return m.memory.Load() }

// End kills the process group of the child.
func (m *Member) End(why string) {
	if m.blame(why) {
		m.Slot.pool.Ending(m, why)
	}
	m.Kill()
}

// Limit ends the child after d, where that is not 0: if term is not 0 by a SIGTERM, and by a kill
// only after that time.
func (m *Member) Limit(d, term time.Duration) (stop func()) {
	if d <= 0 {
		return func() {}
	}
	first := time.AfterFunc(d, func() {
		if m.blame("timeout") {
			m.Slot.pool.Ending(m, "timeout")
		}
		if term > 0 {
			m.SignalGroup(syscall.SIGTERM)
		} else {
			m.Kill()
		}
	})
	last := time.AfterFunc(d+term, m.Kill)
	return func() { first.Stop(); last.Stop() }
}

// How long a child may take to end by itself.
const (
	lateExit   = 200 * time.Millisecond // when it has closed a pipe
	lateFinish = 5 * time.Second        // when its stdin has ended
)

// Deaf ends a child that has closed a pipe, unless it exits now.
func (m *Member) Deaf() {
	select {
	case <-m.exited:
	case <-time.After(lateExit):
		if !m.finishing.Load() {
			m.End("protocol")
		}
	}
}

// Finish lets the child end: its stdin ends.
func (m *Member) Finish() {
	m.finishing.Store(true)
	_ = m.Stdin.Close()
	defer time.AfterFunc(lateFinish, func() { m.End("end") }).Stop()
	<-m.Done
}

// DueEvery is how often to ask whether the child is Due: more often while those of an older generation wait for
// their turns.
func (m *Member) DueEvery() time.Duration {
	if m.generation != m.Slot.pool.generation.Load() {
		return 20 * time.Millisecond
	}
	return time.Second
}

// Due is why the child is to be replaced now: restart, uses, time or memory; "": it is not, or
// another slot replaces its own. Then Finish it, and the next of the slot says Ready.
func (m *Member) Due() (why string) {
	p := m.Slot.pool
	switch {
	case m.generation != p.generation.Load():
		why = "restart"
	case p.MaxUses > 0 && m.Uses >= max(int(float64(p.MaxUses)*m.jitter), 1):
		why = "uses"
	case p.MaxTime > 0 && time.Since(m.Began) >= time.Duration(float64(p.MaxTime)*m.jitter):
		why = "time"
	case p.Memory > 0 && m.Uses > 0 && m.Memory() > p.Memory:
		why = "memory"
	default:
		return ""
	}
	select {
	case p.turn <- struct{}{}:
		m.Slot.turn = true
		return why
	default:
		return ""
	}
}

// maxLine bounds a line of a child, in bytes.
const maxLine = 64 << 10

// eachLine reads lines until r ends. What a line has beyond maxLine is thrown away.
func eachLine(r io.Reader, f func(line []byte, cut bool)) {
	b := bufio.NewReader(r)
	var line []byte
	for cut := false; ; {
		part, err := b.ReadSlice('\n')
		kept := min(len(part), maxLine-len(line))
		cut = cut || kept < len(part)
		line = append(line, part[:kept]...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if len(line) > 0 {
			f(bytes.TrimRight(line, "\r\n"), cut)
		}
		if err != nil {
			return
		}
		if line, cut = line[:0], false; cap(line) > 4<<10 {
			line = nil
		}
	}
}
