package job

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// The errors of jobs. Every other error is in one of the classes of partition: ErrUnavailable,
// ErrUnknown, ErrBroken.
var (
	// ErrNoJob: there is no such job, or the queue has none.
	ErrNoJob = errors.New("no such job")
	// ErrTooManyJobs: more jobs than Policy.MaxJobs. Nothing was stored.
	ErrTooManyJobs = errors.New("too many jobs")
	// ErrTooManyQueues: a further queue beyond Policy.MaxQueues. Nothing was stored.
	ErrTooManyQueues = errors.New("too many queues")
	// ErrTooManyKeys: a further idempotency key beyond Policy.MaxKeys. Nothing was stored.
	ErrTooManyKeys = partition.ErrTooManyKeys
	// ErrClosed is ErrUnavailable: the namespace is being deleted, and takes no job.
	ErrClosed = backend.Wrap(backend.ErrUnavailable, errors.New("the namespace is being deleted"))
	// ErrBadArgument: a request outside its bounds, which is a bug of the caller. Nothing ran.
	ErrBadArgument = errors.New("bad argument")
)

// isAnswer reports whether Redis itself answered with the error: the script did not hand out
// anything.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
