package admin

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/mask"
)

// JobStore is what the server needs of the store of queues of one pool.
type JobStore interface {
	verb.Store
	job.Reads
	Namespace(name string) *job.Namespace
	Namespaces() []*job.Namespace
	Ledger(ctx context.Context, ns *job.Namespace) (job.Ledger, error)
	Audit(ctx context.Context, ns *job.Namespace) (residual int64, err error)
	Queues(ctx context.Context, ns *job.Namespace) ([]string, error)
	CountAll(ctx context.Context, ns *job.Namespace, queues []string) ([]job.Counts, error)
}

// A jobSpace is a namespace of kind queue and the store that has it.
type jobSpace struct {
	store JobStore
	ns    *job.Namespace
}

// jobSpace finds a namespace of kind queue. ok is false where there is none.
func (v View) jobSpace(name string) (space jobSpace, ok bool) {
	for _, store := range v.Jobs {
		if ns := store.Namespace(name); ns != nil {
			return jobSpace{store, ns}, true
		}
	}
	return jobSpace{}, false
}

// jobSpaces are those of every pool.
func (v View) jobSpaces() (all []jobSpace) {
	for _, store := range v.Jobs {
		for _, ns := range store.Namespaces() {
			all = append(all, jobSpace{store, ns})
		}
	}
	return all
}

// jobSpace is the namespace in the path.
func (r *request) jobSpace() jobSpace {
	name := r.PathValue("namespace")
	space, ok := r.view.jobSpace(name)
	if !ok && r.view.Store.Namespace(name) != nil {
		r.fail(otherKind(name, kindBuffer))
	} else if !ok {
		r.fail(noNamespace(name))
	}
	return space
}

// otherKind rejects a route of queues for a namespace of partitions, and the other way round.
func otherKind(name, kind string) *rejection {
	its := ": its routes are below /partitions and /dead, its commands spillway ls, peek, purge and dead"
	if kind == kindQueue {
		its = ": its routes are below /queues, its commands spillway jobs"
	}
	return notHere(name, kind, its)
}

func notHere(name, kind, why string) *rejection {
	return notFound(wire.CodeNoSuchRoute, "the namespace %q is of kind %s%s", name, kind, why)
}

// queue is the namespace and the queue in the path.
func (r *request) queue() (space jobSpace, queue string) {
	space, queue = r.jobSpace(), r.PathValue("queue")
	if !partition.ValidQueue(queue) {
		r.fail(notFound(codeNoSuchQueue, "no name of a queue: %q", queue))
	}
	return space, queue
}

// job is the namespace, the queue and the job in the path.
func (r *request) job() (space jobSpace, queue string, ref job.Ref) {
	if space, queue = r.queue(); r.err != nil {
		return space, queue, ref
	}
	ref, ok := space.ns.ParseID(queue, r.PathValue("job"))
	if !ok {
		r.fail(notFound(wire.CodeNoSuchJob, "this is the id of no job of the queue"))
	}
	return space, queue, ref
}

// codeNoSuchQueue: queues come and go with their jobs, so only a name that none can have is
// rejected.
const codeNoSuchQueue wire.Code = "no_such_queue"

// QueueAccount is the answer about a namespace of kind queue.
type QueueAccount struct {
	Namespace string     `json:"namespace"`
	Kind      string     `json:"kind"` // queue
	Ledger    job.Ledger `json:"ledger"`
	Residual  *int64     `json:"residual,omitempty"` // as for buffers
}

func (s *Server) queueAccount(r *request, space jobSpace) (any, error) {
	audit := r.flag("audit")
	if r.err != nil {
		return nil, r.err
	}
	ledger, err := space.store.Ledger(r.ctx, space.ns)
	if err != nil {
		return nil, err
	}
	answer := QueueAccount{Namespace: space.ns.Name, Kind: kindOf(space.ns), Ledger: ledger}
	if audit {
		answer.Residual, err = s.residual(r, space.ns.Name)
	}
	return answer, err
}

// The kinds of namespaces.
const (
	kindBuffer = "buffer"
	kindQueue  = "queue"
	kindPHP    = "php"
)

// queueCounts is the jobs of one queue.
type queueCounts struct {
	name string
	job.Counts
	acked *int64 // that it keeps; nil: it keeps none
}

