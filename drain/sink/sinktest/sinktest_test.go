package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// fake is a sink of functions; good makes one that keeps the contract, and each
// row below breaks one of its functions.
type fake struct {
	open  func(ctx context.Context) error
	write func(ctx context.Context, batches []*sink.Batch) error
	close func(ctx context.Context) error
	caps  func() sink.Caps
}

var _ sink.Sink = (*fake)(nil)

func (f *fake) Open(ctx context.Context) error                         { return f.open(ctx) }
func (f *fake) Write(ctx context.Context, batches []*sink.Batch) error { return f.write(ctx, batches) }
func (f *fake) Close(ctx context.Context) error                        { return f.close(ctx) }
func (f *fake) Caps() sink.Caps                                        { return f.caps() }

// memory is a target that can be stalled and made to fail.
type memory struct {
	mu    sync.Mutex
	got   []Record
	stall chan struct{}                   // not nil: Writes wait for it
	fault func(b *sink.Batch) error       // not nil: what Writes return
	takes func(b *sink.Batch, i int) bool // during a fault, the entries that arrive nevertheless
}

func (m *memory) store(b *sink.Batch, i int) {
	e := b.Entries[i]
	m.got = append(m.got, Record{
		Namespace: b.Namespace, Partition: b.Partition, Seq: e.Seq, Occurred: e.Occurred,
		ID: bytes.Clone(e.ID), Payload: bytes.Clone(e.Payload), Batch: b.ID(), Attempt: b.Attempt,
	})
}

func (m *memory) write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	stall := m.stall
	m.mu.Unlock()
	if stall != nil {
		select {
		case <-stall:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for nr, b := range batches {
		for i := range b.Entries {
			if m.fault == nil || m.takes != nil && (nr > 0 || m.takes(b, i)) {
				m.store(b, i)
			}
		}
	}
	if m.fault != nil {
		return m.fault(batches[0])
	}
	return nil
}

func (m *memory) records() ([]Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Record(nil), m.got...), nil
}

func (m *memory) stallUntil() func() {
	c := make(chan struct{})
	m.mu.Lock()
	m.stall = c
	m.mu.Unlock()
	return func() {
		m.mu.Lock()
		m.stall = nil
		m.mu.Unlock()
		close(c)
	}
}

// failWith is a Fault that makes Writes return an error.
func (m *memory) failWith(name string, permanent bool, takes func(*sink.Batch, int) bool, err func(b *sink.Batch) error) Fault {
	set := func(fault func(*sink.Batch) error, takes func(*sink.Batch, int) bool) {
		m.mu.Lock()
		m.fault, m.takes = fault, takes
		m.mu.Unlock()
	}
	return Fault{Name: name, Permanent: permanent, Start: func() func() {
		set(err, takes)
		return func() { set(nil, nil) }
	}}
}

func notThe3rd(_ *sink.Batch, i int) bool { return i != 3 }

func nameThe3rd(err error) func(*sink.Batch) error {
	return func(*sink.Batch) error {
		failed := &sink.BatchError{}
		failed.Fail(0, 3, err)
		return failed
	}
}

var errDown = errors.New("target is down")

func good() (Fixture, *fake, *memory) {
	m := &memory{}
	ok := func(context.Context) error { return nil }
	f := &fake{open: ok, close: ok, write: m.write, caps: func() sink.Caps {
		return sink.Caps{MaxBatches: 3}
	}}
	return Fixture{Sink: f, Received: m.records, Stall: m.stallUntil, Faults: []Fault{
		m.failWith("down", false, nil, func(*sink.Batch) error { return errDown }),
		m.failWith("not connected", false, nil, func(*sink.Batch) error { return sink.ErrNotConnected }),
		m.failWith("rejected", true, nil, func(*sink.Batch) error { return sink.Permanent(errDown) }),
		m.failWith("one rejected", true, notThe3rd, nameThe3rd(sink.Permanent(errDown))),
		m.failWith("one failed", false, notThe3rd, nameThe3rd(errDown)),
	}}, f, m
}

func TestASinkThatKeepsTheContractPasses(t *testing.T) {
	t.Parallel()
	Run(t, Harness{New: func(testing.TB) Fixture { f, _, _ := good(); return f }})
}

func TestASinkThatCoalescesAndKeepsTheContractPasses(t *testing.T) {
	t.Parallel()
	Run(t, Harness{New: func(testing.TB) Fixture {
		x, f, _ := good()
		f.caps = coalescing
		return x
	}})
}

