package admin

import (
	"cmp"
	"context"
	"slices"

	"github.com/spillway-io/spillway/cmd/spillway/human"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// PausedPart is a pause and what it stops.
type PausedPart struct {
	Namespace string `json:"namespace"`
	Partition string `json:"partition,omitempty"` // absent: the whole namespace, or a queue
	Queue     string `json:"queue,omitempty"`
	Pause
}

func (s *Server) pauses(r *request) (any, error) {
	list := []PausedPart{}
	for _, ns := range r.view.Store.Namespaces() {
		parts, err := r.view.Store.Pauses(r.ctx, ns)
		if err != nil {
			return nil, err
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
			return nil, err
		}
		for _, q := range queues {
			list = append(list, PausedPart{
				Namespace: space.ns.Name,
				Queue:     q.Queue,
				Pause:     *pauseOf(&q.Pause),
			})
		}
	}
	return map[string]any{"pauses": list}, nil
}

// setQueuePause stops the claims of the queue in the path, or resumes them.
func (s *Server) setQueuePause(action string) func(*request) (any, error) {
	return func(r *request) (any, error) {
		space, queue := r.queue()
		reason := r.reason()
		if r.err != nil {
			return nil, r.err
		}
		answer := PauseState{}
		of, err := job.As[job.Pauses](space.store)
		if err != nil {
			return nil, err
		}
		if action == "pause" {
			err = of.Pause(r.ctx, space.ns, queue, partition.Pause{
				By:     r.who.name,
				Reason: reason,
			})
		} else {
			answer.Was, err = of.Resume(r.ctx, space.ns, queue)
			reason = resumed(answer.Was, err)
		}
		s.record(r, Act{
			Action:    action,
			Namespace: space.ns.Name,
			Queue:     queue,
			Detail:    reason,
		}, err)
		if err != nil {
			return nil, err
		}
		answer.Paused, err = s.observer.pauseOf(r.ctx, space, queue)
		return answer, err
	}
}

// PauseState is the answer to a change of a pause: how the store has it now.
type PauseState struct {
	Paused *Pause `json:"paused"`
	Was    bool   `json:"was_paused,omitempty"` // a resume ended a pause
}

// resumed is what the audit log says of a resume.
func resumed(was bool, err error) string {
	if !was && err == nil {
		return "it was not paused"
	}
	return ""
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
func (j *judge) pauses(namespace string, paused []pausedQueue) {
	for _, p := range paused[:min(maxPaused, len(paused))] {
		f := Finding{Level: Notice, Namespace: namespace, Queue: p.Queue, SinceMS: unixMilli(p.Since),
			What: "queue " + p.Queue + " is " + pauseOf(&p.Pause).Text(j.now.UnixMilli()), Command: "spillway resume " + namespace + " " + p.Queue}
		f.waits(p.ready, "job waits", "jobs wait")
		j.add(f)
	}
	if more := len(paused) - maxPaused; more > 0 {
		j.add(Finding{Level: Notice, Namespace: namespace, What: human.Some(int64(more), "more queue is", "more queues are") + " paused",
			Command: "spillway jobs ls " + namespace})
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

// reason reads the body of a pause.
func (r *request) reason() string {
	var body struct {
		Reason string `json:"reason"`
	}
	if r.decode(&body); len(body.Reason) > maxReason {
		r.bad("reason: want 512 bytes at most")
	}
	return body.Reason
}

// pause stops the delivery of the partition in the path, or of the whole namespace.
func (s *Server) pause(r *request) (any, error) {
	ns, name := r.part()
	reason := r.reason()
	if r.err != nil {
		return nil, r.err
	}
	err := r.view.Store.Pause(r.ctx, ns, name, partition.Pause{By: r.who.name, Reason: reason})
	s.record(r, Act{Action: "pause", Namespace: ns.Name, Partition: name, Detail: reason}, err)
	return s.pausedNow(r, ns, name, false, err)
}

// resume ends a pause. Where nothing is paused it changes nothing.
func (s *Server) resume(r *request) (any, error) {
	ns, name := r.part()
	if r.empty(); r.err != nil {
		return nil, r.err
	}
	was, err := r.view.Store.Resume(r.ctx, ns, name)
	s.record(r, Act{Action: "resume", Namespace: ns.Name, Partition: name, Detail: resumed(was, err)}, err)
	return s.pausedNow(r, ns, name, was, err)
}

// pausedNow is the answer to a change without an error.
func (s *Server) pausedNow(r *request, ns *partition.Namespace, name string, was bool,
	err error) (any, error) {
	var parts []partition.PausedPart
	if err == nil {
		parts, err = r.view.Store.Pauses(r.ctx, ns)
	}
	if err != nil {
		return nil, err
	}
	s.observer.notePauses(ns.Name, parts)
	answer := PauseState{Was: was}
	for _, p := range parts {
		if p.Partition == name {
			answer.Paused = pauseOf(&p.Pause)
		}
	}
	return answer, nil
}

// part is the namespace in the path, and the partition where it has one.
func (r *request) part() (ns *partition.Namespace, name string) {
	space := r.PathValue("namespace")
	if _, queues := r.view.jobSpace(space); queues {
		r.fail(notHere(space, kindQueue, ": pause one of its queues, spillway pause NAMESPACE QUEUE"))
	}
	ns = r.namespace()
	if r.PathValue("partition") != "" {
		name = r.partition()
	}
	return ns, name
}
