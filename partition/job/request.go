package job

import (
	"encoding/json"
	"slices"
	"time"
)

// Request and result are one struct for speed: a flush reuses its requests.

// Message is what a publisher says. Attributes is a JSON object of strings, or nil.
type Message struct{ Payload, Attributes []byte }

// MaxTries is the upper bound of Publish.Tries, MaxAttempt of attempts: each respawn adds a try.
const (
	MaxTries   = 65535
	MaxAttempt = 1<<31 - 1
)

// Publish is messages for one queue. They are stored whole or not at all.
type Publish struct {
	Namespace *Namespace
	Queue     string // a name that passes ValidQueue
	Shard     int    // one of Namespace.Shards(Queue), see HomeOf; afterwards where the jobs are
	// Delay is how long the jobs wait until they are ready: 0 to MaxDelay.
	Delay time.Duration
	// TTL is how long they live from now on, Delay included: 0 is for ever; to MaxTTL.
	TTL time.Duration
	// Tries is how often they are claimed at most: 1 to MaxTries. For a default see
	// Namespace.Tries.
	Tries int
	// CallerID is part of the id. While a job of the queue has it, dead or not, no other is
	// stored under it, and the result names that job. With one there is one message.
	CallerID string
	// Key makes a repeat within KeyTTL (0: 2m, to 24h) return the first result and store
	// nothing. Any text.
	Key    string
	KeyTTL time.Duration
	// Unique is how long no other job is stored under UniqueKey, 1 to MaxUniqueKey bytes, or without
	// one under CallerID, whatever becomes of the first: 0 (not) to MaxKeyTTL. Then there is one
	// message, and the result of another names the first. Each takes one of Policy.MaxKeys.
	Unique    time.Duration
	UniqueKey string
	// OnEnd is the queue that gets a follow-up job when a job ends; "": none.
	OnEnd string
	// Prepare makes the jobs wait for the commit of their publisher; nil: they do not.
	Prepare *Prepare
	// Messages are 1 to MaxMessages, in order; with a Key, Unique or CallerID also none: to find what is under them.
	Messages []Message
	By       string // who publishes, for traces; "": unknown

	// The result. The ids are Namespace.ID(Shard, Queue, First+i, CallerID). Valid where Err
	// is nil.
	First    int64 // sequence of the first job
	Count    int   // jobs, with the sequences from First on: Repeated, those of the earlier publish
	Repeated bool  // it is the result of an earlier publish with the same Key
	Exists   bool  // a job with this CallerID exists, or one was stored that is Unique still
	Err      error // nil, ErrTooManyJobs, ErrTooManyQueues, ErrNoRepeat, ErrBadArgument or one of a class

	follows bool   // it is a follow-up, which has room where publishers find none
	at      *shard // where it is stored; nil: it has its answer
}

// Bounds of requests.
const (
	MaxMessages  = 1000
	MaxCount     = 1000
	MaxQueues    = maxCallQueues // of a claim
	MaxDelay     = 1 << 32 * time.Second
	MaxTTL       = 1 << 32 * time.Second
	MaxTTR       = 1 << 32 * time.Second
	MaxKeyTTL    = 24 * time.Hour
	MaxUniqueKey = 255
)

// Claim asks for ready jobs of queues of one shard.
type Claim struct {
	Namespace *Namespace
	Shard     int
	Queues    []string // the most wanted first, each once; 1 to MaxQueues
	// TTR is how long the jobs are leased: 0 to MaxTTR.
	TTR time.Duration
	// Count is how many jobs it takes at most: 1 to MaxCount.
	Count int
	// MaxBytes bounds the records of the answer, about; 0 is 4 MiB. One job is always
	// handed out, however large.
	MaxBytes int
	// ReportLeft fills Left.
	ReportLeft bool
	By         string // who claims, for traces; "": unknown

	Jobs []Job
	// Left is how many ready jobs each of Queues had after the call, -1 where unknown; nil
	// without ReportLeft.
	Left []int
	// Held is how long the rate of each of Queues lets no job pass, in ms, where it has ready
	// ones and its rate is used up; else 0. nil without ReportLeft.
	Held []int64
	// More tells that the claim got fewer jobs than Count although its queues have more,
	// because the answer was full, other claims of the call got 1,000 or many expired jobs were
	// in the way: ask again. False: where it got fewer, its queues had no more, or their rates
	// let none pass.
	More bool
	// Err is nil also where there was no job. After ErrUnknown the jobs may be leased; the
	// lane gives them back before its next claim of the shard.
	Err error

	at *shard
}

