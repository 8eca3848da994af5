package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// actTimeout bounds a purge, a replay or a delete. What is left then is for the next request,
// which complete: false asks for.
const actTimeout = 90 * time.Second

// purge says which entries to drop, the oldest first.
type purge struct {
	Partition string        `arg:"" optional:"" help:"Only this partition."`
	OlderThan time.Duration `placeholder:"DURATION" bounds:"1ms..8760h" help:"Only entries older than this, such as 10m. Without it, of any age."`
	Limit     int64         `placeholder:"N" bounds:"1..9007199254740991" help:"At most this many entries. Without it, all that match."`
	verb.Approval
}

// Purged is what a purge dropped, or would drop.
type Purged struct {
	DryRun     bool  `json:"dry_run"`
	Entries    int64 `json:"entries"`
	Partitions int64 `json:"partitions"`
	Leased     int64 `json:"leased" help:"Partitions that are being delivered, and were left alone."`
	Complete   bool  `json:"complete" help:"No more match."`
}

// Count is how many entries it was.
func (p Purged) Count() int64 { return p.Entries }

// exclusively runs one purge, replay or delete at a time: of a second one that is sent by mistake the
// first would not know.
func (s *Server) exclusively(r *request, act func() (any, error)) (any, error) {
	if !s.acts.TryLock() {
		return nil, conflict("a purge, replay or delete is under way in this process: wait for its end")
	}
	defer s.acts.Unlock()
	var cancel context.CancelFunc
	r.ctx, cancel = s.acting(r, actTimeout)
	defer cancel()
	return act()
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

func (s *Server) purge(r *request, q *purge) (Purged, error) {
	ns := r.namespace()
	if r.err != nil {
		return Purged{}, r.err
	}
	done, err := r.view.Store.Purge(r.ctx, ns, partition.PurgeRequest{
		Partition: q.Partition,
		OlderThan: q.OlderThan,
		Limit:     q.Most(q.Limit),
		DryRun:    q.DryRun,
	})
	r.act.Partition = q.Partition
	r.act.Detail = fmt.Sprintf("older than %s, confirmed %d, partitions %d, left alone %d", q.OlderThan, q.Confirm, done.Partitions, done.Leased)
	if !q.DryRun {
		r.view.notePurged(ns.Name, q.Partition, r.who.name, done.Entries)
	}
	return Purged{q.DryRun, done.Entries, done.Partitions, done.Leased, done.Complete}, err
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
