package admin

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/ingest/wire"
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

// codeNoSuchQueue: queues come and go with their jobs, so only a name that none can have is
// rejected.
const codeNoSuchQueue wire.Code = "no_such_queue"

// QueueAccount is the answer about a namespace of kind queue.
type QueueAccount struct {
	Namespace string     `json:"namespace"`
	Kind      string     `json:"kind" help:"Always queue."`
	Ledger    job.Ledger `json:"ledger"`
	Residual  *int64     `json:"residual,omitempty" help:"As for buffers."`
}

func (s *Server) queueAccount(r *request, audit bool, space jobSpace) (any, error) {
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
	Class       string          `json:"class,omitempty" help:"That PHP runs; absent: it is no job of PHP's."`
	State       string          `json:"state" help:"One of ready, prepared, delayed, leased, dead and acked."`
	AtMS        int64           `json:"at_ms" help:"When it comes due, its lease ends, it died or was acked; 0: ready."`
	Reason      string          `json:"reason,omitempty" help:"Why it died, or is delayed (concurrency); absent: another state, or unknown."`
	Attempt     *int            `json:"attempt,omitempty" help:"How often it was claimed; absent: unknown, of a dead job."`
	Tries       int             `json:"tries" help:"How often it is claimed at most."`
	PublishedMS int64           `json:"published_at_ms"`
	ExpiresMS   int64           `json:"expires_at_ms" help:"0: never, as a dead one."`
	AgeMS       int64           `json:"age_ms" help:"Since its publish."`
	Attributes  json.RawMessage `json:"attributes,omitempty"`
	Errors      []job.Failure   `json:"errors,omitempty" help:"Why attempts failed, the newest first: the last three."`
	Progress    *int            `json:"progress,omitempty" help:"Percent, that its attempt said last."`
	Note        string          `json:"note,omitempty" help:"What its attempt said beside the percentage."`
	Result      json.RawMessage `json:"result,omitempty" help:"What its ack said."`
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

type ofQueue struct {
	Queue string `arg:"" help:"The queue."`
}

// peekJob shows the job that a claim would get next. It stays where it is.
func (s *Server) peekJob(r *request, q *ofQueue) (Job, error) {
	space := r.jobSpace()
	if r.err != nil {
		return Job{}, r.err
	}
	j, err := space.store.Peek(r.ctx, space.ns, q.Queue)
	return jobOf(j, job.Ready, r.masks), err
}

type ofJob struct {
	ofQueue
	Job string `arg:"" help:"Id of the job, which may be gone where its trace is kept."`
}

// ref is the job.
func (q *ofJob) ref(r *request) (jobSpace, job.Ref) {
	space := r.jobSpace()
	if r.err != nil {
		return space, job.Ref{}
	}
	ref, ok := space.ns.ParseID(q.Queue, q.Job)
	if !ok {
		r.fail(notFound(wire.CodeNoSuchJob, "this is the id of no job of the queue"))
	}
	return space, ref
}

func (s *Server) getJob(r *request, q *ofJob) (Job, error) {
	space, ref := q.ref(r)
	if r.err != nil {
		return Job{}, r.err
	}
	j, state, err := space.store.Get(r.ctx, space.ns, q.Queue, ref)
	return jobOf(j, state, r.masks), err
}

// Trace is what happened to a job, the oldest event first. It holds no payload, but errors may quote it.
type Trace struct {
	Events []job.TraceEvent `json:"events"`
}

func (s *Server) traceOf(r *request, q *ofJob) (Trace, error) {
	space, ref := q.ref(r)
	if r.err != nil {
		return Trace{}, r.err
	}
	of, err := job.As[job.Traces](space.store)
	if err != nil {
		return Trace{}, err
	}
	events, err := of.Trace(r.ctx, space.ns, q.Queue, ref)
	if len(r.masks) == 0 || !slices.ContainsFunc(events, func(e job.TraceEvent) bool { return e.Error != "" }) {
		return Trace{events}, err
	}
	j, _, gone := space.store.Get(r.ctx, space.ns, q.Queue, ref)
	for i := range events {
		if e := &events[i]; gone == nil {
			e.Error = mask.Quote(e.Error, j.Payload, r.masks)
		} else if e.Error != "" {
			e.Error = "***" // nobody knows what it quotes
		}
	}
	return Trace{events}, err
}

const maxDeadJobs = 100

type deadJobs struct {
	ofQueue
	By     *string `enum:"cause" placeholder:"cause" help:"cause: count them by cause instead, those of most first. A cause is what was said, with # for each word that has a digit in it."`
	Limit  int     `default:"20" bounds:"1..100" help:"Dead letters to list, at most 100."`
	Offset int     `bounds:"0..1000000000" help:"Dead letters to pass over."`
}

// DeadJobs is a page of the dead letters of a queue, the oldest first, or their causes.
type DeadJobs struct {
	Total int64 `json:"total"`
	Jobs  []Job `json:"jobs"`
	*DeadCauses
}

func (s *Server) deadJobs(r *request, q *deadJobs) (answer DeadJobs, err error) {
	space := r.jobSpace()
	if r.err != nil {
		return answer, r.err
	}
	offset, limit := q.Offset, q.Limit
	if q.By != nil {
		offset, limit = 1_000_000_000, 1 // behind the last one: the total alone
	}
	list, total, err := space.store.Dead(r.ctx, space.ns, q.Queue, offset, limit)
	answer = DeadJobs{Total: total, Jobs: []Job{}}
	if q.By != nil && err == nil {
		answer.DeadCauses, err = s.jobCauses(r, space, q.Queue, int(total))
		return answer, err
	}
	for _, j := range list {
		answer.Jobs = append(answer.Jobs, jobOf(j, job.Dead, r.masks))
	}
	return answer, err
}

// JobPage is a page of the jobs of a queue.
type JobPage = job.Page

type listJobs struct {
	ofQueue
	State string `required:"" enum:"ready,prepared,delayed,leased,dead,acked" help:"The jobs in this state; acked ones where a rule keeps them."`
	Limit int    `default:"100" bounds:"1..1000" help:"Jobs to list."`
	After string `help:"Go on where a list ended."`
}

// listJobs shows a page of the jobs of a queue that are in a state, without payloads.
func (s *Server) listJobs(r *request, q *listJobs) (page JobPage, err error) {
	space := r.jobSpace()
	if r.err != nil {
		return page, r.err
	}
	l := job.List{
		Queue: q.Queue,
		State: job.StateOf(q.State),
		Limit: q.Limit,
		After: q.After,
		Data:  len(r.masks) > 0, // errors may quote them
	}
	of, err := job.As[job.Lists](space.store)
	if err != nil {
		return page, err
	}
	list, next, err := of.List(r.ctx, space.ns, l)
	if err != nil {
		return page, err
	}
	l.Data = false
	page = job.ListedPage(l, list, next)
	for i := range page.Jobs {
		p := &page.Jobs[i]
		p.Error = mask.Quote(p.Error, list[i].Payload, r.masks)
		p.Note = mask.Quote(p.Note, list[i].Payload, r.masks)
		p.Result = resultOf(list[i].Result, list[i].Payload, r.masks)
	}
	return page, nil
}
