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
	Format int    // of the stored data; a program rejects another one, so an old program cannot damage new data
	Named  bool   // ledgers record the name of the kind
	// Total is the field of the ledger that counts all that was ever stored, Unit what it counts.
	Total, Unit string
	Embedded    []string // warnings of the embedded store
	Scripts     []*lua.Script
	// Probe is a script that tries all commands that the kind needs, and ProbeOf its KEYS and
	// ARGV for a shard.
	Probe   *lua.Script
	ProbeOf func(*Shard) (keys []string, args []any)
}

// Config is what a Space is made of.
type Config struct {
	Kind    *Kind
	Prefix  string // begins every key
	Durable bool   // a server that keeps nothing over a crash is rejected
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
	id       string        // of this process, in the lists of those that serve a namespace
	rounds   atomic.Uint64 // how often the ledgers were read for rollbacks
	loaded   atomic.Bool   // the server has the scripts
	servers  atomic.Pointer[result]
	foreign  atomic.Pointer[findings]
	last     atomic.Pointer[result] // of a Check of all homes
	passed   atomic.Bool            // last is without an error
	turns    atomic.Uint64          // of checks, in which homes are asked for their rights again
	checking sync.Mutex
}

// result is the result of a conclusive check.
type result struct{ err error }

// New makes a Space. It does not connect.
func New(cfg Config, b *backend.Backend) *Space {
	return &Space{Config: cfg, backend: b, id: rand.Text()}
}

// Shard is one shard of a namespace. All its keys begin with Prefix, whose hash tag keeps them
// in one slot of a cluster.
type Shard struct {
	Prefix, Ledger string
	Number         int // in Home.Shards
	Zone           int
	Own            any // what the store of the kind keeps of it
	Breaker        *backend.Breaker
	rollback       rollbackDetector
	compared       atomic.Pointer[time.Time] // when a check read last what its ledger records
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
