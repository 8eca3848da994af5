package admin

import (
	"container/heap"
	"context"
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
	SweptAtMS   int64   `json:"swept_at_ms"`
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
	Paused bool   `help:"Only paused ones."`
}

func (s *Server) partitions(r *request, q *listPartitions) (list PartitionList, err error) {
	ns := r.namespace()
	if r.err != nil {
		return list, r.err
	}
	s.observer.watch()
	s.observer.awaitFirst(r.Context(), ns.Name)
	list = s.observer.list(ns.Name, order{q.Sort, q.Order == "desc"}, q.Offset, q.Limit, func(row *row) bool {
		return (!q.Paused || row.paused) && strings.Contains(row.Partition, q.Q)
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

// list returns rows of a namespace, those that keep selects.
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
	rows := first(by, offset+limit, func(yield func(*row)) {
		for _, r := range sp.rows {
			if !keep(r) {
				continue
			}
			list.Total++
			list.Sum.add(r)
			yield(r)
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

// An order is a column of the table of partitions, and its direction. Rows that are equal
// in it are in the order of their names.
type order struct {
	column     string
	descending bool
}

// columns are those that rows can be ordered by, with the number that is compared.
var columns = map[string]func(*row) float64{
	"partition": nil, // by name
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

// compare is negative where a comes before b.
func (o order) compare(a, b *row) int {
	if number := columns[o.column]; number != nil {
		x, y := number(a), number(b)
		switch {
		case x != y && (x > y) == o.descending:
			return -1
		case x != y:
			return 1
		}
		return strings.Compare(a.Partition, b.Partition)
	}
	if o.descending {
		return strings.Compare(b.Partition, a.Partition)
	}
	return strings.Compare(a.Partition, b.Partition)
}

// best returns the first k rows of an order. It looks at each row once and keeps k.
func (sp *figures) best(o order, k int) []*row {
	return first(o, k, func(yield func(*row)) {
		for _, r := range sp.rows {
			yield(r)
		}
	})
}

func first(o order, k int, each func(yield func(*row))) []*row {
	h := &worstFirst{order: o}
	each(func(r *row) {
		switch {
		case k <= 0:
		case len(h.rows) < k:
			heap.Push(h, r)
		case o.compare(r, h.rows[0]) < 0:
			h.rows[0] = r
			heap.Fix(h, 0)
		}
	})
	slices.SortFunc(h.rows, o.compare)
	return h.rows
}

// worstFirst is a heap whose first row is the last one in the order.
type worstFirst struct {
	order order
	rows  []*row
}

func (h *worstFirst) Len() int           { return len(h.rows) }
func (h *worstFirst) Less(i, j int) bool { return h.order.compare(h.rows[i], h.rows[j]) > 0 }
func (h *worstFirst) Swap(i, j int)      { h.rows[i], h.rows[j] = h.rows[j], h.rows[i] }
func (h *worstFirst) Push(r any)         { h.rows = append(h.rows, r.(*row)) }

func (h *worstFirst) Pop() any {
	last := h.rows[len(h.rows)-1]
	h.rows = h.rows[:len(h.rows)-1]
	return last
}