func TestASinkThatCannotBeReadBackPasses(t *testing.T) {
	t.Parallel()
	Run(t, Harness{New: func(testing.TB) Fixture { f, _, _ := good(); return Fixture{Sink: f.Sink} }})
}

// onlyFault replaces the faults of a fixture.
func onlyFault(permanent bool, err func(b *sink.Batch) error) func(*Fixture, *fake, *memory) {
	return func(f *Fixture, _ *fake, m *memory) {
		f.Faults = []Fault{m.failWith("broken", permanent, nil, err)}
	}
}

// onlyError makes a fault that every Write answers with the error.
func onlyError(err error) func(*Fixture, *fake, *memory) {
	return onlyFault(false, func(*sink.Batch) error { return err })
}

func failsAt(call int) func(context.Context) error {
	calls := 0
	return func(context.Context) error {
		if calls++; calls == call {
			return errDown
		}
		return nil
	}
}

// change stores edited copies of batches.
func change(f *fake, m *memory, edit func(b *sink.Batch)) {
	f.write = func(ctx context.Context, batches []*sink.Batch) error {
		for i, b := range batches {
			c := clone(b)
			edit(c)
			batches[i] = c
		}
		return m.write(ctx, batches)
	}
}

// coalescing are the Caps of a sink that takes batches of many partitions.
func coalescing() sink.Caps {
	return sink.Caps{MaxBatches: 100, PreferEntries: 1000, Linger: time.Second}
}

