// Package sink is the contract between the drain and the targets of batches.
//
// A sink turns batches into requests of its target, and says in its error
// whether a retry can help. The drain does everything else: retries with jitter
// until the deadline, removal of stale entries, bisecting, dead letters, the
// ledger, metrics. Package sinktest has the conformance suite for new sinks.
package sink

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// Sink writes batches to one target.
//
// Write may be called from up to Caps().MaxInFlight goroutines at once. It
// blocks until the target has answered or ctx ends. It does not sleep or retry,
// and keeps no reference to a payload after it returns.
//
// Batches of one partition arrive in order. After a failure or a crash a batch
// comes again, with a higher Attempt. A sink that names entries to retry
// (*BatchError) changes that order: they come again behind the entries it
// accepted. The returned error means:
//
//	nil                    every entry was accepted
//	any plain error        retryable, all of it, until the deadline
//	Permanent(err)         never retry; bisected if more than one entry, then dead letter
//	Unsent(err)            retryable, and no entry has left this process
//	Throttle(err, after)   retry no sooner than after
//	*BatchError            the entries it lists failed; what it does not name succeeded
//	ErrNotConnected        retryable, and Open is called again first
//
// When ctx ends first, the outcome is unknown, and the batch is retried. A Write
// whose ctx ended before it began returns an error and sends nothing. Errors are
// logged, so their texts are short and hold no secret and no part of a payload.
type Sink interface {
	// Open makes the sink ready. It is called with back-off until it returns
	// nil, and again after Write returned ErrNotConnected.
	Open(ctx context.Context) error
	// Write hands over batches, 1 to Caps().MaxBatches of them; ctx carries
	// their earliest useful deadline.
	Write(ctx context.Context, batches []*Batch) error
	// Close flushes and frees. No Write is running or follows. It may come
	// without an Open that succeeded, and twice.
	Close(ctx context.Context) error
	// Caps says what the sink can take. It is constant.
	Caps() Caps
}

// A Checker is a Sink that finds, before it is opened, what no retry mends: a folder that
// is missing, a program that may not be run. Check connects to nothing and changes nothing.
type Checker interface{ Check() error }

// A Warner is a Sink that finds, when it is opened, what works and yet keeps it from what it
// promises. Before Open it is given what logs a text, and the age at which its entries expire.
type Warner interface {
	WarnTo(log func(text string), maxAge time.Duration)
}

// Caps tells the drain how to call a sink. The zero value suits a sink that
// takes one batch per call from any number of goroutines.
//
// A sink whose target wants large requests sets Linger. The drain then coalesces:
// it gathers batches of any partitions, one run of consecutive batches for each, until they hold
// PreferEntries entries or MaxBytes bytes, or the first has waited for Linger. It waits
// no longer than the lease leaves the Write its timeout, 4 s with the defaults. Under
// at-most-once nothing is coalesced.
type Caps struct {
	MaxBatches    int           // batches in a Write, at most; 0 means 1. Without Linger they are consecutive batches of one partition
	MaxInFlight   int           // concurrent Writes, at most; 0 = as many as there are workers, fewer while they slow down
	PreferEntries int           // entries that a coalesced Write should hold; 0 = as many as MaxBatches allows
	MaxBytes      int           // payload bytes of a coalesced Write, at most, unless its first batch alone has more; 0 = 4 MiB
	Linger        time.Duration // how long a batch may wait for others; 0 = no coalescing
}

// Entry is one event: its sequence, its time, the client's id and the bytes as
// sent. Read-only, valid until Write returns.
type Entry = partition.Entry

// Batch is 1 to 128 entries of one partition, oldest first, or jobs of one queue.
// Entries that went stale, or were accepted before, are left out, so sequences may have
// gaps.
type Batch struct {
	Namespace string
	Partition string
	FirstSeq  int64     // sequence of the first entry
	End       int64     // one past the sequence that the batch was cut at, the same in each presentation; 0: a part of a batch, or jobs
	Attempt   int       // 1 on the first presentation, one more after each failure or lapse
	Deadline  time.Time // when its youngest entry goes stale; a retry never starts later
	Entries   []Entry
	Jobs      []Job // of a queue: one for each of Entries, which are jobs then; nil for a buffer

	id string
}

// Job is what an entry has more when it is a job of a queue. Then Batch.Partition is the
// queue, Entry.ID the job's id, Entry.Occurred when it was published, and Batch.Attempt
// the highest attempt of the batch.
type Job struct {
	Attempt    int       // deliveries of the job so far, with this one; from 1
	Tries      int       // deliveries that it may have
	Expires    time.Time // when it is not delivered any more; zero: never
	Attributes []byte    // a JSON object of strings, in which no line break is; nil: none
	// Answered, where it is not nil, is told what a target said when it took the job: the
	// status of HTTP, and the body, to which it keeps no reference. It is called before Write
	// returns, and only of a job that is alone in its batch.
	Answered func(status int, body []byte)
}

// Last reports whether no further delivery follows when this one fails.
func (j *Job) Last() bool { return j.Attempt >= j.Tries }

// ID identifies the batch: it repeats if and only if a retry or a replay
// carries exactly the same entries. Sinks that need finer deduplication use
// (Partition, Seq). 32 hex digits; computed on first use, so not by two
// goroutines at once, and Entries must not change afterwards.
func (b *Batch) ID() string {
	if b.id == "" {
		h := sha256.New()
		var n [8]byte
		field := func(p []byte) {
			binary.BigEndian.PutUint64(n[:], uint64(len(p)))
			h.Write(n[:])
			h.Write(p)
		}
		field([]byte(b.Namespace))
		field([]byte(b.Partition))
		for i := range b.Entries {
			e := &b.Entries[i]
			binary.BigEndian.PutUint64(n[:], uint64(e.Seq))
			h.Write(n[:])
			field(e.ID)
			field(e.Payload)
		}
		b.id = hex.EncodeToString(h.Sum(nil)[:16])
	}
	return b.id
}
