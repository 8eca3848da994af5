package admin

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/job"
)

// actTimeout bounds a purge, a replay or a delete. What is left then is for the next request,
// which complete: false asks for.
const actTimeout = 90 * time.Second

// purgeRequest says which entries to drop, the oldest first.
type purgeRequest struct {
	Partition string `json:"partition"`     // empty: all of the namespace
	OlderThan int64  `json:"older_than_ms"` // 0: whatever the age
	Limit     int64  `json:"limit"`         // 0: no limit
	approval
}

// approval is how a write that cannot be undone is asked for: first how much it would
// take, then not more than that.
type approval struct {
	DryRun  bool   `json:"dry_run"`
	Confirm *int64 `json:"confirm"`
}

func (a approval) check() error {
	switch {
	case !a.DryRun && a.Confirm == nil:
		return badRequest("send dry_run: true, and then confirm: the count that it answers")
	case a.Confirm != nil && *a.Confirm < 1:
		return badRequest("confirm: want the count of a dry run, 1 or more")
	}
	return nil
}

// bound is the lower one of a limit, 0 for none, and what was confirmed.
func (a approval) bound(limit int64) int64 {
	if a.Confirm != nil && (limit == 0 || *a.Confirm < limit) {
		return *a.Confirm
	}
	return limit
}

// Purged is what a purge dropped, or would drop.
type Purged struct {
	DryRun     bool  `json:"dry_run"`
	Entries    int64 `json:"entries"`
	Partitions int64 `json:"partitions"`
	Leased     int64 `json:"leased"` // partitions left alone
	Complete   bool  `json:"complete"`
}

// exclusively runs one purge, replay or delete at a time: of a second one that is sent by
// mistake the first would not know.
func (s *Server) exclusively(r *request, act func(context.Context) (any, error)) (any, error) {
	if !s.acts.TryLock() {
		return nil, &refusal{http.StatusConflict, codeConflict, "a purge, replay or delete is under way in this process: wait for its end"}
	}
	defer s.acts.Unlock()
	ctx, cancel := s.acting(r, actTimeout)
	defer cancel()
	return act(ctx)
}

// AfterAct calls f once the purge, replay or delete under way has ended, if one is.
func (s *Server) AfterAct(f func()) {
	s.acts.Lock()
	defer s.acts.Unlock()
	f()
}

func (s *Server) purge(r *request) (any, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	var body purgeRequest
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	if err := body.check(); err != nil {
		return nil, err
	}
	if body.Partition != "" && !partition.ValidPartition(body.Partition) {
		return nil, badRequest("partition: no name of a partition")
	}
	if body.OlderThan < 0 || body.Limit < 0 || body.OlderThan > int64(365*24*time.Hour/time.Millisecond) {
		return nil, badRequest("older_than_ms and limit: want 0 or more, and a year at most")
	}
	ask := partition.PurgeRequest{
		Partition: body.Partition, OlderThan: time.Duration(body.OlderThan) * time.Millisecond, Limit: body.bound(body.Limit), DryRun: body.DryRun,
	}
	return s.exclusively(r, func(ctx context.Context) (any, error) {
		done, err := r.view.Store.Purge(ctx, ns, ask)
		if !body.DryRun {
			s.record(r, Act{
				Action: "purge", Namespace: ns.Name, Partition: body.Partition, Entries: &done.Entries,
				Detail: fmt.Sprintf("older than %s, confirmed %d, partitions %d, left alone %d", ask.OlderThan, *body.Confirm, done.Partitions, done.Leased),
			}, err)
			r.view.notePurged(ns.Name, body.Partition, r.who.name, done.Entries)
		}
		if err != nil {
			return nil, err
		}
		return Purged{body.DryRun, done.Entries, done.Partitions, done.Leased, done.Complete}, nil
	})
}

// notePurged adds a purge to the samples of what was dropped.
func (v View) notePurged(namespace, name, who string, entries int64) {
	if log := v.Drops.Of(namespace); log.CountOne(drops.Purged, int(entries)) {
		log.Record(drops.Drop{Reason: drops.Purged, Partition: name, Entries: int(entries), Detail: "by " + who})
	}
}

// deadJobsRequest says how many dead letters of a queue to delete, the oldest first.
type deadJobsRequest struct {
	Limit int64 `json:"limit"` // 0: no limit
	approval
}

// respawnRequest says how many dead letters of a queue to make ready again, the oldest first.
type respawnRequest struct {
	deadJobsRequest
	TTLMS int64 `json:"ttl_ms"` // how long they live from then on; 0: for ever
}

// purgeJobsRequest says which jobs of a queue to delete.
type purgeJobsRequest struct {
	State string `json:"state"` // ready or all
	approval
}

// ActedJobs is what an act on the jobs of a queue did, or would do.
type ActedJobs struct {
	DryRun   bool  `json:"dry_run"`
	Jobs     int64 `json:"jobs"`
	Complete bool  `json:"complete"` // it ran to its end
}

