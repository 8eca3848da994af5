package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/human"
	"github.com/spillway-io/spillway/partition/drops"
)

// What is judged by. An alert that looks at the same figure has the same number, which a test compares.
const (
	nearMaxAge    = 0.7              // of max_age: time to act before entries expire
	nearFull      = 0.8              // of max_jobs, and of the capacity of a partition
	rejectedShare = 0.01             // of the entries that clients send
	overdueFor    = 30 * time.Second // that entries are due, and none is delivered
	unreadFor     = 15 * time.Second // that a ledger, which is read every second, was not
	failsFor      = time.Second      // that a sink fails
	outboxFor     = time.Minute      // that a follow-up waits for its queue: a mover takes a second
)

// A Level says how bad a finding is.
type Level string

// Levels, the best first. Lost is also what clients are told was not taken in, where that is everything.
const (
	OK     Level = "ok"
	Notice Level = "notice"
	Risk   Level = "risk"
	Loss   Level = "loss"
)

// Rank is higher for what is worse.
func (l Level) Rank() int { return slices.Index([]Level{OK, Notice, Risk, Loss}, l) }

// A Finding is something that a person should know of.
type Finding struct {
	Level     Level  `json:"level"`
	Namespace string `json:"namespace,omitempty" help:"Absent: of the whole service."`
	Partition string `json:"partition,omitempty" help:"The partition that causes most of it."`
	Queue     string `json:"queue,omitempty" help:"The queue that causes most of it."`
	What      string `json:"what"`
	SinceMS   int64  `json:"since_ms,omitempty" help:"Absent: not known."`
	Why       string `json:"why,omitempty"`
	Do        string `json:"do,omitempty"`
	Command   string `json:"command,omitempty"`

	state  string // what is so for now, as a name that stays the same; "": it holds by itself, or need not
	past   bool   // it was, less than a minute ago
	weight int64  // of two of a level, what has more comes first
}

// Text is the finding in one line.
func (f Finding) Text() string {
	text := f.What
	if f.Namespace != "" {
		text = f.Namespace + ": " + text
	}
	for _, more := range []string{f.Why, f.Do} {
		if more != "" {
			text += "; " + more
		}
	}
	if f.Command != "" {
		text += ": " + f.Command
	}
	return text
}

// Findings are the answer to the question whether data is lost, whose, and why.
type Findings struct {
	NowMS    int64     `json:"now_ms"`
	Level    Level     `json:"level" help:"Of the worst."`
	Headline string    `json:"headline"`
	Findings []Finding `json:"findings" help:"The worst first."`
}

type findingsQuery struct {
	only
	audited
}

func (s *Server) findings(r *request, q *findingsQuery) (Findings, error) {
	o, err := s.overview(r, &q.only)
	found := o.Findings
	if err != nil || !q.Audit {
		return found, err
	}
	var names []string
	for _, n := range o.Namespaces {
		names = append(names, n.Namespace)
	}
	for _, q := range o.Queues {
		names = append(names, q.Namespace)
	}
	for _, namespace := range names {
		n, err := s.residual(r, namespace)
		if err != nil {
			return found, err
		}
		if *n != 0 {
			found.Findings = append(found.Findings, Finding{Level: Loss, Namespace: namespace,
				What: fmt.Sprintf("the ledger and a count differ by %d", *n),
				Why:  "something other than Spillway changed keys in Redis, or this is a bug",
				Do:   "stop what else writes to them; if nothing does, report it with the log"})
		}
	}
	return conclude(found.NowMS, found.Findings), nil
}

// conclude puts the worst first, and says what all come to.
func conclude(now int64, found []Finding) Findings {
	slices.SortStableFunc(found, func(a, b Finding) int {
		ofAll := cmp.Compare(min(1, len(a.Namespace)), min(1, len(b.Namespace)))
		return cmp.Or(cmp.Compare(b.Level.Rank(), a.Level.Rank()), ofAll, cmp.Compare(b.weight, a.weight))
	})
	all := Findings{NowMS: now, Level: OK, Headline: "no data is being lost", Findings: found}
	if len(found) > 0 {
		all.Level = found[0].Level
	}
	switch {
	case slices.ContainsFunc(found, func(f Finding) bool { return f.Level == Loss && !f.past }):
		all.Headline = "data is being lost or rejected"
	case all.Level == Loss:
		all.Headline = "no data is being lost now, but it was within the last minute"
	case slices.ContainsFunc(found, func(f Finding) bool { return f.Level == Risk && !f.past }):
		all.Headline = "no data is being lost, but it is at risk"
	case all.Level == Risk:
		all.Headline = "no data is being lost, but it was at risk within the last minute"
	}
	return all
}

