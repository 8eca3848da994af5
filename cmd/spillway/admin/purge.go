package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
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