func (s *Server) respawnJobs(r *request) (any, error) {
	var body respawnRequest
	return s.actOnDead(r, &body, &body.deadJobsRequest, "respawn_jobs", func(ctx context.Context, space jobSpace, queue string, limit int) (int, error) {
		return space.store.Respawn(ctx, space.ns, queue, limit, time.Duration(body.TTLMS)*time.Millisecond)
	}, func() error {
		if body.TTLMS < 0 || body.TTLMS > job.MaxTTL.Milliseconds() {
			return badRequest(fmt.Sprintf("ttl_ms: want 0 to %d", job.MaxTTL.Milliseconds()))
		}
		return nil
	})
}

func (s *Server) deleteDeadJobs(r *request) (any, error) {
	var body deadJobsRequest
	return s.actOnDead(r, &body, &body, "delete_dead_jobs", func(ctx context.Context, space jobSpace, queue string, limit int) (int, error) {
		return space.store.DeleteDead(ctx, space.ns, queue, limit)
	}, func() error { return nil })
}

// actOnDead reads the request into body, of which bounds is a part, and runs act on as many
// dead letters as were confirmed, at most.
func (s *Server) actOnDead(r *request, body any, bounds *deadJobsRequest, action string, act func(context.Context, jobSpace, string, int) (int, error), check func() error) (any, error) {
	space, queue, err := r.queue()
	if err != nil {
		return nil, err
	}
	if err := r.decode(body); err != nil {
		return nil, err
	}
	if bounds.Limit < 0 {
		return nil, badRequest("limit: want 0 or more")
	}
	if err := bounds.check(); err != nil {
		return nil, err
	}
	if err := check(); err != nil {
		return nil, err
	}
	if bounds.DryRun {
		counts, err := s.count(r, space, queue)
		n := counts.Dead
		if most := bounds.bound(bounds.Limit); most > 0 {
			n = min(n, most)
		}
		return ActedJobs{DryRun: true, Jobs: n, Complete: true}, err
	}
	limit := int(min(bounds.bound(bounds.Limit), math.MaxInt32))
	return s.exclusively(r, func(ctx context.Context) (any, error) {
		n, err := act(ctx, space, queue, limit)
		return s.actedJobs(ctx, r, Act{Action: action, Namespace: space.ns.Name, Queue: queue, Detail: fmt.Sprintf("confirmed %d", *bounds.Confirm)}, int64(n), err)
	})
}

// actedJobs records an act. Where its time ended before it did, its client may send it again.
func (s *Server) actedJobs(ctx context.Context, r *request, a Act, n int64, err error) (any, error) {
	a.Entries = &n
	s.record(r, a, err)
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	return ActedJobs{Jobs: n, Complete: err == nil}, nil
}

// purgeJobs deletes the ready jobs of a queue, or all of them. Those that arrive meanwhile may
// be deleted, too; more than were confirmed at its beginning refuse it.
func (s *Server) purgeJobs(r *request) (any, error) {
	space, queue, err := r.queue()
	if err != nil {
		return nil, err
	}
	var body purgeJobsRequest
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	if body.State != "ready" && body.State != "all" {
		return nil, badRequest("state: want ready, or all for the delayed, leased and dead ones, too")
	}
	if err := body.check(); err != nil {
		return nil, err
	}
	counts, err := s.count(r, space, queue)
	if err != nil {
		return nil, err
	}
	n := counts.Ready
	if body.State == "all" {
		n += counts.Pending + counts.Dead
	}
	if body.DryRun {
		return ActedJobs{DryRun: true, Jobs: n, Complete: true}, nil
	}
	if n > *body.Confirm {
		return nil, &refusal{http.StatusConflict, codeConflict, fmt.Sprintf("there are %d jobs now, more than confirmed: do a dry run again, or confirm more", n)}
	}
	return s.exclusively(r, func(ctx context.Context) (any, error) {
		n, err := space.store.Purge(ctx, space.ns, queue, body.State == "all")
		return s.actedJobs(ctx, r, Act{Action: "purge_jobs", Namespace: space.ns.Name, Queue: queue, Detail: fmt.Sprintf("state %s, confirmed %d", body.State, *body.Confirm)}, n, err)
	})
}

// deleteJob deletes one job, in whatever state: who has it claimed finds it gone.
func (s *Server) deleteJob(r *request) (any, error) {
	space, queue, ref, err := r.job()
	if err != nil {
		return nil, err
	}
	if err := r.decode(&struct{}{}); err != nil {
		return nil, err
	}
	ctx, cancel := s.acting(r, readTimeout)
	defer cancel()
	ack := &job.Ack{Namespace: space.ns, Queue: queue, Ref: ref}
	space.store.Run(ctx, space.store.NewLane(), &job.Batch{Acks: []*job.Ack{ack}})
	if err = ack.Err; err == nil && !ack.Acked && !ack.Deleted {
		return nil, job.ErrNoJob // which is no act
	}
	n := int64(0)
	if err == nil {
		n = 1
	}
	s.record(r, Act{Action: "delete_job", Namespace: space.ns.Name, Queue: queue, Detail: r.PathValue("job"), Entries: &n}, err)
	return ActedJobs{Jobs: n, Complete: true}, err
}