// A judge makes findings.
type judge struct {
	now       time.Time
	namespace string // that is judged; empty: the store
	found     []Finding
}

func (j *judge) add(f Finding) {
	f.Namespace = j.namespace
	j.found = append(j.found, f)
}

func (j *judge) ago(at int64) string { return human.Since(j.now.UnixMilli() - at) }

// notReady is the state of a store that cannot be used.
const notReady = "not ready"

func (j *judge) store(s StoreState) {
	if !s.Ready {
		j.add(Finding{Level: Loss, state: notReady, What: "the store is not ready: what clients send is rejected, and nothing is delivered",
			Why: s.Error, Do: "repair Redis; Spillway comes back by itself"})
	}
	for _, text := range s.Warnings {
		f := Finding{Level: Notice, What: text}
		if isFull(text) && s.Ready {
			f = Finding{Level: Loss, state: "full", Why: text, What: "the store's memory is full: what clients send is rejected with store_full, " +
				"what is stored is still delivered, which makes room", Do: "give Redis memory"}
		}
		j.add(f)
	}
}

// unread says that the Redis of a pool is away, while others are not.
func (j *judge) unread(readAt int64, late time.Duration) bool {
	if late <= unreadFor {
		return false
	}
	f := Finding{Level: Notice, state: "unread", SinceMS: readAt, Do: "see /readyz of the admin port, which names pools that are away",
		What: "it was not read yet: it is new, or its Redis is away"}
	if readAt != 0 {
		f.Level = Loss
		f.What = "its Redis has not answered for " + j.ago(readAt) + ": what clients send is rejected, and these figures are old"
	}
	j.add(f)
	return true
}

// An outcome is a way in which entries or jobs should not end.
type outcome struct {
	name        string
	level       Level
	one, many   string
	why         string
	do, command string // of a namespace
}

var entriesEnd = []outcome{
	{"lost", Loss, "entry was lost", "entries were lost", "something other than Spillway removed them from Redis",
		"check that maxmemory-policy is noeviction, and that nobody else uses keys below --prefix", ""},
	{"expired", Loss, "entry expired", "entries expired", "older than max_age before a sink took them",
		"repair or widen the sink; until then a fallback or a greater max_age keeps them", "spillway ls %s --sort age"},
	{"evicted", Loss, "entry was evicted", "entries were evicted", "partitions are full, and each keeps its newest",
		"repair or widen the sink, or raise capacity; a rate on its token bounds a single sender", "spillway ls %s --sort evicted"},
	{"dead_letters_evicted", Loss, "dead letter was dropped", "dead letters were dropped", "there are more than max_dead or max_dead_bytes keep",
		"stop what makes them, or raise the limits", "spillway dead ls %s"},
	{"dead", Risk, "entry became a dead letter", "entries became dead letters", "the sink rejects them for good; dead letters are kept",
		"repair the sender or the target, then replay them", "spillway dead ls %s --by cause"},
}

var jobsEnd = []outcome{
	{"lost", Loss, "job was lost", "jobs were lost", "something other than Spillway removed them from Redis", entriesEnd[0].do, ""},
	{"expired", Loss, "job expired", "jobs expired", "nobody acked them within their ttl", "see whether workers claim them, and keep up", "spillway jobs ls %s"},
	{"died", Risk, "job died", "jobs died", "their tries are used up, or a worker gave them up; dead letters are kept",
		"see why, repair it, then respawn them", "spillway jobs ls %s --sort dead"},
}

// ended is the finding about an outcome; perSecond is 0 where it is not known.
func (j *judge) ended(o outcome, e drops.Ending, perSecond float32) Finding {
	f := Finding{Level: o.level, SinceMS: e.Since.UnixMilli(), Why: o.why, Do: o.do, weight: e.N}
	f.What = human.Some(e.N, o.one, o.many)
	if lasted := e.Last.Sub(e.Since); lasted > 0 {
		f.What += " within " + human.Since(lasted.Milliseconds())
	}
	if since := j.now.Sub(e.Last); since >= rateSpan*time.Second {
		f.past = true
		f.What = "not now: " + f.What + ", the last " + human.Since(since.Milliseconds()) + " ago"
	} else if perSecond > 0 {
		f.What += fmt.Sprintf(", %.1f/s now", perSecond)
	}
	if o.command != "" {
		f.Command = fmt.Sprintf(o.command, j.namespace)
	}
	return f
}

// evidence is what a namespace is judged by beside its overview.
type evidence struct {
	late      time.Duration           // that it should have been read again
	ends      map[string]drops.Ending // by outcome
	rejected  map[string]drops.Ending // by reason, of this process
	makers    map[string]Maker        // by reason of a drop or rejection
	oldestAge time.Duration           // as it was when its partition was read
	oldestIn  string                  // that partition
	dying     string                  // the queue of most jobs that died of late; "": not known
	paused    []pausedQueue           // those with most ready jobs first
	sinkOf    func(queue string) *Sink
}

