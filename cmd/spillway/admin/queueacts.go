package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// DeadJobsRequest says which dead letters of a queue to delete: the oldest that match, or those that
// IDs names.
type DeadJobsRequest struct {
	Limit  int64    `json:"limit,omitempty"`  // 0: no limit
	Reason string   `json:"reason,omitempty"` // that they died of
	Error  string   `json:"error,omitempty"`  // a part of their last error
	AgeMS  int64    `json:"age_ms,omitempty"` // since they died, at least
	Cause  string   `json:"cause,omitempty"`  // of DeadCauses, or what was said of one; then only Limit selects more
	IDs    []string `json:"ids,omitempty"`    // only these, 1,000 at most
	Approval
}

// act checks what a request selects.
func (b *DeadJobsRequest) act(r *request, space jobSpace, queue string, verb job.DeadVerb) *job.DeadAct {
	a := &job.DeadAct{
		Namespace: space.ns,
		Queue:     queue,
		Verb:      verb,
		Reason:    job.ReasonOf(b.Reason),
		Error:     b.Error,
		Age:       time.Duration(b.AgeMS) * time.Millisecond,
		Limit:     math.MaxInt32,
	}
	switch {
	case b.Limit < 0:
		r.bad("limit: want 0 or more")
	case b.Reason != "" && a.Reason == job.UnknownReason:
		r.bad("reason: want nacked, lapsed, buried or undecided")
	case b.AgeMS < 0 || b.AgeMS > job.MaxTTL.Milliseconds():
		r.bad("age_ms: want 0 to %d", job.MaxTTL.Milliseconds())
	case len(b.Error) > job.MaxError:
		r.bad("error: want %d bytes at most", job.MaxError)
	case len(b.IDs) > job.MaxNamed:
		r.bad("ids: want %d at most", job.MaxNamed)
	case len(b.Cause) > job.MaxError:
		r.bad("cause: want %d bytes at most", job.MaxError)
	case b.Cause != "" && (b.IDs != nil || a.Selects()):
		r.bad("cause selects dead letters with nothing but limit")
	case b.Cause != "" && space.ns.PHP:
		r.fail(job.ErrOtherKind)
	case b.IDs != nil && (b.Limit > 0 || a.Selects()):
		r.bad("ids name dead letters, and limit, reason, error and age_ms select some: give one of both")
	}
	if b.IDs != nil {
		a.Named = []job.Ref{}
	}
	for _, id := range b.IDs {
		ref, ok := space.ns.ParseID(queue, id)
		if !ok {
			r.bad("ids: %.64q is the id of no job of the queue", id)
			break
		}
		a.Named = append(a.Named, ref)
	}
	return a
}

// selection is what the audit trail says of it.
func (b *DeadJobsRequest) selection() (text string) {
	if b.Reason != "" {
		text += "reason " + b.Reason + ", "
	}
	if b.Error != "" {
		text += fmt.Sprintf("error %.64q, ", b.Error)
	}
	if b.AgeMS > 0 {
		text += fmt.Sprintf("age %s, ", time.Duration(b.AgeMS)*time.Millisecond)
	}
	if b.Cause != "" {
		text += fmt.Sprintf("cause %.64q, ", b.Cause)
	}
	if len(b.IDs) > 0 {
		text += fmt.Sprintf("%d by id, ", len(b.IDs))
	}
	return text
}

// RespawnRequest says which dead letters of a queue to make ready again.
type RespawnRequest struct {
	DeadJobsRequest
	TTLMS int64 `json:"ttl_ms,omitempty"` // how long they live from then on; 0: for ever
}

// actOnDead does what a request asks, for as many dead letters as were confirmed at most.
func (s *Server) actOnDead(r *request, action string, verb job.DeadVerb, body DeadJobsRequest, ttl time.Duration) (any, error) {
	space, queue := r.queue()
	if r.fail(body.check()); r.err != nil {
		return nil, r.err
	}
	a := body.act(r, space, queue, verb)
	a.TTL = ttl
	most := body.bound(body.Limit)
	if most > 0 {
		a.Limit = int(min(most, math.MaxInt32))
	}
	act := func(ctx context.Context) (int64, error) {
		if body.Cause != "" {
			n, err := s.actByCause(ctx, a, space, causeOf(body.Cause), r.view.MaskFields)
			return int64(n), err
		}
		n, err := space.store.ActOnDead(ctx, a)
		return int64(n), err
	}
	switch {
	case r.err != nil:
		return nil, r.err
	case body.DryRun && (body.Cause != "" || a.Selects()):
		a.Verb = job.CountDead
		n, err := act(r.ctx)
		return ActedJobs{DryRun: true, Jobs: n, Complete: err == nil}, inTime(r.ctx, err)
	case body.DryRun:
		counts, err := s.count(r, space, queue)
		return ActedJobs{DryRun: true, Jobs: min(counts.Dead, int64(a.Limit)), Complete: true}, err
	}
	if a.Named != nil { // the store bounds the others
		count := *a
		count.Verb = job.CountDead
		n, err := space.store.ActOnDead(r.ctx, &count)
		switch {
		case err != nil:
			return nil, err
		case int64(n) > most:
			return nil, conflict("%d of them are dead, more than confirmed: do a dry run again", n)
		}
	}
	return s.actOnJobs(r, space, queue, action, body.selection(), body.Approval, act)
}

func (s *Server) respawnJobs(r *request) (any, error) {
	var body RespawnRequest
	if r.decode(&body); body.TTLMS < 0 || body.TTLMS > job.MaxTTL.Milliseconds() {
		r.bad("ttl_ms: want 0 to %d", job.MaxTTL.Milliseconds())
	}
	return s.actOnDead(r, "respawn_jobs", job.RespawnDead, body.DeadJobsRequest, time.Duration(body.TTLMS)*time.Millisecond)
}

