package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

var (
	errTestDown   = errors.New("target is down")
	errTestUnsent = sink.Unsent(errors.New("connection refused"))
)

func TestOutcomeOfAWrite(t *testing.T) {
	t.Parallel()
	batches := []*sink.Batch{{Entries: make([]sink.Entry, 2)}, {Entries: make([]sink.Entry, 1)}}
	no := sink.Permanent(errors.New("no"))
	failed := func(list ...sink.EntryError) error { return fmt.Errorf("write: %w", &sink.BatchError{Failed: list}) }
	wait := sink.Throttle(errTestDown, time.Minute)
	gone := fmt.Errorf("write: %w", sink.ErrNotConnected)
	// want are the dispositions of the three entries: accepted, rejected, tried again.
	for name, c := range map[string]struct {
		err    error
		want   string
		reason string
		after  time.Duration
		reopen bool
	}{
		"nil":                        {nil, "aaa", "", 0, false},
		"plain":                      {errTestDown, "ttt", "error", 0, false},
		"timeout":                    {fmt.Errorf("x: %w", context.DeadlineExceeded), "ttt", "timeout", 0, false},
		"unsent":                     {fmt.Errorf("x: %w", errTestUnsent), "ttt", "unsent", 0, false},
		"unsent in time":             {sink.Unsent(context.DeadlineExceeded), "ttt", "timeout", 0, false},
		"panic":                      {newPanicError("x", nil), "ttt", "panic", 0, false},
		"not connected":              {gone, "ttt", "not_connected", 0, true},
		"permanent":                  {no, "rrr", "permanent", 0, false},
		"throttle":                   {wait, "ttt", "throttled", time.Minute, false},
		"throttle of a permanent":    {sink.Throttle(no, time.Second), "ttt", "throttled", time.Second, false},
		"permanent of a throttle":    {sink.Permanent(wait), "ttt", "throttled", time.Minute, false},
		"throttle, not connected":    {sink.Throttle(gone, time.Second), "ttt", "throttled", time.Second, true},
		"names nothing":              {failed(), "ttt", "bad_batch_error", 0, false},
		"names no such batch":        {failed(sink.EntryError{Batch: 2, Err: errTestDown}), "ttt", "bad_batch_error", 0, false},
		"names no such entry":        {failed(sink.EntryError{Batch: 1, Entry: 1, Err: no}), "ttt", "bad_batch_error", 0, false},
		"names a negative":           {failed(sink.EntryError{Entry: -1, Err: no}), "ttt", "bad_batch_error", 0, false},
		"one plain":                  {failed(sink.EntryError{Entry: 1, Err: errTestDown}), "ata", "partial", 0, false},
		"one without an error":       {failed(sink.EntryError{Entry: 1}), "ata", "partial", 0, false},
		"one permanent":              {failed(sink.EntryError{Batch: 1, Err: no}), "aar", "partial", 0, false},
		"one throttled":              {failed(sink.EntryError{Batch: 1, Err: wait}), "aat", "partial", time.Minute, false},
		"one not connected":          {failed(sink.EntryError{Entry: 1, Err: gone}), "ata", "partial", 0, true},
		"both in permanent":          {sink.Permanent(failed(sink.EntryError{Entry: 1, Err: errTestDown})), "ata", "partial", 0, false},
		"twice, plain last":          {failed(sink.EntryError{Err: no}, sink.EntryError{Err: errTestDown}), "taa", "partial", 0, false},
		"twice, permanent last":      {failed(sink.EntryError{Err: errTestDown}, sink.EntryError{Err: no}), "taa", "partial", 0, false},
		"all plain":                  {failed(sink.EntryError{Err: errTestDown}, sink.EntryError{Entry: 1, Err: errTestDown}, sink.EntryError{Batch: 1, Err: errTestDown}), "ttt", "error", 0, false},
		"all permanent":              {failed(sink.EntryError{Err: no}, sink.EntryError{Entry: 1, Err: no}, sink.EntryError{Batch: 1, Err: no}), "rrr", "partial", 0, false},
		"deadline after the partial": {fmt.Errorf("%w: %w", context.DeadlineExceeded, failed(sink.EntryError{Entry: 1, Err: no})), "ara", "partial", 0, false},
	} {
		o := outcomeOf(c.err, batches)
		var got strings.Builder
		for i, b := range batches {
			for j := range b.Entries {
				what, _ := o.Of(i, j, c.err)
				got.WriteByte("art"[what])
			}
		}
		if got.String() != c.want || o.Reason != c.reason || o.After != c.after || o.reopen != c.reopen {
			t.Errorf("%s: dispositions %s reason %q after %v reopen %v, want %s %q %v %v",
				name, got.String(), o.Reason, o.After, o.reopen, c.want, c.reason, c.after, c.reopen)
		}
	}
}

func TestPanicTextHoldsNoPayload(t *testing.T) {
	t.Parallel()
	if got := newPanicError("secret", nil).Error(); got != "sink panicked: a string" {
		t.Errorf("got %q", got)
	}
	defer func() {
		if got := newPanicError(recover(), nil).Error(); !strings.Contains(got, "index out of range") {
			t.Errorf("got %q", got)
		}
	}()
	_ = []int{}[len(t.TempDir())]
}