func (j *judge) buffer(n NamespaceOverview, e evidence) {
	j.namespace = n.Namespace
	if j.unread(n.ReadAtMS, e.late) {
		return
	}
	slow := j.slow(n)
	for _, o := range entriesEnd {
		end, ends := e.ends[o.name]
		if !ends {
			continue
		}
		f := j.ended(o, end, n.Rates[o.name])
		m := e.makers[o.name]
		f.made(m)
		switch {
		case m.Cause != "":
			f.Why = m.Cause
		case o.name == "dead":
			f.Why += lastly(n.Sinks, end.Since)
		case o.name == "evicted" || o.name == "expired":
			f.Why += slow
		}
		j.add(f)
	}
	j.rejected(n, e)
	if n.Paused != nil {
		f := Finding{Level: Notice, SinceMS: n.Paused.SinceMS, What: "delivery is " + n.Paused.Text(j.now.UnixMilli()),
			Command: "spillway resume " + n.Namespace}
		f.waits(n.Buffered, "entry waits", "entries wait")
		j.add(f)
	} else if n.PausedPartitions > 0 {
		j.add(Finding{Level: Notice, What: human.Some(n.PausedPartitions, "partition is", "partitions are") + " paused",
			Command: "spillway ls " + n.Namespace + " --paused"})
	}
	for _, s := range n.Sinks {
		j.sink(s, n.Buffered, "entry waits", "entries wait")
	}
	if share := float64(e.oldestAge.Milliseconds()) / float64(max(1, n.MaxAgeMS)); n.Buffered > 0 && share >= nearMaxAge {
		f := Finding{Level: Risk, state: "old", Partition: e.oldestIn, weight: n.Buffered, Why: strings.TrimPrefix(slow, "; "),
			What: fmt.Sprintf("%s, the oldest for %s of %s", human.Some(n.Buffered, "entry waits", "entries wait"),
				human.Since(e.oldestAge.Milliseconds()), human.Since(n.MaxAgeMS)),
			Do: "see whether the sink keeps up", Command: "spillway ls " + n.Namespace + " --sort age"}
		if e.oldestIn != "" {
			f.What += " in partition " + e.oldestIn
		}
		j.add(f)
	}
	delivered, known := n.Rates["delivered"]
	if known && delivered == 0 && n.Buffered > 0 && n.Overdue > overdueFor && slow == "" {
		j.add(Finding{Level: Risk, state: "overdue", weight: n.Buffered,
			What: fmt.Sprintf("%s, due for %s, and none is delivered", human.Some(n.Buffered, "entry waits", "entries wait"), human.Since(n.OverdueMS)),
			Do:   "see that a process with the role drain runs and is ready"})
	}
}

// made names the partition that makes most of it.
func (f *Finding) made(m Maker) {
	if f.Partition = m.Partition; m.Partition != "" {
		f.What += fmt.Sprintf("; %.0f%% in partition %s", m.Share*100, m.Partition)
	}
}

// slow is why little is delivered of a namespace, as the end of a sentence.
func (j *judge) slow(n NamespaceOverview) (why string) {
	if n.Paused != nil {
		return "; delivery is " + n.Paused.Text(j.now.UnixMilli())
	}
	if n.PausedPartitions > 0 {
		why = "; " + human.Some(n.PausedPartitions, "partition is", "partitions are") + " paused"
	}
	for _, s := range n.Sinks {
		if s.Fails() {
			return why + "; " + s.failure(j.now)
		}
	}
	return why
}

// lastly is what a sink said last since a time.
func lastly(sinks []Sink, since time.Time) string {
	for _, s := range sinks {
		if s.LastError != "" && s.LastErrorAtMS != nil && *s.LastErrorAtMS >= since.Add(-rateSpan*time.Second).UnixMilli() {
			return "; lastly: " + s.LastError
		}
	}
	return ""
}

// rejected is about entries that were not taken in, which their senders were told.
func (j *judge) rejected(n NamespaceOverview, e evidence) {
	by, all := e.rejected, drops.Ending{Since: j.now}
	if len(by) == 0 {
		return
	}
	var texts []string
	codes := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(by[b].N, by[a].N), cmp.Compare(a, b)) })
	for _, code := range codes {
		r := by[code]
		texts = append(texts, fmt.Sprintf("%d %s", r.N, code))
		if r.Since.Before(all.Since) {
			all.Since = r.Since
		}
		if r.Last.After(all.Last) {
			all.Last = r.Last
		}
		all.N += r.N
	}
	f := j.ended(outcome{level: Notice, one: "entry was rejected, and its sender told", many: "entries were rejected, and their senders told",
		why: strings.Join(texts, ", "), command: "spillway drops %s"}, all, n.Rates["rejected"])
	if r := n.Rates["rejected"]; r > rejectedShare*(r+n.Rates["accepted"]) {
		f.Level = Risk
	}
	f.state = "rejected"
	f.made(e.makers[codes[0]])
	j.add(f)
}

