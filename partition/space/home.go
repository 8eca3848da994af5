package space

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// A Home is where a namespace lives: its shards. It outlives changes of the namespace's policy.
//
// Their number is fixed when the store is first used: the ledger of shard 0 records it. A home that
// names a number has its shards at once, and is rejected where the store has another number. One
// that leaves the number to the store (Auto) has shard 0 alone until a check has read, or decided,
// how many there are; nothing is stored in it before.
type Home struct {
	Name     string
	Required bool // without it a Check fails; else what is wrong with it is a warning
	// Reordered is called when other processes drain it than before; nil: nobody asks. It is set
	// before the home is adopted.
	Reordered func()
	History   *History // what it was; nil: nobody keeps one

	prefix string
	wanted int // shards as configured, or Auto
	own    func(*Shard) any
	space  *Space // nil until it is adopted

	mu     sync.Mutex // of changes of shards
	shards atomic.Pointer[[]*Shard]
	fixed  chan struct{} // closed once the number of shards is known

	permitted atomic.Bool // all rights were found
	checking  sync.Mutex
	checked   atomic.Pointer[result] // the last conclusive one; nil: none yet
	usable    atomic.Bool            // checked is without an error

	list     string // key of the processes that serve it
	self     uint64 // hash of this process, once it is adopted
	clock    backend.Clock
	roster   atomic.Pointer[roster]
	drainers atomic.Int32 // of this process
}

// Auto is the number of shards of a namespace that leaves it to the store.
const Auto = -1

// perMaster is how many shards a master of a cluster gets where the store decides.
const perMaster = 4

// MaxShards is the most shards of a namespace: ids of jobs name that many.
const MaxShards = 1024

// NewHome makes the home of a namespace, which works once it is adopted. shards may be Auto. own
// makes what the store of the kind keeps of a shard; nil: nothing.
func NewHome(prefix, namespace string, shards int, own func(*Shard) any) *Home {
	h := &Home{Name: namespace, prefix: prefix, wanted: shards, own: own,
		list: prefix + ":{" + namespace + "}:drainers", fixed: make(chan struct{})}
	h.divide(max(1, shards))
	if shards != Auto {
		close(h.fixed)
	}
	return h
}

// Shards are the shards by their numbers. The caller must not change the list.
func (h *Home) Shards() []*Shard { return *h.shards.Load() }

// Of is the shard of a name.
func (h *Home) Of(name string) *Shard {
	all := h.Shards()
	return all[backend.ShardOf(name, len(all))]
}

// Fixed closes once the number of shards is known.
func (h *Home) Fixed() <-chan struct{} { return h.fixed }

// Usable reports whether the last check of the home passed: only then may anything be stored. It
// is what every publish and produce asks, and costs a load.
func (h *Home) Usable() bool { return h.usable.Load() }

// Fits reports whether a policy with so many shards may have this home.
func (h *Home) Fits(shards int) bool {
	return shards == h.wanted || h.IsFixed() && (shards == Auto || shards == len(h.Shards()))
}

// otherNumber is the error of a configuration that names another number of shards than the store has.
func otherNumber(namespace string, wanted, have int) error {
	return fmt.Errorf("namespace %s: shards is %d, but the number is fixed at first use, which was with %d: configure %[3]d or auto; "+
		"for %[2]d shards start new processes with another prefix, or on another Redis, beside the old ones in role drain: "+
		"OPERATING.md, Another Redis, or more shards", namespace, wanted, have)
}

// IsFixed reports whether the number of shards is.
func (h *Home) IsFixed() bool {
	select {
	case <-h.fixed:
		return true
	default:
		return false
	}
}

// Adopt makes a home one of this Space. It does nothing to one that was adopted before.
func (s *Space) Adopt(h *Home) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.self = hashOf(s.id)
	if h.space != nil {
		return
	}
	h.space = s
	first := h.Shards()[0]
	h.History = NewHistory(s.backend, first.Prefix+"history", first.Ledger)
	for _, sh := range h.Shards() {
		h.adopt(sh)
	}
}

// adopt gives a shard what the Space has for it.
func (h *Home) adopt(sh *Shard) {
	if h.space != nil {
		sh.Breaker = h.space.backend.NewBreaker(sh.Ledger)
		sh.Zone = backend.Slot(sh.Prefix) * h.space.Zones() / backend.Slots
	}
	if h.own != nil {
		sh.Own = h.own(sh)
	}
}

// divide gives the home n shards. Shard 0, whose keys do not depend on n, stays.
func (h *Home) divide(n int) {
	all := make([]*Shard, n)
	for i := range all {
		if before := h.shards.Load(); i == 0 && before != nil {
			all[0] = (*before)[0]
			continue
		}
		sh := &Shard{Prefix: backend.ShardPrefix(h.prefix, h.Name, i, n), Number: i}
		sh.Ledger = sh.Prefix + "ledger"
		h.adopt(sh)
		all[i] = sh
	}
	h.shards.Store(&all)
}

// Resolve has a home that leaves the number of its shards to the store have as many as that says.
func (s *Space) Resolve(ctx context.Context, h *Home) error {
	_, err := s.count(ctx, h)
	return err
}

// count has a home that leaves the number of its shards to the store have as many as the store
// says. It returns whether the store has said so: otherwise they are as many as it will.
func (s *Space) count(ctx context.Context, h *Home) (recorded bool, err error) {
	if h.IsFixed() {
		return true, nil
	}
	text, err := s.backend.Background.HGet(ctx, h.Shards()[0].Ledger, "shards").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, backend.Classify(err)
	}
	n, err := strconv.Atoi(text)
	if recorded = err == nil && n >= 1 && n <= MaxShards; !recorded {
		if n, err = ShardsFor(ctx, s.backend, Auto); err != nil {
			return false, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.IsFixed() {
		if n != len(h.Shards()) {
			h.divide(n)
		}
		if recorded {
			close(h.fixed)
		}
	}
	return recorded, nil
}

// ShardsFor is how many shards a namespace that is new to a store gets: as many as it wants, or, where
// that is Auto, four a master of a cluster, and one elsewhere.
func ShardsFor(ctx context.Context, b *backend.Backend, wanted int) (int, error) {
	if wanted != Auto {
		return wanted, nil
	}
	masters, err := b.Masters(ctx)
	return min(max(1, perMaster*masters), MaxShards), err
}

// Ledgers are those of the shards of a namespace that has so many.
func Ledgers(prefix, namespace string, shards int) (ledgers []string) {
	for i := range shards {
		ledgers = append(ledgers, backend.ShardPrefix(prefix, namespace, i, shards)+"ledger")
	}
	return ledgers
}
