package admin

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/spillway-io/spillway/partition"
)

// LayoutList is the layouts of a namespace of partitions, the oldest first.
type LayoutList struct {
	Layouts []Layout `json:"layouts"`
}

// Layout is one layout: the shards that new entries go to, or that older ones leave.
type Layout struct {
	partition.LayoutInfo
	State       string `json:"state"`         // current, older, closed, forgotten or abandoned
	OldestAgeMS int64  `json:"oldest_age_ms"` // of the oldest entry of the partitions that are looked at next
	SinceMS     int64  `json:"since_ms,omitempty"`
}

func (s *Server) layouts(r *request) (any, error) {
	ns := r.sharded()
	if r.err != nil {
		return nil, r.err
	}
	list, err := ns.layouts()
	if err != nil {
		return nil, err
	}
	answer := LayoutList{Layouts: []Layout{}}
	for _, l := range list {
		answer.Layouts = append(answer.Layouts, Layout{l, l.State(), l.OldestAge.Milliseconds(), unixMilli(l.Since)})
	}
	return answer, nil
}

// sharded is what a namespace of either kind has of layouts.
type sharded struct {
	shards  func() int
	pool    func() string
	layouts func() ([]partition.LayoutInfo, error)
	reshard func(partition.ReshardRequest) (int64, error)
}

// sharded is the namespace in the path.
func (r *request) sharded() (s sharded) {
	name := r.PathValue("namespace")
	space, queues := r.view.jobSpace(name)
	if !queues {
		if ns := r.namespace(); r.err == nil {
			store := r.view.Store
			s = sharded{ns.Shards, ns.Pool, func() ([]partition.LayoutInfo, error) { return store.Layouts(r.ctx, ns) },
				func(q partition.ReshardRequest) (int64, error) { return store.Reshard(r.ctx, ns, q) }}
		}
		return s
	}
	store, has := space.store.(layered)
	if !has {
		r.fail(notHere(name, kindPHP, ", which has no shards of its own"))
		return s
	}
	return sharded{space.ns.NewestShards, func() string { return "" }, func() ([]partition.LayoutInfo, error) { return store.Layouts(r.ctx, space.ns) },
		func(q partition.ReshardRequest) (int64, error) { return store.Reshard(r.ctx, space.ns, q) }}
}

// buffersOnly is the namespace of partitions in the path.
func (r *request) buffersOnly() *partition.Namespace {
	name := r.PathValue("namespace")
	if _, queues := r.view.jobSpace(name); queues {
		r.fail(notHere(name, kindQueue, ", whose layouts close once their jobs have ended"))
	}
	return r.namespace()
}

// ReshardRequest asks for other shards.
type ReshardRequest struct {
	Shards int    `json:"shards"`
	Pool   string `json:"pool,omitempty"`  // to move it there; empty: it stays where it is
	Again  bool   `json:"again,omitempty"` // also where it has as many: spread them over the masters that there are now
	DryRun bool   `json:"dry_run,omitempty"`
}

// Resharded is what became of it.
type Resharded struct {
	Layout   int64  `json:"layout"` // that new entries go to; with dry_run: would go to
	From     int    `json:"from"`   // shards before
	Shards   int    `json:"shards"`
	FromPool string `json:"from_pool,omitempty"` // the pool before
	Pool     string `json:"pool,omitempty"`
}

// moved is from which pool to which; empty where it stays.
func (r Resharded) moved() string {
	if r.Pool == r.FromPool {
		return ""
	}
	return fmt.Sprintf(", pool %s → %s", r.FromPool, r.Pool)
}

// reshard gives the namespace in the path another number of shards, or moves it to another pool.
func (s *Server) reshard(r *request) (any, error) {
	var body ReshardRequest
	ns := r.sharded()
	if r.decode(&body); body.Shards < 1 || body.Shards > 1024 {
		r.bad("shards: want 1 to 1024")
	}
	if r.err != nil {
		return nil, r.err
	}
	answer := Resharded{From: ns.shards(), Shards: body.Shards, FromPool: ns.pool()}
	answer.Pool = cmp.Or(body.Pool, answer.FromPool)
	var err error
	answer.Layout, err = ns.reshard(partition.ReshardRequest{
		Shards: body.Shards, Pool: body.Pool, Again: body.Again, By: r.who.name, DryRun: body.DryRun})
	if !body.DryRun {
		s.record(r, Act{Action: "reshard", Namespace: r.PathValue("namespace"),
			Detail: fmt.Sprintf("%d → %d shards", answer.From, body.Shards) + answer.moved()}, err)
	}
	switch {
	case errors.Is(err, partition.ErrNoPool), errors.Is(err, partition.ErrNoLayouts), errors.Is(err, partition.ErrResharding):
	case errors.Is(err, partition.ErrBroken):
		err = conflict("%v", err)
	case errors.Is(err, partition.ErrUnavailable):
		err = unavailable(err.Error())
	}
	return answer, err
}

// LayoutRequest is an act on one layout.
type LayoutRequest struct {
	DryRun  bool                  `json:"dry_run,omitempty"`
	Unseen  bool                  `json:"unseen,omitempty"`  // abandon also what this process never read
	Gone    bool                  `json:"gone,omitempty"`    // forget an abandoned layout without a look at its shards
	Confirm *partition.LostLayout `json:"confirm,omitempty"` // what a dry run answered
}

// endLayout forgets the layout in the path, or gives it up.
func (s *Server) endLayout(action string) func(*request) (any, error) {
	return func(r *request) (any, error) {
		var body LayoutRequest
		ns := r.buffersOnly()
		n, err := strconv.ParseInt(r.PathValue("layout"), 10, 64)
		if r.decode(&body); err != nil {
			r.bad("layout: want a number")
		}
		if action == "abandon" && !body.DryRun && body.Confirm == nil {
			r.bad("send dry_run: true, and then confirm: what it answers")
		}
		if r.err != nil {
			return nil, r.err
		}
		lost, err := r.view.Store.EndLayout(r.ctx, ns, partition.LayoutEnd{
			N:       n,
			Abandon: action == "abandon",
			DryRun:  body.DryRun,
			Unseen:  body.Unseen,
			Gone:    body.Gone,
			Confirm: body.Confirm,
		})
		if !body.DryRun {
			s.record(r, Act{Action: action + "_layout", Namespace: ns.Name,
				Detail: fmt.Sprintf("layout %d, %d entries lost", n, lost.Entries)}, err)
		}
		return lost, err
	}
}