// unread reports whether there may be queues whose names were not read.
func (n *queueNames) unread() bool { return len(n.names) >= job.MaxQueueNames }

// countQueues counts the jobs of queues.
func (s jobSpace) countQueues(ctx context.Context, names ...string) (rows []queueCounts, err error) {
	counts, err := s.store.CountAll(ctx, s.ns, names)
	if err != nil {
		return nil, err
	}
	kept := make([]*int64, len(names))
	if of, ok := s.store.(job.Lists); ok {
		kept, err = of.Kept(ctx, s.ns, names)
	}
	for i, c := range counts {
		rows = append(rows, queueCounts{strings.Clone(names[i]), c, kept[i]}) // #nosec G602 -- it counts each name
	}
	return rows, err
}

// keeping are the queues that keep acked jobs.
func (s jobSpace) keeping(ctx context.Context) ([]string, error) {
	if of, ok := s.store.(job.Lists); ok {
		return of.KeptQueues(ctx, s.ns)
	}
	return nil, nil
}

// kindOf is the kind of a namespace of queues.
func kindOf(ns *job.Namespace) string {
	if ns.PHP {
		return kindPHP
	}
	return kindQueue
}

// policySettings are the settings of a namespace of kind queue, as namespaceJSON takes them.
func policySettings(ns *job.Namespace) []Setting {
	p := ns.Policy
	if ns.PHP {
		return []Setting{{"ttr", ns.TTR}}
	}
	dead := "keep"
	if p.DropDead {
		dead = "drop"
	}
	return []Setting{{"shards", p.Shards}, {"max_jobs", p.MaxJobs}, {"max_queues", p.MaxQueues},
		{"max_keys", p.MaxKeys}, {"max_schedules", p.MaxSchedules}, {"max_traces",
			p.MaxTraces}, {"dead", dead},
		{"reply_ttl", p.ReplyTTL}}
}

// Job is a job with its payload.
type Job struct {
	ID          string          `json:"job"`
	Queue       string          `json:"queue"`
	Class       string          `json:"class,omitempty"`   // that PHP runs; absent: it is no job of PHP's
	State       string          `json:"state"`             // ready, prepared, delayed, leased, dead or acked
	AtMS        int64           `json:"at_ms"`             // when it comes due, its lease ends, it died or was acked; 0: ready
	Reason      string          `json:"reason,omitempty"`  // why it died, or is delayed (concurrency); absent: another state, or unknown
	Attempt     *int            `json:"attempt,omitempty"` // how often it was claimed; absent: unknown, of a dead job
	Tries       int             `json:"tries"`             // how often it is claimed at most
	PublishedMS int64           `json:"published_at_ms"`
	ExpiresMS   int64           `json:"expires_at_ms"` // 0: never, as a dead one
	AgeMS       int64           `json:"age_ms"`        // since its publish
	Attributes  json.RawMessage `json:"attributes,omitempty"`
	Errors      []job.Failure   `json:"errors,omitempty"`   // why attempts failed, the newest first: the last three
	Progress    *int            `json:"progress,omitempty"` // percent, that its attempt said last
	Note        string          `json:"note,omitempty"`     // and beside it
	Result      json.RawMessage `json:"result,omitempty"`   // what its ack said
	Payload
}

func jobOf(j job.Job, state job.State, masks []string) Job {
	shown := Job{
		ID:          j.ID,
		Queue:       j.Queue,
		State:       state.String(),
		AtMS:        j.At,
		Reason:      j.Reason.String(),
		Tries:       j.Tries,
		PublishedMS: j.Published,
		ExpiresMS:   j.Expires,
		AgeMS:       max(0, j.Now-j.Published),
		Result:      resultOf(j.Result, j.Payload, masks),
		Payload:     payloadOf(j.Payload, masks),
	}
	if state == job.Dead {
		shown.ExpiresMS = 0
	}
	if j.Attempt >= 0 {
		shown.Attempt = &j.Attempt
	}
	for _, f := range j.Errors {
		f.Error = mask.Quote(f.Error, j.Payload, masks)
		shown.Errors = append(shown.Errors, f)
	}
	if j.Progress != nil {
		shown.Progress, shown.Note = &j.Progress.Percent, mask.Quote(j.Progress.Note, j.Payload, masks)
	}
	if len(j.PHP) > 0 {
		shown.ofPHP(j.Payload, masks)
	}
	if len(j.Attributes) > 0 {
		// As text they are what an attribute must not be: not an object of strings.
		if attributes := payloadOf(j.Attributes, masks); attributes.Data != nil {
			shown.Attributes = attributes.Data
		}
	}
	return shown
}

