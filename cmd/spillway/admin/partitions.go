package admin

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// PartitionRow is a partition in the table.
type PartitionRow struct {
	partition.Stats
	Fill        float64 `json:"fill" help:"0 to 1."`
	Paused      bool    `json:"paused" help:"By itself; a namespace's pause is not repeated here."`
	OldestAgeMS int64   `json:"oldest_age_ms"`
	In          float32 `json:"in_per_s"`
	Out         float32 `json:"out_per_s"`
	EvictedRate float32 `json:"evicted_per_s"`
	ExpiredRate float32 `json:"expired_per_s"`
	LastError   string  `json:"last_error"`
	SweptAtMS   int64   `json:"swept_at_ms" help:"0: it is paused and has no entries."`
}

// SweepState says how fresh the table is.
type SweepState struct {
	Complete      bool   `json:"complete" help:"Every partition was read at least once."`
	CompletedAtMS *int64 `json:"completed_at_ms"`
	TookMS        int64  `json:"took_ms" help:"Of the last complete pass."`
	Known         int    `json:"known"`
	LeftOut       int    `json:"left_out" help:"Partitions of the running pass that memory is bounded for."`
}

// PartitionSums are over all rows that a filter selects.
type PartitionSums struct {
	Depth       int64   `json:"depth"`
	In          float64 `json:"in_per_s"`
	Out         float64 `json:"out_per_s"`
	EvictedRate float64 `json:"evicted_per_s"`
	ExpiredRate float64 `json:"expired_per_s"`
}

// PartitionList is a part of the table of partitions.
type PartitionList struct {
	NowMS      int64          `json:"now_ms"`
	Sweep      SweepState     `json:"sweep"`
	Total      int            `json:"total"`
	Sum        PartitionSums  `json:"sum"`
	Partitions []PartitionRow `json:"partitions"`
}

// firstTick is how long the first look for a while waits for the sweep.
const firstTick = time.Second

type listPartitions struct {
	Sort   string `enum:"trouble,oldest_age,depth,fill,in,out,evicted,expired,last_error,due,partition" default:"oldest_age" help:"The column of the order."`
	Order  string `enum:"desc,asc" default:"desc" help:"desc or asc."`
	Limit  int    `default:"100" bounds:"1..1000" help:"Partitions to list."`
	Offset int    `bounds:"0..200000" help:"Partitions to pass over."`
	Q      string `help:"Only those whose name has this in it."`
	Paused bool   `help:"Only paused ones, with those that have no entries."`
}

func (s *Server) partitions(r *request, q *listPartitions) (list PartitionList, err error) {
	ns := r.namespace()
	if r.err != nil {
		return list, r.err
	}
	s.observer.watch()
	s.observer.awaitFirst(r.Context(), ns.Name)
	if q.Paused { // also a moment ago
		parts, err := r.view.Store.Pauses(r.ctx, ns)
		if err != nil {
			return list, err
		}
		s.observer.notePauses(ns.Name, parts)
	}
	list = s.observer.list(ns.Name, order{q.Sort, q.Order == "desc"}, q.Offset, q.Limit, func(row *row) bool {
		return (q.Paused && row.paused || !q.Paused && row.swept > 0) && strings.Contains(row.Partition, q.Q)
	})
	for i := range list.Partitions {
		row := &list.Partitions[i]
		row.LastError = r.view.lastError(ns.Name, row.Partition)
	}
	return list, nil
}

// awaitFirst waits until a namespace was read once, or firstTick.
func (o *observer) awaitFirst(ctx context.Context, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, firstTick)
	defer cancel()
	for {
		o.mu.Lock()
		sp, ticked := o.spaces[namespace], o.ticked
		o.mu.Unlock()
		if sp != nil && sp.began > 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticked:
		}
	}
}

// list returns rows of a namespace, those that keep selects. Those that were never swept are paused, and have no entries.
func (o *observer) list(namespace string, by order, offset, limit int,
	keep func(*row) bool) PartitionList {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now().UnixMilli()
	list := PartitionList{NowMS: now, Partitions: []PartitionRow{}}
	sp := o.spaces[namespace]
	if sp == nil {
		return list
	}
	list.Sweep = SweepState{
		Complete: sp.completed > 0,
		TookMS:   sp.took,
		Known:    len(sp.rows),
		LeftOut:  sp.leftOut,
	}
	if completed := sp.completed; completed > 0 {
		list.Sweep.CompletedAtMS = &completed
	}
	rows := first(by, offset+limit, func(yield func(*row) bool) {
		each := func(r *row) {
			if keep(r) {
				list.Total++
				list.Sum.add(r)
				yield(r)
			}
		}
		for _, r := range sp.rows {
			each(r)
		}
		for name := range sp.paused {
			if sp.rows[name] == nil { // it has no entries
				each(&row{Stats: partition.Stats{Partition: name}, oldest: now, paused: true})
			}
		}
	})
	for _, r := range rows[min(offset, len(rows)):] {
		list.Partitions = append(list.Partitions, r.json(now))
	}
	return list
}

