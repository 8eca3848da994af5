package admin

import (
	"encoding/json"

	"github.com/spillway-io/spillway/partition/job"
)

// Job is a job with its payload.
type Job struct {
	ID          string          `json:"job"`
	Queue       string          `json:"queue"`
	State       string          `json:"state"`             // ready, delayed, leased or dead
	AtMS        int64           `json:"at_ms"`             // when it comes due, its lease ends or it died; 0: ready
	Reason      string          `json:"reason,omitempty"`  // why it died: nacked, lapsed or buried; absent: unknown, or not dead
	Attempt     *int            `json:"attempt,omitempty"` // how often it was claimed; absent: unknown, of a dead job
	Tries       int             `json:"tries"`             // how often it is claimed at most
	PublishedMS int64           `json:"published_at_ms"`
	ExpiresMS   int64           `json:"expires_at_ms"` // 0: never, as a dead one
	AgeMS       int64           `json:"age_ms"`        // since its publish
	Attributes  json.RawMessage `json:"attributes,omitempty"`
	Payload
}

func jobOf(j job.Job, state job.State, masks []string) Job {
	shown := Job{
		ID: j.ID, Queue: j.Queue, State: state.String(), AtMS: j.At, Reason: j.Reason.String(), Tries: j.Tries,
		PublishedMS: j.Published, ExpiresMS: j.Expires, AgeMS: max(0, j.Now-j.Published), Payload: payloadOf(j.Payload, masks),
	}
	if state == job.Dead {
		shown.ExpiresMS = 0
	}
	if j.Attempt >= 0 {
		shown.Attempt = &j.Attempt
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
	space, queue, err := r.queue()
	if err != nil {
		return nil, err
	}
	masks, err := s.masks(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.reading()
	defer cancel()
	j, err := space.store.Peek(ctx, space.ns, queue)
	if err != nil {
		return nil, err
	}
	return jobOf(j, job.Ready, masks), nil
}

func (s *Server) getJob(r *request) (any, error) {
	space, queue, ref, err := r.job()
	if err != nil {
		return nil, err
	}
	masks, err := s.masks(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.reading()
	defer cancel()
	j, state, err := space.store.Get(ctx, space.ns, queue, ref)
	if err != nil {
		return nil, err
	}
	return jobOf(j, state, masks), nil
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
	space, queue, err := r.queue()
	if err != nil {
		return nil, err
	}
	masks, err := s.masks(r)
	if err != nil {
		return nil, err
	}
	limit, err := r.number("limit", 20, 1, maxDeadJobs)
	if err != nil {
		return nil, err
	}
	offset, err := r.number("offset", 0, 0, maxDeadOffset)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.reading()
	defer cancel()
	list, total, err := space.store.Dead(ctx, space.ns, queue, offset, limit)
	if err != nil {
		return nil, err
	}
	answer := DeadJobs{Total: total, Jobs: []Job{}}
	for _, j := range list {
		answer.Jobs = append(answer.Jobs, jobOf(j, job.Dead, masks))
	}
	return answer, nil
}