// peekJob shows the job that a claim would get next. It stays where it is.
func (s *Server) peekJob(r *request) (any, error) {
	space, queue := r.queue()
	masks := s.masks(r)
	if r.err != nil {
		return nil, r.err
	}
	j, err := space.store.Peek(r.ctx, space.ns, queue)
	return jobOf(j, job.Ready, masks), err
}

func (s *Server) getJob(r *request) (any, error) {
	space, queue, ref := r.job()
	masks := s.masks(r)
	if r.err != nil {
		return nil, r.err
	}
	j, state, err := space.store.Get(r.ctx, space.ns, queue, ref)
	return jobOf(j, state, masks), err
}

// Trace is what happened to a job, the oldest event first. It holds no payload, but errors may quote it.
type Trace struct {
	Events []job.TraceEvent `json:"events"`
}

func (s *Server) traceOf(r *request) (any, error) {
	space, queue, ref := r.job()
	masks := s.masks(r)
	if r.err != nil {
		return nil, r.err
	}
	of, err := job.As[job.Traces](space.store)
	if err != nil {
		return nil, err
	}
	events, err := of.Trace(r.ctx, space.ns, queue, ref)
	if len(masks) == 0 || !slices.ContainsFunc(events, func(e job.TraceEvent) bool { return e.Error != "" }) {
		return Trace{events}, err
	}
	j, _, gone := space.store.Get(r.ctx, space.ns, queue, ref)
	for i := range events {
		if e := &events[i]; gone == nil {
			e.Error = mask.Quote(e.Error, j.Payload, masks)
		} else if e.Error != "" {
			e.Error = "***" // nobody knows what it quotes
		}
	}
	return Trace{events}, err
}

// DeadJobs is a page of the dead letters of a queue, the oldest first.
type DeadJobs struct {
	Total int64 `json:"total"`
	Jobs  []Job `json:"jobs"`
}

const (
	maxDeadJobs   = 100
	maxDeadOffset = 1_000_000_000
)

func (s *Server) deadJobs(r *request) (any, error) {
	space, queue := r.queue()
	masks := s.masks(r)
	limit := r.number("limit", 20, 1, maxDeadJobs)
	offset := r.number("offset", 0, 0, maxDeadOffset)
	if r.err != nil {
		return nil, r.err
	}
	list, total, err := space.store.Dead(r.ctx, space.ns, queue, offset, limit)
	if err != nil {
		return nil, err
	}
	answer := DeadJobs{Total: total, Jobs: []Job{}}
	for _, j := range list {
		answer.Jobs = append(answer.Jobs, jobOf(j, job.Dead, masks))
	}
	return answer, nil
}

// JobPage is a page of the jobs of a queue.
type JobPage = job.Page

// listJobs shows a page of the jobs of a queue that are in a state, without payloads.
func (s *Server) listJobs(r *request) (any, error) {
	space, queue := r.queue()
	masks := s.masks(r)
	l := job.List{
		Queue: queue,
		State: job.StateOf(r.param("state")),
		Limit: r.number("limit", 100, 1, job.MaxListed),
		After: r.param("after"),
		Data:  len(masks) > 0, // errors may quote them
	}
	if l.State == job.Gone {
		r.bad("state: want ready, prepared, delayed, leased, dead or acked")
	}
	if r.err != nil {
		return nil, r.err
	}
	of, err := job.As[job.Lists](space.store)
	if err != nil {
		return nil, err
	}
	list, next, err := of.List(r.ctx, space.ns, l)
	if err != nil {
		return nil, err
	}
	l.Data = false
	page := job.ListedPage(l, list, next)
	for i := range page.Jobs {
		p := &page.Jobs[i]
		p.Error = mask.Quote(p.Error, list[i].Payload, masks)
		p.Note = mask.Quote(p.Note, list[i].Payload, masks)
		p.Result = resultOf(list[i].Result, list[i].Payload, masks)
	}
	return page, nil
}