func (sum *PartitionSums) add(r *row) {
	sum.Depth += int64(r.Depth)
	sum.In += float64(r.in)
	sum.Out += float64(r.out)
	sum.EvictedRate += float64(r.evicted)
	sum.ExpiredRate += float64(r.expired)
}

func (r *row) json(now int64) PartitionRow {
	return PartitionRow{
		Stats:       r.Stats,
		Fill:        r.fill(),
		Paused:      r.paused,
		OldestAgeMS: max(0, now-r.oldest),
		In:          r.in,
		Out:         r.out,
		EvictedRate: r.evicted,
		ExpiredRate: r.expired,
		SweptAtMS:   r.swept,
	}
}

// partitionNow reads one partition now. Its rates are those of the sweep.
func (s *Server) partitionNow(r *request, q *ofPartition) (answer PartitionRow, err error) {
	ns := r.namespace()
	if r.err != nil {
		return answer, r.err
	}
	list, err := r.view.Store.Describe(r.ctx, ns, []string{q.Partition})
	if err == nil && len(list) == 0 {
		err = partition.ErrNoPartition
	}
	if err != nil {
		return answer, err
	}
	s.observer.watch()
	answer = s.observer.fresh(ns.Name, list[0]).json(s.observer.now().UnixMilli())
	answer.LastError = r.view.lastError(ns.Name, q.Partition)
	return answer, nil
}

// fresh is a row of stats that were read now, with the rates that the sweep knows.
func (o *observer) fresh(namespace string, stats partition.Stats) *row {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now().UnixMilli()
	var fresh row
	if sp := o.spaces[namespace]; sp != nil {
		if known := sp.rows[stats.Partition]; known != nil {
			fresh = *known
		}
		fresh.paused = sp.paused[stats.Partition]
	}
	fresh.Stats = stats
	fresh.swept = now
	fresh.oldest = now - stats.OldestAge.Milliseconds()
	return &fresh
}

// An order is a column of a table, and its direction. Rows that are equal
// in it are in the order of their names.
type order struct {
	column     string
	descending bool
}

// columns are those that partitions can be ordered by beside their names.
var columns = map[string]func(*row) float64{
	"trouble": func(r *row) float64 { // what is dropped, then the oldest
		if dropped := r.evicted + r.expired; dropped > 0 {
			return float64(dropped)
		}
		return -float64(r.oldest)
	},
	"depth":      func(r *row) float64 { return float64(r.Depth) },
	"oldest_age": func(r *row) float64 { return -float64(r.oldest) },
	"fill":       func(r *row) float64 { return r.fill() },
	"in":         func(r *row) float64 { return float64(r.in) },
	"out":        func(r *row) float64 { return float64(r.out) },
	"evicted":    func(r *row) float64 { return float64(r.evicted) },
	"last_error": func(r *row) float64 { return float64(r.Attempt) }, // 0 and 1 have none
	"due":        func(r *row) float64 { return float64(r.Due) },
	"expired":    func(r *row) float64 { return float64(r.expired) },
}

func (r *row) fill() float64 { return float64(r.Depth) / float64(max(r.Capacity, 1)) }

// inOrder compares rows by a figure, or by name alone without one.
func inOrder[T any](o order, figure func(T) float64, name func(T) string) func(a, b T) int {
	return func(a, b T) int {
		by := strings.Compare(name(a), name(b))
		order := by
		if figure != nil {
			order = cmp.Compare(figure(a), figure(b))
		}
		if o.descending {
			order = -order
		}
		return cmp.Or(order, by)
	}
}

// best returns the first k rows of an order.
func (sp *figures) best(o order, k int) []*row { return first(o, k, maps.Values(sp.rows)) }

// first looks at each row once and keeps 2k at most.
func first(o order, k int, all iter.Seq[*row]) (rows []*row) {
	compare := inOrder(o, columns[o.column], func(r *row) string { return r.Partition })
	cut := false
	for r := range all {
		if cut && (k == 0 || compare(r, rows[k-1]) >= 0) {
			continue
		}
		if rows = append(rows, r); len(rows) > 2*k {
			slices.SortFunc(rows, compare)
			rows, cut = rows[:k], true
		}
	}
	slices.SortFunc(rows, compare)
	return rows[:min(k, len(rows))]
}
