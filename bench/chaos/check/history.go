package check

import (
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// History is everything known of a run. It is complete: nothing moved any more
// when the last of it was read.
type History struct {
	Policy    Policy
	Sent      []Sent   // one an entry, in any order
	Posts     []Post   // as the sink met them
	Samples   []Sample // of one shard each, atomic
	Final     Final
	Processes []Process
	Faults    []Fault
	Floor     Floor
	Jobs      *Jobs      // nil: the run had no queues
	Schedules *Schedules // nil: it had none
	All       []Namespace
	Pauses    []Pause   // of partitions
	Ended     time.Time // when the last entry was settled, or waited for in vain
}

// Policy is what the servers were told to do, as far as the checks need it.
type Policy struct {
	Capacity int
	MaxAge   time.Duration
	Lease    time.Duration
	// Forgets says that the store may lose its newest writes when it is killed,
	// ledger and all. What was acknowledged may then be gone, but somebody must
	// have noticed; checks that go by what became of each entry are not made.
	Forgets bool
	// Replicated says that a replica has what is acknowledged before the client hears of it. When it is
	// promoted, other newest writes may be lost; samples in which a ledger steps back tell of that, and
	// the store then counts as one that forgets.
	Replicated bool
}

// Outcome is what a client knows of an entry.
type Outcome uint8

// The outcomes. An entry that was rejected is certainly not stored.
const (
	Rejected Outcome = iota
	Unknown
	Acked
)

// Sent is an entry as its client knows it.
type Sent struct {
	UID        uint64 // unique in the run
	Partition  string
	Start, End time.Time // of its request, repeats under the same key included
	Outcome    Outcome
}

// Post is one presentation of a batch to the sink. Those whose request did not
// arrive whole are none.
type Post struct {
	Worker    string // the process that sent it, by the name its faults have
	Partition string
	Batch     string
	Attempt   int
	At        time.Time // when it had arrived
	Answered  time.Time
	Status    int  // 0: the connection was closed instead
	Kept      bool // the sink has the entries, whatever it answered
	Lines     []Line
}

func (p *Post) String() string {
	return fmt.Sprintf("batch %s of %s (attempt %d, %d entries) by %s at %s, answered %d",
		p.Batch, p.Partition, p.Attempt, len(p.Lines), p.Worker, p.At.Format("05.000"), p.Status)
}

// taken says that the sink has the entries and said so.
func (p *Post) taken() bool { return p.Kept && p.Status == 200 }

// Line is one entry of a Post.
type Line struct {
	Seq  int64
	TS   int64 // Unix ms on the store's clock
	Data Payload
}

// Sample is one shard at one moment.
type Sample struct {
	At         time.Time
	Shard      int
	Ledger     map[string]int64 // the fields of its ledger
	Partitions []Depth          // every partition of the run, also those of other shards
}

// Depth is a partition in a Sample.
type Depth struct {
	Partition  string
	Length     int64
	Known      bool // its hash is there, with
	Head, Tail int64
	Active     bool // it is in the active set
}

// Final is the account at the end.
type Final struct {
	Ledger      partition.Ledger
	Residual    int64 // of the server's own audit
	DeadLetters int64 // kept
	DeadEvicted int64
	Reclaimed   int64
	Dead        []uint64 // uids of the dead letters
	Leftover    []string // keys of partitions, and members of the active set
}

// Namespace is what the keys of a namespace hold in the end, entries or jobs of all states,
// and what its ledger says. Of some their entries are followed, too.
type Namespace struct {
	Name    string
	Counted int64
	Ledger  map[string]int64

	Once  bool // at most once
	Sent  []Sent
	Posts []Post
}

// Pause is a partition, or a queue, that an operator paused and resumed.
type Pause struct {
	Partition string
	From, To  time.Time // confirmed; until somebody asks for the end
	Listed    bool      // at the end of that it is among the pauses
}

// Process is one life of a Spillway process. Its figures are those of /metrics.
type Process struct {
	Name    string
	Masters float64            // of the store; 0: one
	Alive   bool               // it lived until the end
	Afresh  bool               // its counters began again at a reload
	Birth   map[string]float64 // when it was ready, and before it had work
	Last    map[string]float64 // the last that could be had
	Garbage bool               // Last was read after a collection, with clients and sink gone
}

// Fault is one that was injected, from its beginning to its end.
type Fault struct {
	Kind, Target string
	From, To     time.Time
	Offset       time.Duration // of a clock step: what the store's clock is ahead of this machine's by from then on
}

// KindStop is the kind of fault that freezes a process and thaws it. Of Machine
// it is what nobody planned: everything stood still for a while. KindClockStep
// steps the store's wall clock.
const (
	KindStop      = "stop"
	Machine       = "machine"
	KindClockStep = "clock-step"
)

// Floor is what a run must reach not to be void.
type Floor struct {
	Acks, Unknowns, Taken int // entries
	Faults                int
}
