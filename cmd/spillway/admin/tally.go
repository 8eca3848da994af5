package admin

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// tallies count the dead letters of namespaces by reason. However many ask, the letters are
// read once in tallyFor.
type tallies struct {
	mu    sync.Mutex // also held while letters are read
	known map[string]tally
}

type tally struct {
	at      time.Time
	reasons map[string]int
}

// of is the tally of a namespace. The map is not written any more.
func (t *tallies) of(ctx context.Context, store Store, ns *partition.Namespace, now time.Time) (map[string]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.known[ns.Name]; ok && now.Sub(known.at) < tallyFor {
		return known.reasons, nil
	}
	reasons, cursor := map[string]int{}, ""
	for range maxTallyPages {
		page, err := store.DeadLetters(ctx, ns, cursor, letterPage)
		if err != nil {
			return nil, err
		}
		for _, l := range page.Letters {
			reasons[l.Reason]++
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if t.known == nil || len(t.known) >= 1000 {
		t.known = map[string]tally{}
	}
	t.known[ns.Name] = tally{now, reasons}
	return reasons, nil
}

// forget makes the next of read the letters again.
func (t *tallies) forget(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, namespace)
}
