package spillway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Errors of Queues, beside ErrTooLarge and ErrEmpty. Each is what an *Error Is.
var (
	ErrNoJob            = errors.New("spillway: there is no such job, or the queue has none")
	ErrNoTrace          = errors.New("spillway: no trace of the job is kept")
	ErrGone             = errors.New("spillway: the job is not leased to this attempt any more")
	ErrTooManyJobs      = errors.New("spillway: the namespace has max_jobs jobs")
	ErrNoSchedule       = errors.New("spillway: there is no such schedule")
	ErrTooManySchedules = errors.New("spillway: the namespace has max_schedules schedules")
	ErrNoOwner          = errors.New("spillway: no such owner is registered")
	ErrOtherOwner       = errors.New("spillway: the schedule belongs to another owner")
	ErrOldVersion       = errors.New("spillway: a newer version of the owner is registered")
	ErrUnfinished       = errors.New("spillway: the last run of the schedule is unfinished")
	ErrNotDelayed       = errors.New("spillway: the job is not delayed, or was claimed before")
	ErrPrepared         = errors.New("spillway: the job is prepared: commit it, or roll it back")
	ErrNotPrepared      = errors.New("spillway: the job is not prepared")
	ErrDecided          = errors.New("spillway: the opposite was decided before")
	ErrTooManyKeys      = errors.New("spillway: the namespace remembers max_keys idempotency keys")
	ErrTooManyQueues    = errors.New("spillway: the namespace has max_queues queues")
	ErrNoNamespace      = errors.New("spillway: there is no such namespace, or none of kind queue")
	ErrUnauthorized     = errors.New("spillway: the token is missing, or not one of this namespace")
	ErrRateLimited      = errors.New("spillway: the token has used its rate")
	ErrInvalid          = errors.New("spillway: the service rejects the request, and would again")
	ErrUnavailable      = errors.New("spillway: the service cannot serve the request now; nothing was done")
	ErrUnknown          = errors.New("spillway: the service may have done what was asked")
)

// An Error is an answer that is none, or that says no.
type Error struct {
	Status     int    // of HTTP; 0: no answer
	Code       string // the service's, such as too_many_jobs; empty: it gave none
	Message    string
	RetryAfter time.Duration // the service's wish
	Unknown    bool          // it may have been done
	is         error         // one of the errors above
	ended      error         // of the call's context, where it ended first
}

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%v: %s", e.is, e.Message)
	}
	return fmt.Sprintf("%v: %s: %s", e.is, e.Code, e.Message)
}

// Unwrap is one of the errors of Queues.
func (e *Error) Unwrap() error { return e.is }

// Is reports whether target is why the call's context ended, where it did.
func (e *Error) Is(target error) bool { return e.ended != nil && errors.Is(e.ended, target) }

// temporary reports whether another attempt may help.
func (e *Error) temporary() bool {
	return e.is == ErrUnavailable || e.is == ErrUnknown || e.is == ErrRateLimited
}

// barred reports whether the service rejects the token or the namespace, which may change.
func (e *Error) barred() bool { return e.is == ErrUnauthorized || e.is == ErrNoNamespace }

// codes are the service's codes that have an error of their own. The others are ErrInvalid with
// a status below 500.
var codes = map[string]error{
	"no_such_job":        ErrNoJob,
	"no_such_trace":      ErrNoTrace,
	"no_such_schedule":   ErrNoSchedule,
	"too_many_schedules": ErrTooManySchedules,
	"run_unfinished":     ErrUnfinished,
	"no_such_owner":      ErrNoOwner,
	"other_owner":        ErrOtherOwner,
	"old_version":        ErrOldVersion,
	"not_delayed":        ErrNotDelayed,
	"prepared":           ErrPrepared,
	"not_prepared":       ErrNotPrepared,
	"already_decided":    ErrDecided,
	"too_many_jobs":      ErrTooManyJobs,
	"too_many_keys":      ErrTooManyKeys,
	"too_many_queues":    ErrTooManyQueues,
	"no_such_namespace":  ErrNoNamespace,
	"unauthorized":       ErrUnauthorized,
	"forbidden":          ErrUnauthorized,
	"cross_origin":       ErrUnauthorized,
	"rate_limited":       ErrRateLimited,
	"empty_body":         ErrEmpty,
	"empty_batch":        ErrEmpty,
	"body_too_large":     ErrTooLarge,
	"entry_too_large":    ErrTooLarge,
	"too_many_entries":   ErrTooLarge,
	"request_timeout":    ErrUnavailable,
	"hung_up":            ErrUnknown,
	"internal":           ErrUnknown,
	"store_unavailable":  ErrUnavailable,
	"store_full":         ErrUnavailable,
	"overloaded":         ErrUnavailable,
	"shutting_down":      ErrUnavailable,
	"not_ready":          ErrUnavailable,
}

// errBuffer is the error of a publish that a buffer answers.
func errBuffer() *Error {
	return &Error{
		Status:  http.StatusOK,
		Message: "the namespace is a buffer, and took the payload as an entry; jobs are for one of kind queue",
		is:      ErrNoNamespace,
	}
}

// newError is the error of an answer.
func newError(r *http.Response, body []byte) *Error {
	var said struct{ Error, Message, Outcome string }
	_ = json.Unmarshal(body, &said)
	e := &Error{
		Status:     r.StatusCode,
		Code:       said.Error,
		Message:    fmt.Sprintf("%.200s", said.Message),
		RetryAfter: retryAfter(r.Header.Get("Retry-After")),
		Unknown:    said.Outcome == "unknown",
		is:         codes[said.Error],
	}
	if e.Code == "" {
		e.Message = fmt.Sprintf("the service answered %d %s", r.StatusCode, http.StatusText(r.StatusCode))
	}
	switch {
	case e.is != nil:
	case r.StatusCode == http.StatusTooManyRequests:
		e.is = ErrRateLimited
	case r.StatusCode < http.StatusInternalServerError:
		e.is = ErrInvalid
	default: // something in between, which may have passed the request on
		e.is = ErrUnknown
	}
	if e.Unknown {
		e.is = ErrUnknown
	}
	e.Unknown = e.is == ErrUnknown
	return e
}

// notAnswered is the error of a request without an answer. Only one that found no connection
// is known to have done nothing.
func notAnswered(err error) *Error {
	e := &Error{Message: err.Error(), Unknown: true, is: ErrUnknown}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		e.Unknown, e.is = false, ErrUnavailable
	}
	// The URL repeats itself in the errors of http, and says nothing new.
	if _, cause, found := strings.Cut(e.Message, `": `); found {
		e.Message = cause
	}
	return e
}
