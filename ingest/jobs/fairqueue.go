package jobs

import "container/heap"

// fairQueue hands out work by start-time fair queuing between namespaces: next is the work
// of the namespace that was served least since it began to wait. Within a namespace the
// oldest comes first. A namespace of which nothing waits any more owes what it was served,
// until the others that wait had as much: one that has one work waiting, again and again,
// would else always be next. Each operation costs O(log n) for n namespaces, however much
// waits.
type fairQueue struct {
	backlogs map[string]*backlog // of the namespaces that wait, or owe
	order    backlogHeap
	clock    int64 // served of the backlog that was first in order last
	turn     int64
	spare    *backlog // one that owes nothing any more
}

// backlog is the work of one namespace that waits.
type backlog struct {
	namespace   string
	first, last *work // nil: none waits
	served      int64 // clock when it began to wait, plus the cost of its work handed out since
	turn        int64 // when it was last served: with equal costs, the longest ago is next
}

func newFairQueue() fairQueue { return fairQueue{backlogs: map[string]*backlog{}} }

func (q *fairQueue) push(w *work) {
	b := q.backlogs[w.namespace]
	switch {
	case b == nil:
	case b.first == nil:
		b.first, b.last = w, w
		return
	default:
		b.last.next, b.last = w, w
		return
	}
	if b = q.spare; b == nil {
		b = &backlog{}
	}
	q.turn++
	q.spare = nil
	*b = backlog{namespace: w.namespace, first: w, last: w, served: q.clock, turn: q.turn}
	q.backlogs[w.namespace] = b
	heap.Push(&q.order, b)
}

// next is the work that pop removes; nil: none waits.
func (q *fairQueue) next() *work {
	for len(q.order) > 0 {
		b := q.order[0]
		if b.first != nil {
			return b.first
		}
		heap.Pop(&q.order)
		delete(q.backlogs, b.namespace)
		q.clock, q.spare = b.served, b
		*b = backlog{}
	}
	return nil
}

// pop removes the work that next has returned, and counts what it costs.
func (q *fairQueue) pop(cost int) {
	b := q.order[0]
	w := b.first
	if b.first, w.next = w.next, nil; b.first == nil {
		b.last = nil
	}
	q.clock = b.served
	q.turn++
	b.served, b.turn = b.served+int64(cost), q.turn
	heap.Fix(&q.order, 0)
}

// backlogHeap is a heap.Interface.
type backlogHeap []*backlog

func (h backlogHeap) Len() int { return len(h) }

func (h backlogHeap) Less(i, j int) bool {
	if h[i].served != h[j].served {
		return h[i].served < h[j].served
	}
	return h[i].turn < h[j].turn
}

func (h backlogHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *backlogHeap) Push(b any) { *h = append(*h, b.(*backlog)) }

func (h *backlogHeap) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return b
}
