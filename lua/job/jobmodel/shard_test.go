package jobmodel

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// HeadCheck is the ms after which a queue whose head never expires is looked at again.
const HeadCheck = 3600000

// Ref names a job within a shard.
type Ref struct {
	Queue string
	Seq   int64
}

func (r Ref) String() string { return fmt.Sprintf("%s/%d", r.Queue, r.Seq) }

// Job is what the record of a job says.
type Job struct {
	Seq        int64
	Ends       int64 // ms, 0 = never
	Tries      int
	CallerID   string
	Attributes string // a JSON object, or ""
	Payload    string
}

// Record is the job as Redis stores it.
func (j *Job) Record() string {
	form := " "
	if j.Attributes != "" {
		form = fmt.Sprintf("#%d,%s", len(j.Attributes), j.Attributes)
	}
	if j.CallerID != "" {
		form = "@" + j.CallerID + form
	}
	return fmt.Sprintf("%013d %d%s%s", j.Ends, j.Tries, form, j.Payload)
}

func (j *Job) expired(now int64) bool { return j.Ends > 0 && j.Ends <= now }

// Queue is what belongs to one queue of a shard.
type Queue struct {
	Jobs  map[int64]*Job
	Ready []int64           // sequences, oldest first; a tombstone is one without a job
	Dead  map[int64]float64 // sequence → ms of death, and a quarter for each step of Reason
	IDs   map[string]int64  // caller's id → sequence

	shifts int                // what moved the list but claims at its head and pushes to its tail
	Acked  map[int64]Kept     // sequence → acked job that is kept
	Errors map[int64][]string // sequence → why attempts failed, the newest first: attempt, ms and text
	// Progress: sequence → how far an attempt got: attempt, percent and text
	Progress map[int64]string
}

// A Wake is one message on the channel of a queue: it has jobs again.
type Wake struct {
	Queue string
	Count int
}

// Shard is the model of one shard.
type Shard struct {
	NowUS      int64
	Ledger     map[string]int64
	Delay      map[Ref]float64 // ms
	Lease      map[Ref]float64 // deadline, ms; .5 = the last try
	Attempts   map[Ref]int64   // absent: 0, or 1 while leased
	Queues     map[string]int64
	Tombstones map[string]int64
	Queue      map[string]*Queue
	Paused     map[string]string  // queue → since when, ms, and who
	Taken      map[string]int64   // queue → what claims took since somebody began to list it
	Handed     map[string]*Handed // by lane
	Stored     map[string]Stored  // queue/key → the answer to a repeated publish
	Uniques    map[string]Unique  // queue/key → the job that was stored under it
	Keys       map[int64]int64    // idempotency keys by when they end to count, s
	Slots      map[Ref]bool       // leases of limited queues
	Waited     map[string]bool    // queues of which a claim found no slot
	Limits     map[string]int     // what claims say
	Keeping    map[string]Keep    // what acks say
	KeptQueues map[string]int64   // queues that keep acked jobs, by when the first is over, ms
	Wakes      []Wake             // not yet delivered
	Keeps      func(queue string) bool

	freed []Ref  // what the verb under way took from a holder or out of delay
	bug   string // the name of a seeded bug, "" for none
}

// Handed is what the last claim of a lane handed out.
type Handed struct {
	Token string
	Jobs  []lease
}

type lease struct {
	Ref      Ref
	Deadline float64
}

// NewShard is an empty shard at a time of its clock. keeps says which queues keep
// their dead jobs; bug names a bug of Bugs, or is "".
func NewShard(nowUS int64, keeps func(queue string) bool, bug string) *Shard {
	return &Shard{
		NowUS: nowUS, Keeps: keeps, bug: bug,
		Ledger: map[string]int64{}, Delay: map[Ref]float64{}, Lease: map[Ref]float64{}, Attempts: map[Ref]int64{},
		Queues: map[string]int64{}, Tombstones: map[string]int64{}, Queue: map[string]*Queue{}, Paused: map[string]string{}, Taken: map[string]int64{},
		Handed: map[string]*Handed{}, Stored: map[string]Stored{}, Uniques: map[string]Unique{}, Keys: map[int64]int64{},
		Slots: map[Ref]bool{}, Waited: map[string]bool{}, Limits: map[string]int{},
		Keeping: map[string]Keep{}, KeptQueues: map[string]int64{},
	}
}

func (s *Shard) now() int64 { return s.NowUS / 1000 }

