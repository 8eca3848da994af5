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
	loaded   atomic.Bool   // the scripts are in the store
	servers  atomic.Pointer[result]
	foreign  atomic.Pointer[findings]
	last     atomic.Pointer[result] // of a Check of all homes
	checking sync.Mutex
}

// result is the result of a conclusive check.
type result struct{ err error }

// New makes a Space. It does not connect.
func New(cfg Config, b *backend.Backend) *Space {
	return &Space{Config: cfg, backend: b, id: rand.Text()}
}

// A Home is the shards of a namespace. It outlives changes of the namespace's policy.
type Home struct {
	Name     string
	Shards   []*Shard
	Required bool // without it a Check fails; else what is wrong with it is a warning

	list     string        // key of the processes that serve it
	self     uint64        // hash of this process, once it is adopted
	clock    backend.Clock // of the server that holds list
	roster   atomic.Pointer[roster]
	drainers atomic.Int32 // of this process
	// Reordered is called when other processes drain it than before; nil: nobody asks. It is set
	// before the home is adopted.
	Reordered func()

	permitted atomic.Bool // all rights were found
	checking  sync.Mutex
	checked   atomic.Pointer[result] // the last conclusive one; nil: none yet
}

// Shard is one shard of a namespace. All its keys begin with Prefix, whose hash tag keeps them
// in one slot of a cluster.
type Shard struct {
	Prefix, Ledger string
	Number, Zone   int
	Breaker        *backend.Breaker
	rollback       rollbackDetector
	compared       atomic.Pointer[time.Time] // when a check read last what its ledger records
}

// NewHome makes the home of a namespace, which works once it is adopted.
func NewHome(prefix, namespace string, shards int) *Home {
	h := &Home{Name: namespace, list: prefix + ":{" + namespace + "}:drainers"}
	for i := range shards {
		p := backend.ShardPrefix(prefix, namespace, i)
		h.Shards = append(h.Shards, &Shard{Prefix: p, Ledger: p + "ledger", Number: i})
	}
	return h
}

// Adopt makes a home one of this Space. It does nothing to one that was adopted before.
func (s *Space) Adopt(h *Home) {
	h.self = hashOf(s.id)
	for _, sh := range h.Shards {
		if sh.Breaker == nil {
			sh.Breaker = s.backend.NewBreaker(sh.Ledger)
			sh.Zone = backend.Slot(sh.Prefix) * s.Zones() / backend.Slots
		}
	}
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
