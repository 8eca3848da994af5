package sink

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNotConnected tells the drain to Open the sink again before the next Write.
var ErrNotConnected = errors.New("sink is not connected")

// Permanent marks err as one that no retry will mend.
func Permanent(err error) error { return &permanentError{err} }

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Throttle marks err as the target's wish to be left alone for the given time.
func Throttle(err error, after time.Duration) error { return &throttleError{err, after} }

// ThrottledFor returns the wait of an error marked by Throttle.
func ThrottledFor(err error) (time.Duration, bool) {
	var t *throttleError
	if !errors.As(err, &t) {
		return 0, false
	}
	return t.after, true
}

type throttleError struct {
	err   error
	after time.Duration
}

func (e *throttleError) Error() string { return e.err.Error() }
func (e *throttleError) Unwrap() error { return e.err }

// Unsent marks err as that of a Write of which nothing has left this process, or that the target turned
// away because a right or a password is wrong: it has not looked at the entries. A job of a queue keeps
// its try.
func Unsent(err error) error { return &unsentError{err} }

// IsUnsent reports whether err was marked by Unsent.
func IsUnsent(err error) bool {
	var u *unsentError
	return errors.As(err, &u)
}

type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// MaxDetail is the most bytes of a target's own text in a dead letter.
const MaxDetail = 256

// WithDetail adds to err the beginning of what the target said about it, at most
// MaxDetail bytes. It may repeat the payload or credentials, so it is not part of
// err's text, which is logged; only the dead letter has it, as "detail".
func WithDetail[T string | []byte](err error, text T) error {
	// More is kept than shown, so that a secret is found before it is cut in two.
	kept := strings.TrimSpace(string(text[:min(len(text), 4*MaxDetail)]))
	if kept == "" {
		return err
	}
	return &detailError{err, kept}
}

// Detail returns what WithDetail added, in valid UTF-8; "" for none.
func Detail(err error) string { return boundedText(heldDetail(err), MaxDetail) }

func heldDetail(err error) string {
	var d *detailError
	if !errors.As(err, &d) {
		return ""
	}
	return d.detail
}

type detailError struct {
	err    error
	detail string
}

func (e *detailError) Error() string { return e.err.Error() }
func (e *detailError) Unwrap() error { return e.err }

// BatchError lists the entries of a Write that failed. What it does not name
// succeeded; a BatchError that names nothing is a bug of the sink, and the
// drain treats it as a plain error.
type BatchError struct{ Failed []EntryError }

// EntryError is the failure of one entry, by its position in the Write's
// batches. Err is plain (retryable), Unsent, Permanent or Throttle.
type EntryError struct {
	Batch, Entry int
	Err          error
}

// Fail adds one entry to the list.
func (e *BatchError) Fail(batch, entry int, err error) {
	e.Failed = append(e.Failed, EntryError{batch, entry, err})
}

func (e *BatchError) Error() string {
	if len(e.Failed) == 0 {
		return "batch error that names no entry"
	}
	f := e.Failed[0]
	return fmt.Sprintf("%d entries failed, the first at batch %d entry %d: %v", len(e.Failed), f.Batch,
		f.Entry, f.Err)
}
