package drain

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// A disposition is what becomes of an entry after a Write.
type disposition uint8

const (
	accepted  disposition = iota // the sink has it
	rejected                     // the sink will never take it
	retryable                    // to be tried again
	unwritten                    // there was no Write: the entry was not presented
)

// A writeOutcome is what the error of a Write means for its entries: all of them
// share one disposition, but for those that the sink named.
type writeOutcome struct {
	all    disposition
	named  map[position]failure
	after  time.Duration // the sink's wish: no attempt sooner
	reopen bool          // the sink is not connected any more
	unsent bool          // the target has seen none of the entries
	reason string        // label of sink_failures, empty when all was accepted

	noneTaken bool // the sink named all entries, and some of them are to be tried again
	outlived  bool // the Write ended because an entry was about to go stale
}

// A position is where an entry is in a Write.
type position struct{ batch, entry int }

type failure struct {
	disposition disposition
	err         error
}

// of is the disposition of one entry, and the error behind it.
func (o *writeOutcome) of(batch, entry int, err error) (disposition, error) {
	if f, ok := o.named[position{batch, entry}]; ok {
		return f.disposition, f.err
	}
	return o.all, err
}

// sinkWide reports whether a failure is rather the sink's than the partition's.
func (o *writeOutcome) sinkWide() bool {
	switch o.reason {
	case reasonTimeout, reasonNotConnected, reasonThrottled:
		return true
	}
	return false
}

// outcomeOf reads the error of a Write. Where an error says two things, the one
// that keeps the entries wins: an entry that is retried in vain expires in the end,
// but one that is dead-lettered in error is lost.
func outcomeOf(err error, batches []*sink.Batch) writeOutcome {
	if err == nil {
		return writeOutcome{all: accepted}
	}
	o := writeOutcome{all: retryable, reopen: errors.Is(err, sink.ErrNotConnected), reason: reasonOf(err)}
	var named *sink.BatchError
	if errors.As(err, &named) {
		return o.ofNamed(named, batches)
	}
	o.unsent = sink.IsUnsent(err)
	if after, ok := sink.ThrottledFor(err); ok {
		o.after, o.reason = after, reasonThrottled
	} else if sink.IsPermanent(err) {
		o.all, o.reason, o.unsent = rejected, reasonPermanent, false
	}
	return o
}

func (o writeOutcome) ofNamed(list *sink.BatchError, batches []*sink.Batch) writeOutcome {
	bad := writeOutcome{all: retryable, reason: reasonBadBatchError}
	if len(list.Failed) == 0 {
		return bad
	}
	o.all, o.reason, o.named = accepted, reasonPartial, make(map[position]failure, len(list.Failed))
	again := 0 // named entries that are to be tried again
	unsent := true
	for _, f := range list.Failed {
		if f.Batch < 0 || f.Batch >= len(batches) || f.Entry < 0 || f.Entry >= len(batches[f.Batch].Entries) {
			return bad
		}
		one := failure{retryable, f.Err}
		unsent = unsent && sink.IsUnsent(f.Err)
		after, throttled := sink.ThrottledFor(f.Err)
		o.after = max(o.after, after)
		o.reopen = o.reopen || errors.Is(f.Err, sink.ErrNotConnected)
		if !throttled && sink.IsPermanent(f.Err) {
			one.disposition = rejected
		}
		at := position{f.Batch, f.Entry}
		if before, twice := o.named[at]; twice && before.disposition == retryable {
			continue
		}
		if o.named[at] = one; one.disposition == retryable {
			again++
		}
	}
	entries := 0
	for _, b := range batches {
		entries += len(b.Entries)
	}
	o.noneTaken = again > 0 && len(o.named) == entries
	if again == entries {
		o.all, o.reason, o.unsent = retryable, reasonOf(list.Failed[0].Err), unsent
	}
	return o
}

// causeKnown reports whether no entry is to blame for a failed Write, or the sink named
// those that are. A throttle and a lost connection are the sink's.
func (o *writeOutcome) causeKnown() bool {
	switch o.reason {
	case reasonThrottled, reasonNotConnected, reasonStopped:
		return true
	}
	return o.named != nil || o.outlived
}

// divide is the outcome of a Write of all their batches for each of some pending Writes.
func (o *writeOutcome) divide(writes []*pendingWrite) []writeOutcome {
	list := make([]writeOutcome, len(writes))
	for i := range list {
		list[i] = *o
		list[i].named = nil
	}
	if o.named == nil {
		return list
	}
	type place struct{ write, batch int }
	var places []place // by the batch in the Write
	for i, w := range writes {
		for batch := range w.batches {
			places = append(places, place{i, batch})
		}
		list[i].after, list[i].reason = 0, ""
	}
	for at, f := range o.named {
		p := places[at.batch]
		own := &list[p.write]
		if own.named == nil {
			own.named = make(map[position]failure)
		}
		own.named[position{p.batch, at.entry}] = f
		own.reason = reasonPartial
		if after, ok := sink.ThrottledFor(f.err); ok {
			own.after = max(own.after, after)
		}
	}
	for i := range list {
		if again := list[i].retries(); again > 0 && again == writes[i].entries {
			list[i].all = retryable
		}
	}
	return list
}

// retries is how many entries the sink named to be tried again.
func (o *writeOutcome) retries() (n int) {
	for _, f := range o.named {
		if f.disposition == retryable {
			n++
		}
	}
	return n
}

// The closed set of reasons a Write or an Open can fail for.
const (
	reasonError         = "error"
	reasonTimeout       = "timeout"
	reasonThrottled     = "throttled"
	reasonPermanent     = "permanent"
	reasonPartial       = "partial"
	reasonNotConnected  = "not_connected"
	reasonUnsent        = "unsent"
	reasonPanic         = "panic"
	reasonBadBatchError = "bad_batch_error"
	reasonStopped       = "stopped"
)

// reasonRejected is the reason of a dead letter: the sink will never take the entry.
const reasonRejected = "rejected"

func reasonOf(err error) string {
	var p *panicError
	switch {
	case errors.As(err, &p):
		return reasonPanic
	case errors.Is(err, sink.ErrNotConnected):
		return reasonNotConnected
	case errors.Is(err, context.DeadlineExceeded):
		return reasonTimeout
	case sink.IsUnsent(err):
		return reasonUnsent
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
