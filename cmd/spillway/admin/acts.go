package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// actTimeout bounds a purge, a replay or a delete. What is left then is for the next request,
// which complete: false asks for.
const actTimeout = 90 * time.Second

// PurgeRequest says which entries to drop, the oldest first.
type PurgeRequest struct {
	Partition   string `json:"partition,omitempty"`     // empty: all of the namespace
	OlderThanMS int64  `json:"older_than_ms,omitempty"` // 0: whatever the age
	Limit       int64  `json:"limit,omitempty"`         // 0: no limit
	Approval
}

// Approval is how a write that cannot be undone is asked for: first how much it would
// take, then not more than that.
type Approval struct {
	DryRun  bool   `json:"dry_run,omitempty"`
	Confirm *int64 `json:"confirm,omitempty"`
}

func (a Approval) check() error {
	switch {
	case !a.DryRun && a.Confirm == nil:
		return badRequest("send dry_run: true, and then confirm: the count that it answers")
	case a.Confirm != nil && *a.Confirm < 1:
		return badRequest("confirm: want the count of a dry run, 1 or more")
	}
	return nil
}

// bound is the lower one of a limit, 0 for none, and what was confirmed.
func (a Approval) bound(limit int64) int64 {
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

// exclusively runs one purge, replay or delete at a time, unless there is a mistake in the
// request: of a second one that is sent by mistake the first would not know.
func (s *Server) exclusively(r *request, act func(context.Context) (any, error)) (any, error) {
	if r.err != nil {
		return nil, r.err
	}
	if !s.acts.TryLock() {
		return nil, conflict("a purge, replay or delete is under way in this process: wait for its end")
	}
	defer s.acts.Unlock()
	ctx, cancel := s.acting(r, actTimeout)
	defer cancel()
	return act(ctx)
}

// inTime is the error of an act, but none where its time ended first: the answer says that it
// is not complete, and its client sends it again.
func inTime(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// AfterAct calls f once the purge, replay or delete under way has ended, if one is.
func (s *Server) AfterAct(f func()) {
	s.acts.Lock()
	defer s.acts.Unlock()
	f()
}

func (s *Server) purge(r *request) (any, error) {
	var body PurgeRequest
	ns := r.namespace()
	r.decode(&body)
	r.fail(body.check())
	if body.Partition != "" && !partition.ValidPartition(body.Partition) {
		r.bad("partition: no name of a partition")
	}
	if body.OlderThanMS < 0 || body.Limit < 0 || body.OlderThanMS > int64(365*24*time.Hour/time.Millisecond) {
		r.bad("older_than_ms and limit: want 0 or more, and a year at most")
	}
	ask := partition.PurgeRequest{
		Partition: body.Partition,
		OlderThan: time.Duration(body.OlderThanMS) * time.Millisecond,
		Limit:     body.bound(body.Limit),
		DryRun:    body.DryRun,
	}
	return s.exclusively(r, func(ctx context.Context) (any, error) {
		done, err := r.view.Store.Purge(ctx, ns, ask)
		if !body.DryRun {
			s.record(r, Act{
				Action:    "purge",
				Namespace: ns.Name,
				Partition: body.Partition,
				Entries:   &done.Entries,
				Detail: fmt.Sprintf("older than %s, confirmed %d, partitions %d, left alone %d",
					ask.OlderThan, *body.Confirm, done.Partitions, done.Leased),
			}, err)
			r.view.notePurged(ns.Name, body.Partition, r.who.name, done.Entries)
		}
		return Purged{body.DryRun, done.Entries, done.Partitions, done.Leased, done.Complete}, err
	})
}

// notePurged adds a purge to the samples of what was dropped.
func (v View) notePurged(namespace, name, who string, entries int64) {
	if log := v.Drops.Of(namespace); log.CountOne(drops.Purged, int(entries)) {
		log.Record(drops.Drop{
			Reason:    drops.Purged,
			Partition: name,
			Entries:   int(entries),
			Detail:    "by " + who,
		})
	}
}
