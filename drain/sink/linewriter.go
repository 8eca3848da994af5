package sink

import (
	"context"
	"sync"
)

// maxPooledBuffer is the largest buffer worth keeping, in bytes: a full batch
// of common events is some 30 KB, the largest possible a few MB.
const maxPooledBuffer = 1 << 20

// LineWriter turns batches into lines and hands them to a local file
// descriptor, one caller at a time. It exists because such a write cannot be
// interrupted (a pipe without a reader, a hanging disk) while a Write must not
// outstay its context: the function runs on in a goroutine that only the next
// turn waits for, and it has its own copy of everything.
type LineWriter struct {
	turn chan struct{}
	bufs sync.Pool
}

// NewLineWriter makes a LineWriter.
func NewLineWriter() *LineWriter {
	return &LineWriter{
		turn: make(chan struct{}, 1),
		bufs: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// Write encodes all batches into one buffer and calls put with it, in turn.
// When ctx has ended before, nothing happens; when it ends later, Write returns
// its error and put may still run.
func (w *LineWriter) Write(ctx context.Context, batches []*Batch,
	put func(lines []byte) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	buf := w.bufs.Get().(*[]byte)
	// Outside the turn, so that callers encode side by side.
	for _, b := range batches {
		*buf = AppendBatch(*buf, b)
	}
	return w.Do(ctx, func() error {
		err := put(*buf)
		if cap(*buf) <= maxPooledBuffer {
			*buf = (*buf)[:0]
			w.bufs.Put(buf)
		}
		return err
	})
}

// Do calls f, in turn. When ctx ends while the turn is another's, f is not
// called; when it ends during f, Do returns its error and leaves f to finish.
func (w *LineWriter) Do(ctx context.Context, f func() error) error {
	select {
	case w.turn <- struct{}{}: // also for a Close whose time is up already
	default:
		select {
		case w.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	done := make(chan error, 1)
	go func() {
		err := f()
		<-w.turn
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
