package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spillway-io/spillway/cmd/spillway/human"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// Text says since when, by whom and why.
func (p Pause) Text(now int64) string {
	text := fmt.Sprintf("paused (by %s, %s ago)", p.By, human.Since(now-p.SinceMS))
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// PausedPart is a pause and what it stops.
type PausedPart struct {
	Namespace string `json:"namespace"`
	Partition string `json:"partition,omitempty" help:"Absent: the whole namespace, or a queue."`
	Queue     string `json:"queue,omitempty"`
	Pause
}

// PausedParts is all that is paused.
type PausedParts struct {
	Pauses []PausedPart `json:"pauses"`
}

func (s *Server) pauses(r *request, _ *struct{}) (answer PausedParts, err error) {
	list := []PausedPart{}
	for _, ns := range r.view.Store.Namespaces() {
		parts, err := r.view.Store.Pauses(r.ctx, ns)
		if err != nil {
			return answer, err
		}
		for _, p := range parts {
			list = append(list, PausedPart{
				Namespace: ns.Name,
				Partition: p.Partition,
				Pause:     *pauseOf(&p.Pause),
			})
		}
	}
	for _, space := range r.view.jobSpaces() {
		queues, err := s.observer.queuePauses(r.ctx, space)
		if err != nil {
			return answer, err
		}
		for _, q := range queues {
			list = append(list, PausedPart{
				Namespace: space.ns.Name,
				Queue:     q.Queue,
				Pause:     *pauseOf(&q.Pause),
			})
		}
	}
	return PausedParts{list}, nil
}

// part is a partition, or a queue: in a namespace there are only the ones or the others.
type part struct {
	Part string `arg:"" optional:"" name:"partition-or-queue" help:"Only this partition or queue, which need not have entries or jobs yet. Queues are paused one by one."`
}

type pause struct {
	part
	Reason string `placeholder:"TEXT" help:"Why, for those who see the pause later."`
}

// PauseState is the answer to a change of a pause: how the store has it now.
type PauseState struct {
	Paused *Pause `json:"paused"`
	Was    bool   `json:"was_paused,omitempty" help:"A resume ended a pause."`
	Empty  bool   `json:"empty,omitempty" help:"The partition or queue has nothing now: its name may be a misspelt one."`
}

// pause stops the delivery of a partition, or of the whole namespace, or the claims of a queue.
func (s *Server) pause(r *request, q *pause) (answer PauseState, err error) {
	if len(q.Reason) > maxReason {
		r.bad("reason: want 512 bytes at most")
	}
	p := partition.Pause{By: r.who.name, Reason: q.Reason}
	r.act.Detail = q.Reason
	space, ns := r.pausable(q.Part)
	switch {
	case r.err != nil:
		return answer, r.err
	case ns == nil:
		var of job.Pauses
		if of, err = job.As[job.Pauses](space.store); err == nil {
			err = of.Pause(r.ctx, space.ns, q.Part, p)
		}
	default:
		err = r.view.Store.Pause(r.ctx, ns, q.Part, p)
	}
	if err == nil {
		r.act.Result = "ok"
		answer.Paused, answer.Empty, err = s.pausedNow(r, space, ns, q.Part)
	}
	return answer, err
}

// resume ends a pause. Where nothing is paused it changes nothing.
func (s *Server) resume(r *request, q *part) (answer PauseState, err error) {
	space, ns := r.pausable(q.Part)
	switch {
	case r.err != nil:
		return answer, r.err
	case ns == nil:
		var of job.Pauses
		if of, err = job.As[job.Pauses](space.store); err == nil {
			answer.Was, err = of.Resume(r.ctx, space.ns, q.Part)
		}
	default:
		answer.Was, err = r.view.Store.Resume(r.ctx, ns, q.Part)
	}
	if err != nil {
		return answer, err
	}
	if r.act.Result = "ok"; !answer.Was {
		r.act.Detail = "it was not paused"
	}
	answer.Paused, answer.Empty, err = s.pausedNow(r, space, ns, q.Part)
	return answer, err
}

// pausable is the namespace in the path, that of queues if ns is nil, where a part of it can be paused.
func (r *request) pausable(part string) (space jobSpace, ns *partition.Namespace) {
	name := r.PathValue("namespace")
	space, queues := r.view.jobSpace(name)
	switch {
	case queues && part == "":
		r.fail(notHere(name, kindQueue, ": pause one of its queues, spillway pause NAMESPACE QUEUE"))
	case queues && !partition.ValidQueue(part):
		r.fail(notFound(codeNoSuchQueue, "no name of a queue: %q", part))
	case queues:
		r.act.Queue = part
	case part != "" && !partition.ValidPartition(part):
		r.fail(notFound(wire.CodeNoSuchPartition, "no name of a partition: %q", part))
	default:
		r.act.Partition = part
		ns = r.namespace()
	}
	return space, ns
}

// pausedNow is how the store has a pause after a change, and whether it is known that it stops nothing.
func (s *Server) pausedNow(r *request, space jobSpace, ns *partition.Namespace, part string) (paused *Pause, empty bool, err error) {
	if ns == nil {
		if paused, err = s.observer.pauseOf(r.ctx, space, part); err != nil {
			return nil, false, err
		}
		row, err := s.countedQueue(r, space, part)
		return paused, err == nil && row.None(), nil
	}
	parts, err := r.view.Store.Pauses(r.ctx, ns)
	if err != nil {
		return nil, false, err
	}
	s.observer.notePauses(ns.Name, parts)
	for _, p := range parts {
		if p.Partition == part {
			paused = pauseOf(&p.Pause)
		}
	}
	if part == "" {
		return paused, false, nil
	}
	stats, err := r.view.Store.Describe(r.ctx, ns, []string{part})
	return paused, err == nil && len(stats) == 0, nil
}

// queuePauses reads which queues of a namespace are paused, and notes it.
func (o *observer) queuePauses(ctx context.Context, space jobSpace) ([]job.PausedQueue, error) {
	of, ok := space.store.(job.Pauses)
	if !ok {
		return nil, nil
	}
	queues, err := of.Pauses(ctx, space.ns)
	o.mu.Lock()
	defer o.mu.Unlock()
	if f := o.spaces[space.ns.Name]; f != nil && err == nil {
		f.pausedQueues = queues
	}
	return queues, err
}

// A pausedQueue is one, and how many jobs wait for its end.
type pausedQueue struct {
	job.PausedQueue
	ready int64
}

// pausedNow are those of a namespace when it was read last, those with most ready jobs first.
func (f *figures) pausedNow() (list []pausedQueue) {
	for _, p := range f.pausedQueues {
		q := pausedQueue{PausedQueue: p}
		if f.counted != nil {
			if at := slices.IndexFunc(f.counted.rows, func(c queueCounts) bool { return c.name == p.Queue }); at >= 0 {
				q.ready = f.counted.rows[at].Ready
			}
		}
		list = append(list, q)
	}
	slices.SortStableFunc(list, func(a, b pausedQueue) int { return cmp.Compare(b.ready, a.ready) })
	return list
}

// maxPaused are the paused queues of a namespace that findings name.
const maxPaused = 5

// pauses are about queues whose jobs are not claimed: nobody needs to hurry where none waits.
func (j *judge) pauses(paused []pausedQueue) {
	for _, p := range paused[:min(maxPaused, len(paused))] {
		f := Finding{Level: Notice, Queue: p.Queue, SinceMS: unixMilli(p.Since),
			What: "queue " + p.Queue + " is " + pauseOf(&p.Pause).Text(j.now.UnixMilli()), Command: "spillway resume " + j.namespace + " " + p.Queue}
		f.waits(p.ready, "job waits", "jobs wait")
		j.add(f)
	}
	if more := len(paused) - maxPaused; more > 0 {
		j.add(Finding{Level: Notice, What: human.Some(int64(more), "more queue is", "more queues are") + " paused",
			Command: "spillway jobs ls " + j.namespace})
	}
}

// waits makes a pause a risk where something waits for its end.
func (f *Finding) waits(n int64, one, many string) {
	if n > 0 {
		f.Level, f.weight, f.What = Risk, n, f.What+", and "+human.Some(n, one, many)
	}
}

// pauseOf is how a queue is paused; nil: it is not.
func (o *observer) pauseOf(ctx context.Context, space jobSpace, queue string) (*Pause, error) {
	queues, err := o.queuePauses(ctx, space)
	for _, q := range queues {
		if q.Queue == queue {
			return pauseOf(&q.Pause), err
		}
	}
	return nil, err
}

// notePauses keeps which partitions of a namespace are paused.
func (o *observer) notePauses(namespace string, parts []partition.PausedPart) {
	paused := map[string]bool{}
	for _, p := range parts {
		if p.Partition != "" {
			paused[p.Partition] = true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	sp := o.spaces[namespace]
	if sp == nil {
		return
	}
	for name := range sp.paused {
		if r := sp.rows[name]; r != nil {
			r.paused = false
		}
	}
	for name := range paused {
		if r := sp.rows[name]; r != nil {
			r.paused = true
		}
	}
	sp.paused = paused
}

// maxReason is the longest reason of a pause, in bytes.
const maxReason = 512
