// Package space is where namespaces of one kind live on one Redis: their shards, what the ledger
// of each shard records of them, whether the server is right for them, and whether it lost what
// it had. A store of a kind stands on a Space; its scripts and its verbs are its own.
package space

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// MaxZones is the most zones of a Space. Twelve divide evenly among 2, 3, 4, 6 or 12
// masters. More zones would make smaller flushes, which cost Redis more per entry.
const MaxZones = 12

// A Kind is what one kind of namespace has of its own.
type Kind struct {
	Name   string // as kind: of a configuration says it
	Format int    // of the stored data of a new namespace
	Newest int    // format that this program knows, to which a feature may raise it; a program rejects a newer one, so an old program cannot damage new data
	Named  bool   // ledgers record the name of the kind
	// Total is the field of the ledger that counts all that was ever stored, Unit what it counts.
	Total, Unit string
	Embedded    []string // warnings of the embedded store
	Scripts     []*lua.Script
	// Probe is a script that tries all commands that the kind needs, and ProbeOf its KEYS and
	// ARGV for a shard.
	Probe   *lua.Script
	ProbeOf func(*Shard) (keys []string, args []any)
	// Layouts is how many older layouts of a namespace may be open at once.
	Layouts int
}

// Config is what a Space is made of.
type Config struct {
	Kind   *Kind
	Prefix string // begins every key
	// Pool is the name of the pool that the configuration names, and Pools are all of this process. nil:
	// there are no others. A layout may lie in any of them.
	Pool    string
	Pools   map[string]*backend.Backend
	Durable bool // a server that keeps nothing over a crash is rejected
	// Foreign looks for values of others under the keys of the kind. nil: there are none that
	// matter.
	Foreign    func(context.Context) (warnings []string, err error)
	RolledBack prometheus.Counter
	Log        *zap.Logger
}

// A Space checks and watches the homes of namespaces.
type Space struct {
	Config
	backend  *backend.Backend
	missing  *backend.Backend // in the place of pools that this process does not have
	id       string           // of this process, in the lists of those that serve a namespace
	rounds   atomic.Uint64    // how often the ledgers were read for rollbacks
	loaded   sync.Map         // back-ends that have the scripts
	servers  atomic.Pointer[result]
	foreign  atomic.Pointer[findings]
	last     atomic.Pointer[result] // of a Check of all homes
	checking sync.Mutex
	changes  atomic.Uint64 // odd while a home gets other layouts
}

// result is the result of a conclusive check.
type result struct{ err error }

// New makes a Space. It does not connect.
func New(cfg Config, b *backend.Backend) *Space {
	return &Space{Config: cfg, backend: b, missing: b.Missing(), id: rand.Text()}
}

// Shard is one shard of a namespace. All its keys begin with Prefix, whose hash tag keeps them
// in one slot of a cluster.
type Shard struct {
	Prefix, Ledger string
	Number         int   // in Layouts.Shards
	Layout         int64 // number of its layout
	Zone           int
	Own            any              // what the store of the kind keeps of it
	Pool           string           // empty where there is one
	Backend        *backend.Backend // of the pool
	Breaker        *backend.Breaker
	rollback       rollbackDetector
	compared       atomic.Pointer[time.Time] // when a check read last what its ledger records

	fenced atomic.Bool  // it takes no entries of its own layout any more
	mark   atomic.Int64 // no sequence of it is ever this high, once it is fenced
	told   atomic.Int64 // version of the newest record that this process left in its ledger
	// Drained: it is fenced, and nothing is left or paused in it. That stays so.
	Drained atomic.Bool
	revived atomic.Bool // it is of a closed layout, and a failover brought entries back
}

// Revived reports whether a failover brought entries back to the shard after its layout was closed.
func (sh *Shard) Revived() bool { return sh.revived.Load() }

// Fenced reports whether this process knows that the shard takes no entries for its own layout
// any more, which stays so.
func (sh *Shard) Fenced() bool { return sh.fenced.Load() }

// at is the back-end of a pool; "" is the one that the configuration names.
func (s *Space) at(pool string) *backend.Backend {
	if pool == "" || pool == s.Pool {
		return s.backend
	}
	if b := s.Pools[pool]; b != nil {
		return b
	}
	return s.missing
}

// Zones is the number of zones: even parts of the slots of a Redis Cluster. The shards of a zone
// are most likely on one master, so a slow master delays only its own zones. A shard never changes
// its zone. Any other store has a single zone.
func (s *Space) Zones() int {
	if s.backend.Cluster() {
		return MaxZones
	}
	return 1
}

// Round counts the looks for rollbacks; Stored wants it from before a call is sent.
func (s *Space) Round() uint64 { return s.rounds.Load() }

// Stored notes that a call stored n entries or jobs. round is from before the call was sent.
func (sh *Shard) Stored(round uint64, n int) { sh.rollback.add(round, n) }
