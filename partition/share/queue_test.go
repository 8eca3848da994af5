package share

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// work is what a lane would queue.
type work struct {
	namespace string
	bytes     int
}

func pushed(q *Queue[*work], namespace string, n, bytes int) (all []*work) {
	for range n {
		w := &work{namespace: namespace, bytes: bytes}
		q.Push(w.namespace, w)
		all = append(all, w)
	}
	return all
}

func take(q *Queue[*work]) *work {
	w, waits := q.Next()
	if waits {
		q.Pop(max(1, w.bytes))
	}
	return w
}

func TestWorkOfANamespaceStaysInOrder(t *testing.T) {
	t.Parallel()
	q := NewQueue[*work]()
	waiting := map[string][]*work{}
	for range 10_000 {
		namespace := fmt.Sprint(rand.N(5))
		if rand.N(2) == 0 {
			waiting[namespace] = append(waiting[namespace], pushed(&q, namespace, 1, rand.N(1<<20))...)
		} else if w := take(&q); w != nil {
			if waiting[w.namespace][0] != w {
				t.Fatalf("%s: not the oldest", w.namespace)
			}
			waiting[w.namespace] = waiting[w.namespace][1:]
		}
	}
	for w := take(&q); w != nil; w = take(&q) {
		waiting[w.namespace] = waiting[w.namespace][1:]
	}
	for namespace, left := range waiting {
		if len(left) > 0 {
			t.Errorf("%s: %d are left", namespace, len(left))
		}
	}
	if len(q.backlogs) > 0 || len(q.order) > 0 {
		t.Errorf("an empty queue holds %d and %d backlogs", len(q.backlogs), len(q.order))
	}
}

func TestNamespacesThatWaitAreServedByCost(t *testing.T) {
	t.Parallel()
	q := NewQueue[*work]()
	pushed(&q, "large", 1000, 64<<10)
	pushed(&q, "small", 100_000, 1<<10)
	served := map[string]int{}
	for range 10_000 {
		w := take(&q)
		served[w.namespace] += w.bytes
	}
	if large, small := served["large"], served["small"]; large < small-64<<10 || large > small+64<<10 {
		t.Errorf("%d and %d bytes were handed out", large, small)
	}
}

// A namespace that was alone for long owes nothing, and one that was idle has nothing saved.
func TestANamespaceThatBeginsToWaitIsNextAndEarnsNothingWhileIdle(t *testing.T) {
	t.Parallel()
	q := NewQueue[*work]()
	pushed(&q, "busy", 1000, 1<<20)
	pushed(&q, "calm", 1, 100)
	for range 500 {
		take(&q)
	}
	calm := pushed(&q, "calm", 100, 1<<20)
	if w := take(&q); w != calm[0] && take(&q) != calm[0] {
		t.Error("it waits for more than one work of the others")
	}
	busy := 0
	for range 50 {
		if take(&q).namespace == "busy" {
			busy++
		}
	}
	if busy < 24 {
		t.Errorf("the other one got %d of 50", busy)
	}
}

// Of a namespace that sends its next work while its last one runs, only one waits at a time.
func TestANamespaceThatAlwaysHasOneWorkWaitingPaysForTheLast(t *testing.T) {
	t.Parallel()
	q := NewQueue[*work]()
	pushed(&q, "patient", 1000, 1<<20)
	pushed(&q, "greedy", 1, 16<<20)
	served := map[string]int{}
	for range 500 {
		w := take(&q)
		if served[w.namespace] += w.bytes; w.namespace == "greedy" {
			pushed(&q, "greedy", 1, 16<<20)
		}
	}
	if greedy, patient := served["greedy"], served["patient"]; greedy > patient+16<<20 || patient > greedy+16<<20 {
		t.Errorf("it got %d bytes, the other one %d", greedy, patient)
	}
}

func TestLargeWorkIsNotPassedForEver(t *testing.T) {
	t.Parallel()
	q := NewQueue[*work]()
	pushed(&q, "a", 10, 200)
	pushed(&q, "b", 10, 200)
	take(&q)
	huge := pushed(&q, "huge", 1, 16<<20)[0]
	for n := 0; take(&q) != huge; n++ {
		pushed(&q, []string{"a", "b", fmt.Sprint(n)}[rand.N(3)], 1, 1)
		if n > 10 {
			t.Fatal("it still waits")
		}
	}
}

func TestWorkThatWasHandedOutIsNotKept(t *testing.T) {
	t.Parallel()
	q := NewQueue[*work]()
	pushed(&q, "long", 10_000, 1)
	for take(&q) != nil {
		pushed(&q, "long", rand.N(2), 1)
		for _, b := range q.backlogs {
			if b.head > 0 && b.work[b.head-1] != nil || b.head > len(b.work)/2+1 {
				t.Fatalf("%d of %d are kept", b.head, len(b.work))
			}
		}
	}
	if cap(q.spare.work) > maxSpare {
		t.Errorf("an empty queue has room for %d", cap(q.spare.work))
	}
}

func TestTheQueueOfOneNamespaceAllocatesNothing(t *testing.T) {
	q := NewQueue[*work]()
	all := pushed(&q, "mail", 100, 200)
	for take(&q) != nil {
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, w := range all {
			q.Push(w.namespace, w)
		}
		for take(&q) != nil {
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