var broken = []struct {
	check, how, want string
	breakIt          func(x *Fixture, f *fake, m *memory)
}{
	{"opens and closes in any order", "Open works once", "second Open", func(_ *Fixture, f *fake, _ *memory) { f.open = failsAt(2) }},
	{"opens and closes in any order", "Close needs Open", "Close without Open", func(_ *Fixture, f *fake, _ *memory) { f.close = failsAt(1) }},
	{"opens and closes in any order", "Close works once", "second Close", func(_ *Fixture, f *fake, _ *memory) {
		f.close = failsAt(2)
	}},
	{"opens and closes in any order", "Close hangs", "Close without Open has not returned", func(_ *Fixture, f *fake, _ *memory) {
		f.close = func(context.Context) error { clocktest.Take(time.Hour); return nil }
	}},
	{"says its capabilities once", "they change", "Caps changed", func(_ *Fixture, f *fake, _ *memory) {
		calls := 0
		f.caps = func() sink.Caps { calls++; return sink.Caps{MaxInFlight: calls} }
	}},
	{"says its capabilities once", "they are negative", "negative", func(_ *Fixture, f *fake, _ *memory) {
		f.caps = func() sink.Caps { return sink.Caps{MaxInFlight: -1} }
	}},
	{"keeps the order within a partition", "newest first", "order:", func(_ *Fixture, f *fake, m *memory) {
		f.write = func(_ context.Context, batches []*sink.Batch) error {
			for i := len(batches[0].Entries) - 1; i >= 0; i-- {
				m.store(batches[0], i)
			}
			return nil
		}
	}},
	{"takes batches of 1 to 128 entries", "127 at most", "lost:", func(_ *Fixture, f *fake, m *memory) {
		change(f, m, func(b *sink.Batch) { b.Entries = b.Entries[:min(len(b.Entries), 127)] })
	}},
	{"takes as many batches a Write as it says", "takes the first", "lost:", func(_ *Fixture, f *fake, m *memory) {
		f.write = func(ctx context.Context, batches []*sink.Batch) error { return m.write(ctx, batches[:1]) }
	}},
	{"says its capabilities once", "lingers alone", "nothing is coalesced", func(_ *Fixture, f *fake, _ *memory) {
		f.caps = func() sink.Caps { return sink.Caps{MaxBatches: 1, Linger: time.Second} }
	}},
	{"takes batches of many partitions a Write", "keeps those of the first", "lost:", func(_ *Fixture, f *fake, m *memory) {
		f.caps = coalescing
		f.write = func(ctx context.Context, batches []*sink.Batch) error {
			for i, b := range batches {
				if b.Partition != batches[0].Partition {
					batches = batches[:i]
					break
				}
			}
			return m.write(ctx, batches)
		}
	}},
	{"reports failures by the rules", "names the entries of a coalesced Write by the wrong batch", "lost:", func(x *Fixture, f *fake, m *memory) {
		f.caps = coalescing
		x.Faults = []Fault{{Name: "broken", Start: func() func() {
			f.write = func(ctx context.Context, batches []*sink.Batch) error {
				if err := m.write(ctx, batches[:3]); err != nil {
					return err
				}
				failed := &sink.BatchError{}
				for entry := range batches[0].Entries {
					failed.Fail(0, entry, errDown) // it was the last batch
				}
				return failed
			}
			return func() { f.write = m.write }
		}}}
	}},
	{"passes payloads and ids on unchanged", "trims payloads", "changed:", func(_ *Fixture, f *fake, m *memory) {
		change(f, m, func(b *sink.Batch) {
			for i := range b.Entries {
				b.Entries[i].Payload = bytes.TrimSpace(b.Entries[i].Payload)
			}
		})
	}},
	{"passes payloads and ids on unchanged", "repairs UTF-8", "changed:", func(_ *Fixture, f *fake, m *memory) {
		change(f, m, func(b *sink.Batch) {
			for i := range b.Entries {
				b.Entries[i].Payload = bytes.ToValidUTF8(b.Entries[i].Payload, []byte("?"))
			}
		})
	}},
	{"passes payloads and ids on unchanged", "loses ids", "changed:", func(_ *Fixture, f *fake, m *memory) {
		change(f, m, func(b *sink.Batch) { b.Entries[0].ID = nil })
	}},
	{"passes payloads and ids on unchanged", "makes up entries", "unexpected:", func(_ *Fixture, f *fake, m *memory) {
		change(f, m, func(b *sink.Batch) { b.Entries = append(b.Entries, sink.Entry{Seq: 1 << 40}) })
	}},
	{"keeps no payload", "keeps the slices", "changed:", func(_ *Fixture, f *fake, m *memory) {
		f.write = func(_ context.Context, batches []*sink.Batch) error {
			m.store(batches[0], 0)
			for i, e := range batches[0].Entries {
				m.store(batches[0], i)
				m.got[len(m.got)-1].Payload = e.Payload
			}
			m.got = m.got[1:]
			return nil
		}
	}},
	{"takes concurrent Writes", "one at a time", "busy", func(_ *Fixture, f *fake, m *memory) {
		var lock sync.Mutex
		f.write = func(ctx context.Context, batches []*sink.Batch) error {
			if !lock.TryLock() {
				return errors.New("busy")
			}
			defer lock.Unlock()
			clocktest.Take(time.Second) // of the bubble: until the others have come
			return m.write(ctx, batches)
		}
	}},
	{"takes concurrent Writes", "writes twice", "repeated:", func(_ *Fixture, f *fake, m *memory) {
		f.write = func(ctx context.Context, batches []*sink.Batch) error {
			err := m.write(ctx, batches)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.store(batches[0], 0)
			return err
		}
	}},
	{"rejects an ended context at once", "does not look", "returned nil", func(_ *Fixture, f *fake, _ *memory) {
		f.write = func(context.Context, []*sink.Batch) error { return nil }
	}},
	{"rejects an ended context at once", "hangs", "has not returned", func(_ *Fixture, f *fake, _ *memory) {
		f.write = func(context.Context, []*sink.Batch) error { clocktest.Take(time.Hour); return errDown }
	}},
	{"rejects an ended context at once", "looks too late", "unexpected:", func(_ *Fixture, f *fake, m *memory) {
		f.write = func(ctx context.Context, batches []*sink.Batch) error {
			return errors.Join(m.write(context.Background(), batches), ctx.Err())
		}
	}},
	{"returns at the deadline", "ignores it", "has not returned", func(_ *Fixture, f *fake, m *memory) {
		f.write = func(_ context.Context, batches []*sink.Batch) error { return m.write(context.Background(), batches) }
	}},
	{"returns at the deadline", "takes it for success", "returned nil", func(_ *Fixture, f *fake, m *memory) {
		f.write = func(ctx context.Context, batches []*sink.Batch) error { _ = m.write(ctx, batches); return nil }
	}},
	{"returns at the deadline", "is stuck afterwards", "Write: target is down", func(_ *Fixture, f *fake, m *memory) {
		stuck := false
		f.write = func(ctx context.Context, batches []*sink.Batch) error {
			if stuck {
				return errDown
			}
			err := m.write(ctx, batches)
			stuck = err != nil
			return err
		}
	}},
	{"reports failures by the rules", "claims success", "returned nil", onlyFault(false, func(*sink.Batch) error { return nil })},
	{"reports failures by the rules", "hangs", "has not returned", func(_ *Fixture, f *fake, _ *memory) {
		f.write = func(context.Context, []*sink.Batch) error { clocktest.Take(time.Hour); return nil }
	}},
	{"reports failures by the rules", "gives up on what would pass", "permanent is true, want false", onlyError(sink.Permanent(errDown))},
	{"reports failures by the rules", "gives up on an entry that would pass", "permanent is true, want false", onlyFault(false, nameThe3rd(sink.Permanent(errDown)))},
	{"reports failures by the rules", "retries what never passes", "permanent is false, want true", onlyFault(true, func(*sink.Batch) error { return errDown })},
	{"reports failures by the rules", "forgets to name a failed entry", "lost:", onlyFault(false, nameThe3rd(errDown))},
	{"reports failures by the rules", "forgets to name a rejected entry", "lost:", onlyFault(true, nameThe3rd(sink.Permanent(errDown)))},
	{"reports failures by the rules", "names nothing", "names no entry", onlyError(&sink.BatchError{})},
	{"reports failures by the rules", "names an entry there is not", "was not written", onlyError(&sink.BatchError{Failed: []sink.EntryError{{Entry: 10, Err: errDown}}})},
	{"reports failures by the rules", "names a batch there is not", "was not written", onlyError(&sink.BatchError{Failed: []sink.EntryError{{Batch: 1, Err: errDown}}})},
	{"reports failures by the rules", "names one twice", "twice", onlyError(&sink.BatchError{Failed: []sink.EntryError{{Err: errDown}, {Err: errDown}}})},
	{"reports failures by the rules", "names one without why", "without an error", onlyError(&sink.BatchError{Failed: []sink.EntryError{{}}})},
	{"reports failures by the rules", "logs payloads", "repeats a payload", onlyFault(false, func(b *sink.Batch) error {
		return fmt.Errorf("rejected %s", b.Entries[0].Payload)
	})},
	{"reports failures by the rules", "logs pages", "more than", onlyError(errors.New(strings.Repeat("x", 2000)))},
	{"reports failures by the rules", "logs bytes", "not UTF-8", onlyError(errors.New("\xff"))},
	{"takes the same batch twice", "rejects a repeat", "Write: target is down", func(_ *Fixture, f *fake, m *memory) {
		written := map[string]bool{}
		f.write = func(ctx context.Context, batches []*sink.Batch) error {
			if written[batches[0].ID()] {
				return errDown
			}
			written[batches[0].ID()] = true
			return m.write(ctx, batches)
		}
	}},
	{"takes the same batch twice", "names each presentation anew", "batch id:", func(_ *Fixture, f *fake, m *memory) {
		f.write = func(ctx context.Context, batches []*sink.Batch) error {
			err := m.write(ctx, batches)
			for i := range m.got {
				m.got[i].Batch = fmt.Sprint(m.got[i].Attempt)
			}
			return err
		}
	}},
}

