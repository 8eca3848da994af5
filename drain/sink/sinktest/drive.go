package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

const (
	// grace is how late a call may return after its context has ended.
	grace = 2 * time.Second
	// patience is how long a call may take when nothing hinders it.
	patience = 20 * time.Second

	// canary marks payloads, so that they are found where they must not be.
	canary = "c4n4ry"
)

// newBatch makes a batch of n entries with rising sequences.
func newBatch(partition string, firstSeq int64, n int) *sink.Batch {
	b := &sink.Batch{
		Namespace: "sinktest",
		Partition: partition,
		FirstSeq:  firstSeq,
		Attempt:   1,
		Deadline:  time.Now().Add(time.Minute),
	}
	for seq := firstSeq; seq < firstSeq+int64(n); seq++ {
		b.Entries = append(b.Entries, sink.Entry{
			Seq:      seq,
			Occurred: 1_763_629_675_000 + seq,
			ID:       fmt.Appendf(nil, "id-%d", seq),
			Payload:  fmt.Appendf(nil, `{"canary":%q,"partition":%q,"seq":%d}`, canary, partition, seq),
		})
	}
	return b
}

// clone is the same batch in other memory, without a remembered id.
func clone(b *sink.Batch) *sink.Batch {
	c := &sink.Batch{
		Namespace: b.Namespace,
		Partition: b.Partition,
		FirstSeq:  b.FirstSeq,
		Attempt:   b.Attempt,
		Deadline:  b.Deadline,
	}
	for _, e := range b.Entries {
		e.ID, e.Payload = bytes.Clone(e.ID), bytes.Clone(e.Payload)
		c.Entries = append(c.Entries, e)
	}
	return c
}

// call runs one method and gives up on it when it hangs.
func call(name string, method func() error) error {
	done := make(chan error, 1)
	go func() { done <- method() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("%s has not returned after %s", name, patience)
	}
}

func (f Fixture) open(ctx context.Context) error {
	return call("Open", func() error { return f.Sink.Open(ctx) })
}

// tryWrite is Write, awaited for at most the given time.
func (f Fixture) tryWrite(ctx context.Context, limit time.Duration,
	batches ...*sink.Batch) (returned bool, err error) {
	done := make(chan error, 1)
	go func() { done <- f.Sink.Write(ctx, batches) }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return true, err
	case <-timer.C:
		return false, nil
	}
}

// write is a Write that must succeed.
func (f Fixture) write(ctx context.Context, batches ...*sink.Batch) error {
	returned, err := f.tryWrite(ctx, patience, batches...)
	switch {
	case !returned:
		return fmt.Errorf("Write has not returned after %s", patience)
	case err != nil:
		return first(checkError(err, batches), fmt.Errorf("Write: %w", err))
	}
	return nil
}

// rewrite is a Write after a failure: the sink may ask for Open first.
func (f Fixture) rewrite(ctx context.Context, batches ...*sink.Batch) error {
	err := f.write(ctx, batches...)
	if errors.Is(err, sink.ErrNotConnected) {
		if err := f.open(ctx); err != nil {
			return err
		}
		err = f.write(ctx, batches...)
	}
	return err
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
