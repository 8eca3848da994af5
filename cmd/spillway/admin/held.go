package admin

import (
	"slices"
	"sync"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/human"
)

const (
	// heldFor is how long risks and losses are told after they ended: who probes once a minute sees each.
	heldFor = time.Minute
	// heldEvery is how often they are looked for, where nobody asks.
	heldEvery = 5 * time.Second
)

// held has the states that findings told of late. What ended as entries and jobs do, the drops' notices hold.
type held struct {
	mu     sync.Mutex
	states map[heldState]heldFinding
}

type heldState struct{ namespace, state string }

type heldFinding struct {
	Finding
	at time.Time // when it was found last
}

// keep notes what is found now. What was found within heldFor keeps its level, where it is found as something lesser, and is
// found still, where it is not found at all but of a namespace that has says is there.
func (h *held) keep(found []Finding, now time.Time, has func(namespace string) bool) []Finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range found {
		if f.state != "" && f.Level.Rank() >= Risk.Rank() {
			h.states[heldState{f.Namespace, f.state}] = heldFinding{f, now}
		}
	}
	for key, f := range h.states {
		ended := now.Sub(f.at)
		switch at := slices.IndexFunc(found, func(n Finding) bool { return key == heldState{n.Namespace, n.state} }); {
		case ended >= heldFor:
			delete(h.states, key)
		case ended <= 0 || f.Namespace != "" && !has(f.Namespace):
		case at >= 0:
			found[at].Level, found[at].past = f.Level, true
		default:
			f.What, f.past = "not now, but "+human.Since(ended.Milliseconds())+" ago: "+f.What, true
			found = append(found, f.Finding)
		}
	}
	return found
}
