package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// A Disposition is what becomes of an entry after a Write.
type Disposition uint8

const (
	Accepted  Disposition = iota // the sink has it
	Rejected                     // the sink will never take it
	Retryable                    // to be tried again
	Unwritten                    // there was no Write: the entry was not presented
)

// An Outcome is what the error of a Write means for its entries: all of them
// share one disposition, but for those that the sink named.
type Outcome struct {
	All    Disposition
	named  map[position]failure
	After  time.Duration // the sink's wish: no attempt sooner
	reopen bool          // the sink is not connected any more
	Unsent bool          // the target has seen none of the entries
	Reason string        // label of sink_failures, empty when all was accepted

	noneTaken bool // the sink named all entries, and some of them are to be tried again
	began     time.Time
	outlived  bool // the Write ended because an entry was about to go stale
}

// A position is where an entry is in a Write.
type position struct{ batch, entry int }

type failure struct {
	disposition Disposition
	err         error
}

// Of is the disposition of one entry, and the error behind it.
func (o *Outcome) Of(batch, entry int, err error) (Disposition, error) {
	if f, ok := o.named[position{batch, entry}]; ok {
		return f.disposition, f.err
	}
	return o.All, err
}

// sinkWide reports whether a failure is rather the sink's than the partition's.
func (o *Outcome) sinkWide() bool {
	switch o.Reason {
	case ReasonTimeout, reasonNotConnected, reasonThrottled:
		return true
	}
	return false
}

// Overloaded reports whether the sink throttled the Write, or did not answer it in time.
func (o *Outcome) Overloaded() bool {
	return o.After > 0 || o.Reason == reasonThrottled || o.Reason == ReasonTimeout && !o.outlived
}

// outcomeOf reads the error of a Write. Where an error says two things, the one
// that keeps the entries wins: an entry that is retried in vain expires in the end,
// but one that is dead-lettered in error is lost.
func outcomeOf(err error, batches []*sink.Batch) Outcome {
	if err == nil {
		return Outcome{All: Accepted}
	}
	o := Outcome{All: Retryable, reopen: errors.Is(err, sink.ErrNotConnected), Reason: reasonOf(err)}
	var named *sink.BatchError
	if errors.As(err, &named) {
		return o.ofNamed(named, batches)
	}
	o.Unsent = sink.IsUnsent(err)
	if after, ok := sink.ThrottledFor(err); ok {
		o.After, o.Reason = after, reasonThrottled
	} else if sink.IsPermanent(err) {
		o.All = Rejected
		o.Reason = ReasonPermanent
		o.Unsent = false
	}
	return o
}

func (o Outcome) ofNamed(list *sink.BatchError, batches []*sink.Batch) Outcome {
	bad := Outcome{All: Retryable, Reason: ReasonBadBatchError}
	if len(list.Failed) == 0 {
		return bad
	}
	o.All = Accepted
	o.Reason = reasonPartial
	o.named = make(map[position]failure, len(list.Failed))
	again := 0 // named entries that are to be tried again
	unsent := true
	for _, f := range list.Failed {
		if f.Batch < 0 || f.Batch >= len(batches) || f.Entry < 0 || f.Entry >= len(batches[f.Batch].Entries) {
			return bad
		}
		one := failure{Retryable, f.Err}
		unsent = unsent && sink.IsUnsent(f.Err)
		after, throttled := sink.ThrottledFor(f.Err)
		o.After = max(o.After, after)
		o.reopen = o.reopen || errors.Is(f.Err, sink.ErrNotConnected)
		if !throttled && sink.IsPermanent(f.Err) {
			one.disposition = Rejected
		}
		at := position{f.Batch, f.Entry}
		if before, twice := o.named[at]; twice && before.disposition == Retryable {
			continue
		}
		if o.named[at] = one; one.disposition == Retryable {
			again++
		}
	}
	entries := 0
	for _, b := range batches {
		entries += len(b.Entries)
	}
	o.noneTaken = again > 0 && len(o.named) == entries
	if again == entries {
		o.All = Retryable
		o.Reason = reasonOf(list.Failed[0].Err)
		o.Unsent = unsent
	}
	return o
}

// CauseKnown reports whether no entry is to blame for a failed Write, or the sink named
// those that are. A throttle and a lost connection are the sink's.
func (o *Outcome) CauseKnown() bool {
	switch o.Reason {
	case reasonThrottled, reasonNotConnected, ReasonStopped:
		return true
	}
	return o.named != nil || o.outlived
}

// Divide is the outcome of a Write of all their batches for each of some pending Writes.
func (o *Outcome) Divide(writes []*Pending) []Outcome {
	list := make([]Outcome, len(writes))
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
		for batch := range w.Batches {
			places = append(places, place{i, batch})
		}
		list[i].After, list[i].Reason = 0, ""
	}
	for at, f := range o.named {
		p := places[at.batch]
		own := &list[p.write]
		if own.named == nil {
			own.named = make(map[position]failure)
		}
		own.named[position{p.batch, at.entry}] = f
		own.Reason = reasonPartial
		if after, ok := sink.ThrottledFor(f.err); ok {
			own.After = max(own.After, after)
		}
	}
	for i := range list {
		if again := list[i].retries(); again > 0 && again == writes[i].Entries {
			list[i].All = Retryable
		}
	}
	return list
}

// retries is how many entries the sink named to be tried again.
func (o *Outcome) retries() (n int) {
	for _, f := range o.named {
		if f.disposition == Retryable {
			n++
		}
	}
	return n
}

// The closed set of reasons a Write or an Open can fail for.
const (
	reasonError         = "error"
	ReasonTimeout       = "timeout"
	reasonThrottled     = "throttled"
	ReasonPermanent     = "permanent"
	reasonPartial       = "partial"
	reasonNotConnected  = "not_connected"
	ReasonUnsent        = "unsent"
	ReasonPanic         = "panic"
	ReasonBadBatchError = "bad_batch_error"
	ReasonStopped       = "stopped"
)

// ReasonRejected is the reason of a dead letter: the sink will never take the entry.
const ReasonRejected = "rejected"

func reasonOf(err error) string {
	var p *panicError
	switch {
	case errors.As(err, &p):
		return ReasonPanic
	case errors.Is(err, sink.ErrNotConnected):
		return reasonNotConnected
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout
	case sink.IsUnsent(err):
		return ReasonUnsent
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
