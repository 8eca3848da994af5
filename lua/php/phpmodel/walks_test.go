package phpmodel

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	walks     = flag.Int64("walks", 500, "random walks of the model of PHP's queues")
	firstWalk = flag.Int64("walks.from", 0, "seed of the first walk")
	walkSteps = flag.Int("walks.steps", 250, "steps of a walk")
)

// length is how many walks there are: with -short a part of those that a flag says.
func length(walks, part int64) int64 {
	if testing.Short() {
		return walks / part
	}
	return walks
}

func flavorOf(seed int64) flavor { return flavors[seed%3] }

func TestWalksKeepEveryInvariant(t *testing.T) {
	t.Parallel()
	walks := length(*walks, 10)
	var next atomic.Int64
	var mu sync.Mutex
	count := map[string]int{}
	next.Store(*firstWalk)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for !t.Failed() {
				seed := next.Add(1) - 1
				if seed >= *firstWalk+walks {
					return
				}
				q := newQueue(flavorOf(seed), "")
				w := newWorld(seed, q, q, "")
				if err := w.walk(*walkSteps); err != nil {
					t.Errorf("walk %d of %s: %v", seed, q.flavor.name, err)
				}
				mu.Lock()
				for what, n := range w.count {
					count[what] += n
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Log(count)
	for _, what := range []string{"claimed", "reverted", "request lost", "answer lost", "process died", "clock back", "purged", "read", "respawned",
		"dead", "digits", "append", "unreadable", "counted late", "process died before it counted", "published again", "PHP done", "PHP forgot", "PHP doubled", "PHP collapsed twins", "PHP lost when it died", "PHP lost what it cannot read"} {
		if count[what] == 0 && walks >= 500 {
			t.Errorf("no walk had this: %s", what)
		}
	}
}

// places is how often each payload is in the store.
func (w *World) places() map[int]int {
	at := map[int]int{}
	for _, p := range w.q.ready {
		at[numberOf(p)]++
	}
	for p := range w.q.delayed {
		at[numberOf(p)]++
	}
	for p := range w.q.reserved {
		at[numberOf(p)]++
	}
	for _, l := range w.q.letters {
		at[numberOf(l.payload)]++
	}
	return at
}

// check wants the invariants of DESIGN.md.
func (w *World) check() {
	q, at := w.q, w.places()
	for n, pushed := range w.pushed {
		if got, want := at[n]+w.inPHP[n]+w.ended[n]+w.lost[n], pushed+w.doubled[n]; got != want {
			broken("I1: payload %d: %d in the store, %d in a PHP process, %d ended, %d lost by PHP; %d were pushed, %d doubled by PHP",
				n, at[n], w.inPHP[n], w.ended[n], w.lost[n], pushed, w.doubled[n])
		}
	}
	a := q.account
	sum := int64(len(q.held))
	for _, name := range []string{"acked", "nacked", "requeued", "buried", "unfit", "lapsed"} {
		sum += a[name]
	}
	if sum != a["claimed"] || len(q.held) != len(q.leases) {
		broken("I2: %d deliveries accounted, %d claimed; %d held, %d leases", sum, a["claimed"], len(q.held), len(q.leases))
	}
	if got := int64(len(q.dead)) + a["respawned"] + a["deleted"]; got != a["died"] || len(q.dead) != len(q.letters) {
		broken("I2: %d dead letters accounted, %d died; %d letters", got, a["died"], len(q.letters))
	}
	if q.flavor.notify && q.notify != len(q.ready) {
		broken("I7: %d notifications, %d ready", q.notify, len(q.ready))
	}
	ours := map[string]bool{}
	for seq, r := range q.held {
		if q.leases[seq]%1000 == 0 {
			broken("I9: the lease %d ends with a whole second", seq)
		}
		if score, there := q.reserved[r.member]; there && score == q.leases[seq] {
			ours[r.member] = true
		} else if q.leases[seq] > w.latest && !w.skewed() && !w.twin[numberOf(r.member)] && r.digits > 0 { // else PHP ended what it had let lapse
			broken("I9: lease %d runs until %d and has no reservation", seq, q.leases[seq])
		}
	}
	for m, score := range q.reserved {
		if !ours[m] && score%1000 != 0 {
			broken("I9: %s is reserved until %d by no lease", m, score)
		}
	}
	for _, p := range w.workers {
		if p.step == "running" && !w.skewed() && p.until > w.latest && q.reserved[p.reserved] != p.until {
			broken("I3: PHP's reservation of %s until %d is gone", p.reserved, p.until)
		}
	}
}

// drain lets PHP stop and us do the rest: in the end nothing may be left.
func (w *World) drain() {
	for _, p := range w.workers {
		if p.skew != 0 {
			w.count["skewed worker died"]++
		}
		w.dies(p)
	}
	for _, l := range w.lanes {
		if l.unknown != "" && w.bug != "an unknown claim is not reverted" {
			w.revert(l)
		}
		l.unknown = ""
	}
	w.workers, w.steal = nil, true
	for round := 0; ; round++ {
		if round > 400 {
			broken("drain: %v are left", w.q.look())
		}
		w.s.setNow(max(w.q.us, w.latest*1000) + 30_000_000)
		w.latest = w.q.now()
		w.tokens++
		var got claimed
		w.moves(true, func() { got = w.s.claim("drain", fmt.Sprint("t", w.tokens), 5000, 100, true) })
		w.afterMoves()
		for _, h := range got.jobs {
			d := &delivery{handed: h, n: numberOf(h.payload), until: h.deadline}
			w.delivered(h.payload, d)
			w.end(d, "ack", 0)
		}
		w.check()
		if left := w.q.look(); len(got.jobs) == 0 && left[0]+left[1]+left[2]+left[3] == 0 {
			break
		}
	}
	for range 200 {
		if len(w.q.dead) > 0 {
			w.respawn(true, 0)
		}
	}
	w.check()
	if len(w.q.picture()) > len(w.q.account)+len(w.q.outs)+2 {
		broken("drain: %v are left", w.q.picture())
	}
}
