package admin

import (
	"container/heap"
	"slices"
	"strings"
)

// An order is a column of the table of partitions, and its direction. Rows that are equal
// in it are in the order of their names.
type order struct {
	column     string
	descending bool
}

// columns are those that rows can be ordered by, with the number that is compared.
var columns = map[string]func(*row) float64{
	"partition":  nil, // by name
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
func (sp *space) best(o order, k int) []*row {
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