// Job is a job as a claim or a read returns it.
type Job struct {
	Queue string
	ID    string
	Ref
	// Attempt is how often it was claimed, with this time; -1: unknown, of a dead job. It rises
	// with each claim: a respawn counts all tries before as used.
	Attempt   int
	Tries     int   // how often it is claimed at most, one more with each respawn
	Published int64 // Unix ms
	Expires   int64 // Unix ms; 0: never
	Now       int64 // Unix ms on the store's clock when it answered
	At        int64 // Unix ms: when its lease ends; of a read also when it comes due, its publisher is asked, it died or was acked; 0: ready
	Reason    Reason
	Bytes     int  // of the payload; of a list
	Deferred  bool // it is leased, and who settles it is not who claimed it
	// PHP is what the payload of a job of PHP's says of itself: a JSON object; nil: it is none.
	PHP []byte
	// Errors are why attempts failed, the newest first: the last three. Only reads have them.
	Errors []Failure
	// Progress is how far its attempt got, of a dead job the last that said so. Only reads have it.
	Progress *Progress
	// Result is what the ack of an acked one said: JSON, or nil.
	Result json.RawMessage
	// OnEnd is the queue that gets a follow-up when it ends: of a Get, and where OnEnds asked; "": none.
	OnEnd string
	// Bound: PHP's own code has to run it: it holds a lock, is part of a batch or begins a chain.
	Bound bool
	// Payload and Attributes share the memory of the answer.
	Payload, Attributes []byte
}

// A Failure is what a worker said with a Nack or Bury.
type Failure struct {
	Attempt int    `json:"attempt"`
	AtMS    int64  `json:"at_ms"` // Unix ms on the store's clock
	Error   string `json:"error"`
}

// Progress is what a worker said with a Touch.
type Progress struct {
	Percent int    // 0 to 100
	Note    string // MaxNote bytes of it are kept
}

// Ack says that nobody needs a job any more.
type Ack struct {
	Namespace *Namespace
	Queue     string
	Ref       Ref
	Result    []byte // of the work, for the follow-up and Rule.KeepAcked: 4 KiB at most
	Delete    bool   // nobody wants it any more: it is not kept, and not kept on
	Undone    bool   // and nobody did its work: events, traces and follow-ups tell that it was deleted
	Moved     bool   // it lives on elsewhere, with its follow-up: it counts as deleted, which only its schedule and who waits are told
	By        string // who acks, for traces; "": unknown

	Acked   bool // it was claimed before, once at least
	Deleted bool // it was never claimed. Neither: there was no such job
	Err     error

	at *shard // nil: there is no such job, or it has its answer
}

// Verb is what a Settle does.
type Verb uint8

// The verbs.
const (
	Nack    Verb = iota + 1 // give it back, ready after After; its last try: dead
	Bury                    // give it up: dead
	Touch                   // lease it for After from now on
	Defer                   // the same, and note that somebody else will settle it
	Requeue                 // give it back to the head of its queue, as if it had not been claimed
	Release                 // give it back whatever its try, ready after After: of PHP's queues only
)

// State is the state of a job.
type State uint8

// The states. Gone: there is no such job, or another holds it.
const (
	Gone State = iota
	Ready
	Delayed
	Dead
	Expired
	Lost
	Leased
	Prepared
	Acked // and kept: see Rule.KeepAcked
)

// String is the state in lower case.
func (s State) String() string {
	return [...]string{"gone", "ready", "delayed", "dead", "expired", "lost", "leased", "prepared", "acked"}[s]
}

