package drain

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// A fate is what becomes of an entry after a Write.
type fate uint8

const (
	accepted  fate = iota // the sink has it
	refused               // the sink will never take it
	unsettled             // to be tried again
)

// A verdict is what the error of a Write means for its entries: all of them
// share one fate, but for those that the sink named.
type verdict struct {
	all    fate
	named  map[place]failure
	after  time.Duration // the sink's wish: no attempt sooner
	reopen bool          // the sink is not connected any more
	reason string        // label of sink_failures, empty when all was accepted
}

// A place is an entry's position in a Write.
type place struct{ batch, entry int }

type failure struct {
	fate fate
	err  error
}

// fateOf is the fate of one entry, and the error behind it.
func (v *verdict) fateOf(batch, entry int, err error) (fate, error) {
	if f, ok := v.named[place{batch, entry}]; ok {
		return f.fate, f.err
	}
	return v.all, err
}

// sinkWide reports whether a failure is rather the sink's than the partition's.
func (v *verdict) sinkWide() bool {
	switch v.reason {
	case reasonTimeout, reasonNotConnected, reasonThrottled:
		return true
	}
	return false
}

// judge reads the error of a Write. Where an error says two things, the one
// that keeps the entries wins: what is retried in vain expires in the end, what
// is given up in error is lost.
func judge(err error, batches []*sink.Batch) verdict {
	if err == nil {
		return verdict{all: accepted}
	}
	v := verdict{all: unsettled, reopen: errors.Is(err, sink.ErrNotConnected), reason: reasonOf(err)}
	var named *sink.BatchError
	if errors.As(err, &named) {
		return v.judgeNamed(named, batches)
	}
	if after, ok := sink.ThrottledFor(err); ok {
		v.after, v.reason = after, reasonThrottled
	} else if sink.IsPermanent(err) {
		v.all, v.reason = refused, reasonPermanent
	}
	return v
}

func (v verdict) judgeNamed(list *sink.BatchError, batches []*sink.Batch) verdict {
	bad := verdict{all: unsettled, reason: reasonBadBatchError}
	if len(list.Failed) == 0 {
		return bad
	}
	v.all, v.reason, v.named = accepted, reasonPartial, make(map[place]failure, len(list.Failed))
	again := 0 // named entries that are to be tried again
	for _, f := range list.Failed {
		if f.Batch < 0 || f.Batch >= len(batches) || f.Entry < 0 || f.Entry >= len(batches[f.Batch].Entries) {
			return bad
		}
		one := failure{unsettled, f.Err}
		after, throttled := sink.ThrottledFor(f.Err)
		v.after = max(v.after, after)
		v.reopen = v.reopen || errors.Is(f.Err, sink.ErrNotConnected)
		if !throttled && sink.IsPermanent(f.Err) {
			one.fate = refused
		}
		at := place{f.Batch, f.Entry}
		if before, twice := v.named[at]; twice && before.fate == unsettled {
			continue
		}
		if v.named[at] = one; one.fate == unsettled {
			again++
		}
	}
	entries := 0
	for _, b := range batches {
		entries += len(b.Entries)
	}
	if again == entries {
		v.all, v.reason = unsettled, reasonOf(list.Failed[0].Err)
	}
	return v
}

// The closed set of reasons a Write or an Open can fail for.
const (
	reasonError         = "error"
	reasonTimeout       = "timeout"
	reasonThrottled     = "throttled"
	reasonPermanent     = "permanent"
	reasonPartial       = "partial"
	reasonNotConnected  = "not_connected"
	reasonPanic         = "panic"
	reasonBadBatchError = "bad_batch_error"
	reasonStopped       = "stopped"
)

func reasonOf(err error) string {
	var p *panicError
	switch {
	case errors.As(err, &p):
		return reasonPanic
	case errors.Is(err, sink.ErrNotConnected):
		return reasonNotConnected
	case errors.Is(err, context.DeadlineExceeded):
		return reasonTimeout
	default:
		return reasonError
	}
}

// panicError is a panic of a sink, turned into a plain error.
type panicError struct {
	text  string
	stack []byte
}

func (e *panicError) Error() string { return "sink panicked: " + e.text }

// newPanicError keeps the text of runtime errors only: what else a sink panics
// with may hold an entry's payload, which never goes to a log.
func newPanicError(value any, stack []byte) *panicError {
	text := fmt.Sprintf("a %T", value)
	if e, ok := value.(runtime.Error); ok {
		text = e.Error()
	}
	return &panicError{text: text, stack: stack}
}