func TestEveryCheckFindsWhatItLooksFor(t *testing.T) {
	t.Parallel()
	byName := map[string]check{}
	for _, c := range checks {
		byName[c.name] = c
	}
	tested := map[string]bool{}
	for _, row := range broken {
		c, ok := byName[row.check]
		if !ok {
			t.Fatalf("no check %q", row.check)
		}
		tested[row.check] = true
		t.Run(row.check+"/"+row.how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				err := c.run(t.Context(), func() Fixture {
					x, f, m := good()
					row.breakIt(&x, f, m)
					return x
				})
				clocktest.Pass(24 * time.Hour) // of the bubble: calls that hang come back
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("got %v, want an error with %q", err, row.want)
				}
			})
		})
	}
	for name := range byName {
		if !tested[name] {
			t.Errorf("no broken sink for the check %q", name)
		}
	}
}

func TestLinesThatAreNotOursAreErrors(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"{}\n", "\n", "{\"data\":1}", "{\"data\":1}{}\n", "[]\n",
		"{\"data\":1,\"text\":\"a\"}\n", "{\"data\":1,\"extra\":2}\n", "{\"base64\":\"?\"}\n",
	} {
		if _, err := ParseLines([]byte(line)); err == nil {
			t.Errorf("%q was read", line)
		}
	}
}