// Reason is why a job died, or why a delayed one waits.
type Reason uint8

// The reasons. UnknownReason is that of other jobs.
const (
	UnknownReason Reason = iota
	Nacked               // its last try was given back
	Lapsed               // the lease of its last try ended: its worker was silent
	Buried               // it was given up
	Undecided            // it was prepared, and its publisher neither committed it nor rolled it back
	Unfit                // of PHP's queues: it had more deliveries than its tries
	Unreadable           // of PHP's queues: it is no JSON object
)

var reasonNames = [...]string{"", "nacked", "lapsed", "buried", "undecided", "unfit", "unreadable"}

// String is the reason in lower case, "" for UnknownReason.
func (r Reason) String() string { return reasonNames[r] }

// ReasonOf is the reason of that name that a job died of, UnknownReason for "" and others.
func ReasonOf(name string) Reason { return Reason(max(0, slices.Index(reasonNames[:], name))) }

// Settle changes or ends the lease of a job.
type Settle struct {
	Namespace *Namespace
	Queue     string
	Ref       Ref
	Attempt   int // that the caller holds; 0: any
	Verb      Verb
	After     time.Duration
	// Deadline is when the lease ends, Job.At of the claim; 0: any. It is for Requeue, which
	// takes the attempt back: the next holder has the same one, and a repeat must not take
	// the job from it.
	Deadline int64
	// Error is why the work failed, of Nack and Bury: any text, of which a line of MaxError bytes
	// is kept; of PHP's jobs only that of a dead one.
	Error    string
	Progress *Progress // of Touch; nil: unsaid
	By       string    // who settles, for traces; "": unknown

	State State // that it is in now
	Err   error

	at *shard // nil: there is no such job, or it has its answer
}

// Batch is requests that run together.
type Batch struct {
	Acks      []*Ack
	Settles   []*Settle
	Publishes []*Publish
	Claims    []*Claim
}

// Counts are the jobs of a queue.
type Counts struct {
	Ready, Dead int64
	// Delayed and Leased are -1 where too many of the shard are in both states to tell them
	// apart. Pending is their sum, always. Prepared jobs count as delayed.
	Delayed, Leased, Pending int64
	OldestReady              int64 // Unix ms when the first ready job was published; 0: none
	Reserved                 int64 // of a queue of PHP's: held by its own workers
}

// Ledger is the exact account of a namespace since its first job:
// Published = Acked + Expired + Deleted + Lost + Dead + Ready + Prepared + Delayed + Leased.
type Ledger struct {
	Published int64 `json:"published"`
	Acked     int64 `json:"acked"`   // removed after a claim
	Expired   int64 `json:"expired"` // their TTL ended, or their tries where dead letters are not kept
	Deleted   int64 `json:"deleted"` // removed before any claim, purged, or deleted as dead letters
	Lost      int64 `json:"lost"`    // removed by something other than Spillway
	Dead      int64 `json:"dead"`    // dead letters now
	Ready     int64 `json:"ready"`
	Prepared  int64 `json:"prepared"`
	Delayed   int64 `json:"delayed"`
	Leased    int64 `json:"leased"`
	Keys      int64 `json:"-"` // idempotency keys that are remembered; up to a quarter more, because they are counted in steps

	Died      int64 `json:"died"`      // became dead letters, since the first job
	Respawned int64 `json:"respawned"` // dead letters made ready again, since the first job
	Kept      int64 `json:"kept"`      // of Acked: those that can still be read
}

// Totals are those since the first job, by their label.
func (l Ledger) Totals() map[string]int64 {
	return map[string]int64{
		"published": l.Published,
		"acked":     l.Acked,
		"expired":   l.Expired,
		"deleted":   l.Deleted,
		"lost":      l.Lost,
		"died":      l.Died,
		"respawned": l.Respawned,
	}
}

// States are how many jobs there are by state.
func (l Ledger) States() map[string]int64 {
	return map[string]int64{"ready": l.Ready, "prepared": l.Prepared, "delayed": l.Delayed,
		"leased": l.Leased, "dead": l.Dead}
}