func (s *Shard) queue(name string) *Queue {
	q := s.Queue[name]
	if q == nil {
		q = &Queue{Jobs: map[int64]*Job{}, Dead: map[int64]float64{}, IDs: map[string]int64{}, Errors: map[int64][]string{}, Progress: map[int64]string{}, Acked: map[int64]Kept{}}
		s.Queue[name] = q
	}
	return q
}

// live is how many jobs the shard holds, by the ledger.
func (s *Shard) live() int64 {
	l := s.Ledger
	return l["published"] - l["acked"] - l["expired"] - l["deleted"] - l["lost"]
}

// empty says that no state of the shard has a job, nor a reference to one.
func (s *Shard) empty() bool {
	n := len(s.Delay) + len(s.Lease)
	for _, q := range s.Queue {
		n += len(q.Jobs) + len(q.Ready) + len(q.Dead)
	}
	return n == 0
}

// wake tells those who wait, if the push found the list empty.
func (s *Shard) wake(queue string, length, pushed int) {
	if length == pushed {
		s.Wakes = append(s.Wakes, Wake{queue, pushed})
	}
}

// drop removes the job and what its caller's id says of it.
func (q *Queue) drop(j *Job) {
	delete(q.Jobs, j.Seq)
	q.dropTexts(j.Seq)
	q.dropID(j.CallerID, j.Seq)
}

// dropTexts forgets what workers said of a job.
func (q *Queue) dropTexts(seq int64) {
	delete(q.Errors, seq)
	delete(q.Progress, seq)
}

func (q *Queue) dropID(callerID string, seq int64) {
	if callerID != "" && q.IDs[callerID] == seq {
		delete(q.IDs, callerID)
	}
}

// dangling counts a reference of the ready list without a job: a tombstone, or a
// job that something else removed, which is lost.
func (s *Shard) dangling(ref Ref) {
	delete(s.Attempts, ref)
	s.queue(ref.Queue).dropTexts(ref.Seq)
	if s.Tombstones[ref.Queue] > 0 {
		s.Tombstones[ref.Queue]--
	} else {
		s.Ledger["lost"]++
	}
}

// clearTombstones ends a call that met references without a job.
func (s *Shard) clearTombstones(name string) {
	if len(s.queue(name).Ready) == 0 {
		delete(s.Tombstones, name)
	}
}

// forget drops all of a queue that has no job left. References that are more than
// the tombstones are lost jobs.
func (s *Shard) forget(name string) {
	q := s.queue(name)
	if len(q.Jobs) > 0 || s.bug == "forgets no queue" {
		return
	}
	if missing := int64(len(q.Ready)) - s.Tombstones[name]; len(q.Ready) > 0 && missing > 0 {
		s.Ledger["lost"] += missing
	}
	q.shifts += len(q.Ready)
	q.Ready = nil
	if s.bug != "forgets a queue but its tombstones" {
		delete(s.Tombstones, name)
	}
	delete(s.Queues, name)
}

// SetNow sets the shard's clock, µs.
func (s *Shard) SetNow(us int64) {
	s.NowUS = us
	maps.DeleteFunc(s.Uniques, func(_ string, u Unique) bool { return u.Until <= s.now() })
}

// Vanish removes the record of a job, as a foreign program would.
func (s *Shard) Vanish(ref Ref) { delete(s.queue(ref.Queue).Jobs, ref.Seq) }

// Unlist removes a job from wherever its state is kept, as a foreign program would.
func (s *Shard) Unlist(ref Ref) {
	q := s.queue(ref.Queue)
	q.shifts++
	q.Ready = slices.DeleteFunc(q.Ready, func(seq int64) bool { return seq == ref.Seq })
	delete(s.Delay, ref)
	delete(s.Lease, ref)
}

// Reason is why a job is dead.
type Reason int

// The numbers are those of the scripts' answers. NoReason: something else wrote the score.
const (
	NoReason Reason = iota
	Nacked
	Lapsed
	Buried
)

// death is the score of a job that dies.
func (r Reason) death(now int64) float64 { return float64(now) + float64(r)/4 }

// reasonOf is the other way.
func reasonOf(death float64) Reason { return Reason((death - math.Floor(death)) * 4) }

func lastTry(deadline float64) bool { return deadline != math.Floor(deadline) }

// Totals are the fields of a ledger that Picture shows.
var Totals = []string{"seq", "published", "acked", "expired", "deleted", "lost", "dead", "died", "respawned", "kept"}