// sink is about a sink that fails: nobody needs to hurry where nothing waits for it.
func (j *judge) sink(s Sink, waits int64, one, many string) {
	if !s.Fails() || s.FailingSinceMS != nil && j.now.UnixMilli()-*s.FailingSinceMS < failsFor.Milliseconds() {
		return
	}
	f := Finding{Level: Risk, state: "sink " + s.Label, Queue: s.Queue, weight: waits, What: s.failure(j.now) + "; " + human.Some(waits, one, many),
		Do: "repair its target: Spillway goes on by itself"}
	if s.FailingSinceMS != nil {
		f.SinceMS = *s.FailingSinceMS
	}
	if waits == 0 {
		f.Level, f.What = Notice, s.failure(j.now)+"; nothing waits for it, and the next one tries it again"
	}
	j.add(f)
}

// Fails reports whether the sink takes nothing.
func (s Sink) Fails() bool {
	return s.State == "failing" || s.State == "tripped" || s.State == "opening" && s.LastError != ""
}

func (s Sink) failure(now time.Time) string {
	text := "sink " + s.Label + " fails"
	if s.FailingSinceMS != nil {
		text += " for " + human.Since(now.UnixMilli()-*s.FailingSinceMS)
	}
	if s.LastError != "" {
		text += ": " + s.LastError
	}
	return text
}

func (j *judge) queue(q QueueOverview, e evidence) {
	j.namespace = q.Namespace
	if j.unread(q.ReadAtMS, e.late) {
		return
	}
	for _, o := range jobsEnd {
		end, ends := e.ends[o.name]
		if !ends {
			continue
		}
		f := j.ended(o, end, q.Rates[o.name])
		if o.name == "died" && e.dying != "" {
			f.Queue = e.dying
			f.What += "; most in queue " + e.dying
			f.Command = "spillway jobs dead " + q.Namespace + " " + e.dying + " --by cause"
			if s := e.sinkOf(e.dying); s != nil && s.Fails() { // of this queue, and of no other
				f.Why += "; " + s.failure(j.now)
			}
		}
		j.add(f)
	}
	if q.MaxJobs > 0 && float64(q.Jobs) >= nearFull*float64(q.MaxJobs) {
		f := Finding{Level: Risk, state: "full", What: fmt.Sprintf("it holds %d of %d jobs: publishes beyond that are rejected", q.Jobs, q.MaxJobs),
			Do: "see whether workers keep up, then raise max_jobs", Command: "spillway jobs ls " + q.Namespace}
		if l := q.Largest; l != nil {
			f.Queue, f.What = l.Queue, f.What+fmt.Sprintf("; %d are in queue %s", l.Jobs, l.Queue)
		}
		j.add(f)
	}
	j.pauses(e.paused)
	for _, s := range q.Sinks {
		if s.Waiting != nil {
			j.sink(s, *s.Waiting, "job waits for it", "jobs wait for it")
		} else {
			l := q.Ledger
			j.sink(s, l.Ready+l.Prepared+l.Delayed+l.Leased, "job of the namespace waits", "jobs of the namespace wait")
		}
	}
	if s := q.Schedules; s != nil && s.Overdue > 0 {
		j.add(Finding{Level: Risk, state: "late", What: human.Some(s.Overdue, "schedule is", "schedules are") + " overdue by more than 10 s",
			Do: "see whether the log says why; else Redis or the processes are at their limit", Command: "spillway schedules ls " + q.Namespace})
	}
	if s := q.Schedules; s != nil && s.Gone > 0 {
		j.add(Finding{Level: Risk, state: "gone", What: human.Some(s.Gone, "service is", "services are") + " gone, and their schedules do not fire",
			Do: "start them, or delete what shall not come back", Command: "spillway schedules owners " + q.Namespace})
	}
	if o := q.Outbox; o.OldestAgeMS >= outboxFor.Milliseconds() {
		j.add(Finding{Level: Risk, state: "outbox", SinceMS: j.now.UnixMilli() - o.OldestAgeMS,
			What: human.Some(o.Jobs, "follow-up waits", "follow-ups wait") + " for " + human.Since(o.OldestAgeMS),
			Why:  "the queue that should hear is full, or nobody moves them", Command: "spillway jobs ls " + q.Namespace})
	}
}
