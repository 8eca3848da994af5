package share

import "container/heap"

// A Queue hands out work by start-time fair queuing between tenants: next is the work of the
// tenant that was served least since it began to wait. Within a tenant the oldest comes
// first. A tenant of which nothing waits any more owes what it was served, until the others
// that wait had as much: one that has one work waiting, again and again, would else always be
// next. Each operation costs O(log n) for n tenants, however much waits.
type Queue[T any] struct {
	backlogs map[string]*backlog[T] // of the tenants that wait, or owe
	order    backlogs[T]
	clock    int64 // served of the backlog that was first in order last
	turn     int64
	spare    *backlog[T] // one that owes nothing any more
}

// backlog is the work of one tenant that waits.
type backlog[T any] struct {
	tenant string
	work   []T
	head   int   // index in work of the oldest; len(work): none waits
	served int64 // clock when it began to wait, plus the cost of its work handed out since
	turn   int64 // when it was last served: with equal costs, the longest ago is next
}

// NewQueue makes an empty queue.
func NewQueue[T any]() Queue[T] { return Queue[T]{backlogs: map[string]*backlog[T]{}} }

// Push adds work of a tenant.
func (q *Queue[T]) Push(tenant string, work T) {
	b := q.backlogs[tenant]
	if b == nil {
		if b = q.spare; b == nil {
			b = &backlog[T]{}
		}
		q.turn++
		q.spare = nil
		*b = backlog[T]{tenant: tenant, work: b.work, served: q.clock, turn: q.turn}
		q.backlogs[tenant] = b
		heap.Push(&q.order, b)
	}
	b.work = append(b.work, work)
}

// Next is the work that Pop removes; false: none waits.
func (q *Queue[T]) Next() (work T, waits bool) {
	for len(q.order) > 0 {
		b := q.order[0]
		if b.head < len(b.work) {
			return b.work[b.head], true
		}
		heap.Pop(&q.order)
		delete(q.backlogs, b.tenant)
		q.clock, q.spare = b.served, b
		*b = backlog[T]{work: b.work}
	}
	return work, false
}

// Drop removes the oldest work of each tenant for as long as old says so. It costs nothing.
func (q *Queue[T]) Drop(old func(T) bool) {
	for _, b := range q.order {
		for b.head < len(b.work) && old(b.work[b.head]) {
			b.remove()
		}
	}
}

// Pop removes the work that Next has returned, and counts what it costs.
func (q *Queue[T]) Pop(cost int) {
	b := q.order[0]
	b.remove()
	q.clock = b.served
	q.turn++
	b.served, b.turn = b.served+int64(cost), q.turn
	heap.Fix(&q.order, 0)
}

// remove removes the oldest work.
func (b *backlog[T]) remove() {
	var none T
	b.work[b.head] = none
	// The rest moves to the front only when it is the smaller half: each work moves about once.
	if b.head++; b.head >= len(b.work)-b.head {
		n := copy(b.work, b.work[b.head:])
		clear(b.work[n:])
		b.work, b.head = b.work[:n], 0
		if n == 0 && cap(b.work) > maxSpare {
			b.work = nil
		}
	}
}

// maxSpare is the longest list of work that a tenant keeps while none waits.
const maxSpare = 1024

// backlogs is a heap.Interface.
type backlogs[T any] []*backlog[T]

func (h backlogs[T]) Len() int { return len(h) }

func (h backlogs[T]) Less(i, j int) bool {
	if h[i].served != h[j].served {
		return h[i].served < h[j].served
	}
	return h[i].turn < h[j].turn
}

func (h backlogs[T]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *backlogs[T]) Push(b any) { *h = append(*h, b.(*backlog[T])) }

func (h *backlogs[T]) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return b
}
