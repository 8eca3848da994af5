package fallback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

var errDead = errors.New("target is dead")

// A box is a sink that keeps what it takes, and fails as its func says.
type box struct {
	caps sink.Caps
	open func() error
	fail func(ctx context.Context, batches []*sink.Batch) error // nil: takes everything

	mu      sync.Mutex
	opens   int
	writes  int
	running int
	most    int // Writes at once
	records []sinktest.Record
}

var _ sink.Sink = (*box)(nil)

func (b *box) Caps() sink.Caps { return b.caps }

func (b *box) Open(context.Context) error {
	b.mu.Lock()
	b.opens++
	open := b.open
	b.mu.Unlock()
	if open != nil {
		return open()
	}
	return nil
}

func (b *box) Close(context.Context) error { return nil }

func (b *box) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	b.writes++
	b.running++
	b.most = max(b.most, b.running)
	fail := b.fail
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.running--
		b.mu.Unlock()
	}()
	var err error
	if fail != nil {
		err = fail(ctx, batches)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, list := range spread(err, batches) {
		for j, err := range list {
			if e := batches[i].Entries[j]; err == nil {
				b.records = append(b.records, sinktest.Record{
					Namespace: batches[i].Namespace, Partition: batches[i].Partition, Seq: e.Seq, Occurred: e.Occurred,
					ID: bytes.Clone(e.ID), Payload: bytes.Clone(e.Payload), Batch: "", Attempt: batches[i].Attempt,
				})
			}
		}
	}
	return err
}

// set changes how the box fails.
func (b *box) set(fail func(context.Context, []*sink.Batch) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = fail
}

func (b *box) counts() (writes, most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writes, b.most
}

func (b *box) received() []sinktest.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.records)
}

// seqs are the sequences that the box took, in their order of arrival.
func (b *box) seqs() (list []int64) {
	for _, r := range b.received() {
		list = append(list, r.Seq)
	}
	return list
}

func always(err error) func(context.Context, []*sink.Batch) error {
	return func(context.Context, []*sink.Batch) error { return err }
}

func hang(ctx context.Context, _ []*sink.Batch) error {
	<-ctx.Done()
	return ctx.Err()
}

// naming fails the entries with the given sequences.
func naming(err error, seqs ...int64) func(context.Context, []*sink.Batch) error {
	return func(_ context.Context, batches []*sink.Batch) error {
		failed := &sink.BatchError{}
		for i, b := range batches {
			for j, e := range b.Entries {
				if slices.Contains(seqs, e.Seq) {
					failed.Fail(i, j, err)
				}
			}
		}
		if len(failed.Failed) == 0 {
			return nil
		}
		return failed
	}
}

// poisoned rejects a Write as a whole that has one of the given sequences.
func poisoned(seqs ...int64) func(context.Context, []*sink.Batch) error {
	return func(_ context.Context, batches []*sink.Batch) error {
		for _, b := range batches {
			for _, e := range b.Entries {
				if slices.Contains(seqs, e.Seq) {
					return sink.Permanent(errors.New("bad record"))
				}
			}
		}
		return nil
	}
}

// config is that of a namespace with the defaults: 90 s before its end an entry has another
// attempt for certain.
func config() Config {
	return Config{MaxAge: 3 * time.Minute, BackoffBase: 100 * time.Millisecond, BackoffMax: 30 * time.Second}
}

func newSink(cfg Config, log *zap.Logger, boxes ...sink.Sink) *Sink {
	var tiers []Tier
	for i, b := range boxes {
		tiers = append(tiers, Tier{
			Sink: b, Label: fmt.Sprintf("box%d:", i),
			Accepted: prometheus.NewCounter(prometheus.CounterOpts{Name: "taken"}),
			Down:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "down"}),
		})
	}
	return New(cfg, tiers, log)
}

// batch has entries from a sequence on, all with so much of their life left.
func batch(first, n int, left time.Duration) *sink.Batch {
	b := &sink.Batch{Namespace: "games", Partition: "kart", FirstSeq: int64(first), Attempt: 1, Deadline: time.Now().Add(left)}
	for i := first; i < first+n; i++ {
		b.Entries = append(b.Entries, sink.Entry{Seq: int64(i), Occurred: 1_763_629_675_000, Payload: []byte("{}")})
	}
	return b
}
