package sink

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errPut = errors.New("put failed")

func TestLineWriterPutsAllBatchesAtOnce(t *testing.T) {
	t.Parallel()
	a, b := batchOf("1", "2"), batchOf("3")
	want := string(AppendBatch(AppendBatch(nil, a), b))
	w := NewLineWriter()
	for range 2 { // the second time from a pooled buffer
		var got []string
		err := w.Write(t.Context(), []*Batch{a, b}, func(lines []byte) error {
			got = append(got, string(lines))
			return errPut
		})
		if err != errPut || len(got) != 1 || got[0] != want {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestLineWriterDoesNothingInAnEndedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := NewLineWriter().Write(ctx, []*Batch{batchOf("1")}, func([]byte) error {
		t.Error("put was called")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLineWriterTakesTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewLineWriter()
		running := 0
		for range 10 {
			go w.Write(t.Context(), []*Batch{batchOf("1")}, func([]byte) error {
				if running++; running != 1 {
					t.Errorf("%d at once", running)
				}
				time.Sleep(time.Second)
				running--
				return nil
			})
		}
		start := time.Now()
		time.Sleep(time.Millisecond)
		if err := w.Do(t.Context(), func() error { return nil }); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("10 puts of 1 s took %s", took)
		}
	})
}

func TestLineWriterReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewLineWriter()
		start := time.Now()
		hang := make(chan struct{})
		after := func(d time.Duration, put func([]byte) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			err := w.Write(ctx, []*Batch{batchOf(strings.Repeat("x", 1000))}, put)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		var late string
		after(time.Second, func(lines []byte) error { <-hang; late = string(lines); return nil })
		after(time.Second, func([]byte) error { t.Error("put out of turn"); return nil })
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %s, want 2s", took)
		}
		// The one that hangs still has its own lines when it goes on.
		close(hang)
		if err := w.Write(t.Context(), []*Batch{batchOf("1")}, func([]byte) error { return nil }); err != nil {
			t.Error(err)
		}
		if !strings.Contains(late, "xxx") {
			t.Errorf("late lines were %q", late)
		}
	})
}

func TestLineWriterDoesWhatItCanInAnEndedContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		done := false
		_ = NewLineWriter().Do(ctx, func() error { done = true; return nil })
		synctest.Wait()
		if !done {
			t.Error("a Close whose time is up freed nothing")
		}
	})
}