func (s *Server) deleteDeadJobs(r *request) (any, error) {
	var body DeadJobsRequest
	r.decode(&body)
	return s.actOnDead(r, "delete_dead_jobs", job.DeleteDead, body, 0)
}

// MaxPublished is how many jobs a PublishRequest has at most.
const MaxPublished = job.MaxMessages

// PublishRequest has jobs for a queue. Those of an application go to the data port, which takes more.
type PublishRequest struct {
	Data    []json.RawMessage `json:"data"`               // 1 to 1,000 jobs, each a JSON value, stored as it is
	DelayMS *int64            `json:"delay_ms,omitempty"` // until they are ready; absent: that of the queue's rule
	TTLMS   int64             `json:"ttl_ms,omitempty"`   // how long they live; 0: for ever
	Tries   int               `json:"tries,omitempty"`    // how often they are claimed at most; 0: that of the queue's rule
}

// Published are the ids of the jobs of a PublishRequest, in its order.
type Published struct {
	IDs []string `json:"ids"`
}

func (s *Server) publishJobs(r *request) (any, error) {
	space, queue := r.queue()
	var body PublishRequest
	r.decode(&body)
	if r.err == nil && space.ns.PHP {
		r.fail(notHere(space.ns.Name, kindPHP, ": its jobs are payloads of its library, which the data port takes"))
	}
	if r.err != nil {
		return nil, r.err
	}
	p := &job.Publish{
		Namespace: space.ns,
		Queue:     queue,
		By:        r.who.name,
		TTL:       time.Duration(body.TTLMS) * time.Millisecond,
		Delay:     space.ns.Delay(queue),
		Tries:     cmp.Or(body.Tries, space.ns.Tries(queue)),
	}
	if body.DelayMS != nil {
		p.Delay = time.Duration(*body.DelayMS) * time.Millisecond
	}
	switch {
	case len(body.Data) < 1 || len(body.Data) > MaxPublished:
		return nil, badRequest("data: want 1 to %d jobs", MaxPublished)
	case body.DelayMS != nil && (*body.DelayMS < 0 || *body.DelayMS > job.MaxDelay.Milliseconds()):
		return nil, badRequest("delay_ms: want 0 to %d", job.MaxDelay.Milliseconds())
	case body.TTLMS < 0 || body.TTLMS > job.MaxTTL.Milliseconds() || p.TTL > 0 && p.TTL <= p.Delay:
		return nil, badRequest("ttl_ms: want more than delay_ms, to %d, or 0", job.MaxTTL.Milliseconds())
	case p.Tries < 1 || p.Tries > job.MaxTries:
		return nil, badRequest("tries: want 1 to %d", job.MaxTries)
	}
	for _, data := range body.Data {
		p.Messages = append(p.Messages, job.Message{Payload: data})
	}
	p.Shard = space.ns.HomeOf(p, rand.Uint64())
	space.store.Run(r.ctx, space.store.NewLane(), &job.Batch{Publishes: []*job.Publish{p}})
	answer := Published{IDs: []string{}}
	for i := range p.Count {
		answer.IDs = append(answer.IDs, space.ns.ID(p.Shard, queue, p.First+int64(i), ""))
	}
	n := int64(p.Count)
	s.record(r, Act{Action: "publish_jobs", Namespace: space.ns.Name, Queue: queue, Entries: &n}, p.Err)
	return answer, p.Err
}

// promoteJob makes a delayed job ready now.
func (s *Server) promoteJob(r *request) (any, error) {
	space, queue, ref := r.job()
	if r.empty(); r.err != nil {
		return nil, r.err
	}
	err := space.store.Reschedule(r.ctx, &job.Reschedule{Namespace: space.ns, Queue: queue, Ref: ref, Promote: true})
	if errors.Is(err, job.ErrNoJob) {
		return nil, err // which is no act
	}
	return s.actedOn(r, space, queue, "promote_job", err)
}

// deleteJob deletes one job, in whatever state: who has it claimed finds it gone.
func (s *Server) deleteJob(r *request) (any, error) {
	space, queue, ref := r.job()
	if r.empty(); r.err != nil {
		return nil, r.err
	}
	ack := &job.Ack{Namespace: space.ns, Queue: queue, Ref: ref, Delete: true, Undone: true, By: r.who.name}
	space.store.Run(r.ctx, space.store.NewLane(), &job.Batch{Acks: []*job.Ack{ack}})
	if ack.Err == nil && !ack.Acked && !ack.Deleted {
		return nil, job.ErrNoJob // which is no act
	}
	return s.actedOn(r, space, queue, "delete_job", ack.Err)
}

// actedOn is the answer and the record of an act on one job.
func (s *Server) actedOn(r *request, space jobSpace, queue, action string, err error) (any, error) {
	n := int64(0)
	if err == nil {
		n = 1
	}
	s.record(r, Act{
		Action:    action,
		Namespace: space.ns.Name,
		Queue:     queue,
		Detail:    r.PathValue("job"),
		Entries:   &n,
	}, err)
	return ActedJobs{Jobs: n, Complete: true}, err
}

// decide commits a prepared job for its publisher, or rolls it back.
func (s *Server) decide(rollback bool) func(*request) (any, error) {
	action := "commit_job"
	if rollback {
		action = "rollback_job"
	}
	return func(r *request) (any, error) {
		space, queue, ref := r.job()
		if r.empty(); r.err != nil {
			return nil, r.err
		}
		err := space.store.Decide(r.ctx, &job.Decision{
			Namespace: space.ns,
			Queue:     queue,
			Ref:       ref,
			Rollback:  rollback,
		})
		return s.actedOn(r, space, queue, action, err)
	}
}