// Picture is all that a shard holds, a line for each fact, sorted. A shard in Redis
// that is equal has the same lines.
func (s *Shard) Picture() []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, total := range Totals {
		add("ledger %s %d", total, s.Ledger[total])
	}
	for ref, at := range s.Delay {
		add("delay %d %s %s", ref.Seq, ref.Queue, Score(at))
	}
	for ref, at := range s.Lease {
		add("lease %d %s %s", ref.Seq, ref.Queue, Score(at))
	}
	for ref, n := range s.Attempts {
		add("attempts %d %s %d", ref.Seq, ref.Queue, n)
	}
	for name, at := range s.Queues {
		add("queues %s %d", name, at)
	}
	for name, n := range s.Tombstones {
		if n != 0 {
			add("tombstones %s %d", name, n)
		}
	}
	for key, x := range s.Stored {
		add("stored %s %d %d", key, x.First, x.Count)
	}
	for key, u := range s.Uniques {
		add("unique %s %d 1", key, u.First)
	}
	for name, text := range s.Paused {
		add("paused %s %s", name, text)
	}
	for name, n := range s.Taken {
		add("taken %s %d", name, n)
	}
	lines = append(lines, s.slotLines()...)
	for name, at := range s.KeptQueues {
		add("kept %s %d", name, at)
	}
	for lane, h := range s.Handed {
		add("handed %s %s", lane, h.Token)
	}
	for name, q := range s.Queue {
		for seq, j := range q.Jobs {
			add("job %s %d %s", name, seq, j.Record())
		}
		if len(q.Ready) > 0 {
			add("ready %s %v", name, q.Ready)
		}
		for seq, at := range q.Dead {
			add("dead %s %d %s", name, seq, Score(at))
		}
		for id, seq := range q.IDs {
			add("id %s %s %d", name, id, seq)
		}
		for seq, k := range q.Acked {
			add("until %s %d %d", name, seq, k.Until)
			add("acked %s %d %s", name, seq, k.Record)
			add("acked %s !%d %s", name, seq, k.Said)
		}
		for seq, list := range q.Errors {
			add("id %s !%d %s", name, seq, strings.Join(list, "\n"))
		}
		for seq, text := range q.Progress {
			add("id %s %%%d %s", name, seq, text)
		}
	}
	slices.Sort(lines)
	return lines
}

// Score is a score of delay, lease or the dead as Redis writes it.
func Score(ms float64) string { return strconv.FormatFloat(ms, 'f', -1, 64) }

// Bugs are mistakes that can be put into the model: a walk that has one of them must
// break a promise. Mistakes of the scripts' text are seeded beside the scripts.
var Bugs = []string{
	"sequences follow the clock",
	"a caller's id is not looked up",
	"an expired job keeps its caller's id",
	"an expired job outlives its caller's id",
	"an ack finds expired jobs",
	"a lapsed lease holds an expired job",
	"a respawn begins attempts anew",
	"the quota is not checked",
	"forgets no queue",
	"forgets a queue but its tombstones",
	"a tombstone ends a claim",
	"a claim hands out expired jobs",
	"the last try is not marked",
	"revert ignores the token",
	"revert ignores the deadline",
	"revert counts the attempt",
	"a paused queue gives jobs",
	"a resume wakes nobody",
	"claims are not counted for lists",
	"a list counts from its head",
	"an ack keeps the errors",
	"the first error is kept",
	"the first progress is kept",
	"a requeue keeps the progress",
	"an ack leaves no tombstone",
	"settle ignores the attempt",
	"requeue counts the attempt",
	"requeue ignores the deadline",
	"settle wakes nobody",
	"touch grants another try",
	"nack forgets the attempt",
	"promote trusts what was read",
	"promote wakes nobody",
	"a lapse never ends a job",
	"a lapse forgets the attempt",
	"an expired head is not counted",
	"purge does not count",
	"dead jobs expire",
	"a bury counts as a nack",
	"a lapse counts as a nack",
	"the audit finds nothing",
	"a claim goes over the limit",
	"an end keeps its slot",
	"a revert keeps its slot",
	"a lapse keeps its slot",
	"a freed slot wakes nobody",
	"a claim without a slot leaves no word",
	"kept jobs make no room",
	"a queue keeps as many as there are places",
	"a unique key is not looked up",
	"kept jobs that are over still count",
}
