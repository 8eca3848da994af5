package partition

import (
	"context"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/metric"
	"github.com/spillway-io/spillway/partition/space"
)

// Store runs every operation on partitions, as atomic scripts on one Redis. It holds no
// state that matters, so any number of processes may share one Redis. It is safe for
// concurrent use. Open and Close are the life of its connections.
type Store struct {
	verbs       // what its Namespaces can do too, see stores.go
	backend     *backend.Backend
	prefix      string
	namespaces  map[string]*Namespace
	firstZone   int // zones of the stores before this one, see Join
	metrics     *metrics
	log         *zap.Logger
	space       *space.Space
	homes       []*space.Home // of all namespaces
	produces    sync.Pool     // of *produceRun
	stats       backend.ReadLimit
	ledgerReads backend.ReadLimit
	pace        *backend.Pace
	close       func() error // the backend, where it is this Store's own
}

// Open makes a Store. It does not connect: while Redis is down, operations return
// ErrUnavailable. Its errors are *FieldError.
func Open(cfg Config, reg prometheus.Registerer, log *zap.Logger) (*Store, error) {
	if !ValidNamespace(cfg.Prefix) {
		return nil, Wrong("prefix", cfg.Prefix, "1 to 64 letters, digits, '.', '_' or '-'")
	}
	if len(cfg.Namespaces) == 0 {
		return nil, Wrong("namespaces", "none", "at least one")
	}
	s := &Store{
		prefix:     cfg.Prefix,
		namespaces: map[string]*Namespace{},
		log:        log,
		close:      func() error { return nil },
		pace:       backend.NewPace(),
	}
	s.produces.New = func() any { return &produceRun{} }
	for name, policy := range cfg.Namespaces {
		ns, err := newNamespace(cfg.Prefix, name, policy)
		if err != nil {
			return nil, err
		}
		ns.drops = cfg.Drops.Of(name)
		s.namespaces[name] = ns
	}
	if s.backend = cfg.Backend; s.backend == nil {
		own := backend.Config{URL: cfg.URL, Replicas: cfg.Replicas}
		if cfg.Follows != nil {
			own.Follows = cfg.Follows.backend
		}
		var err error
		if s.backend, err = backend.Open(own, reg, log); err != nil {
			return nil, err
		}
		s.close = s.backend.Close
	}
	s.metrics = newMetrics(reg)
	s.space = space.New(space.Config{
		Kind:       kind,
		Prefix:     cfg.Prefix,
		Foreign:    s.checkSharedKeys,
		RolledBack: s.metrics.rolledBack,
		Log:        log,
	}, s.backend)
	for _, ns := range s.Namespaces() {
		ns.store = s
		s.space.Adopt(ns.home)
		s.homes = append(s.homes, ns.home)
	}
	s.stats = backend.NewReadLimit(statsAtOnce, statsMaxWait, s.metrics.rejected)
	s.ledgerReads = backend.NewReadLimit(ledgersAtOnce, ledgersMaxWait, s.metrics.rejected)
	for name := range s.namespaces {
		s.metrics.evicted.WithLabelValues(name)
	}
	return s, nil
}

// Embedded reports whether the store lives in this process and dies with it.
func (s *Store) Embedded() bool { return s.backend.Embedded() }

// Now is the store's clock in Unix ms. ok is false until the store has answered once.
// The wall clock of the process is never used for ages.
func (s *Store) Now() (ms int64, ok bool) { return s.backend.Now() }

// Ping reads the store's time, and so sets the clock.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.backend.ReadTime(ctx)
	return err
}

// Close closes the connections; operations under way fail. A second Close does nothing.
// Connections that other stores use, see Config.Backend, stay open.
func (s *Store) Close() error { return s.close() }

// ServerVersion is the version of Redis, of one of the masters, as the last Check read it;
// empty before, and where Redis does not say it.
func (s *Store) ServerVersion() string { return s.backend.ServerVersion() }

// probePartition is a name that no caller can use.
const probePartition = "!permission-probe"

// kind is what a Space has to know of buffers.
var kind = &space.Kind{
	Name: "buffer", Format: 1, Total: "accepted", Unit: "entries", Scripts: lua.All(),
	Probe: lua.PermissionProbe,
	// A list of its own stands in for the dead letters: what something else may have put there
	// concerns few entries, see checkSharedKeys.
	ProbeOf: func(at *space.Shard) (keys []string, args []any) {
		sh := newShard(nil, at)
		list := sh.list(probePartition)
		return []string{list, at.Prefix + "ready", sh.meta(probePartition), at.Ledger, list,
			sh.produceResult(probePartition, "0")}, []any{probePartition}
	},
}

// Check asks whether the store can be used now: see space.Check. A foreign value as an active set
// or ledger is an error, too. Until a Check passed, and after one with ErrIncompatible until
// another passes, whatever changes something is rejected, and so are Due and Claim: they ask a flag.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	return s.space.Check(ctx, s.homes)
}

// Inspect is a Check that lets nothing run which was rejected, and records no format and
// no number of shards where a namespace is new to the store.
func (s *Store) Inspect(ctx context.Context) (warnings []string, err error) {
	return s.space.Inspect(ctx, s.homes)
}

// mayRun is nil when a Check passed, which costs a load. The first caller runs one, so that no
// entry is stored where nobody reads it.
func (s *Store) mayRun(ctx context.Context) error { return s.space.AllUsable(ctx, s.homes) }

// The errors of store operations. Every error of the store Is one of the first three,
// which say what the caller may do next; the others are more precise.
var (
	// ErrUnavailable: the store did not run the operation, for certain. Retry.
	ErrUnavailable = backend.ErrUnavailable
	// ErrUnknown: the operation may or may not have run. Never repeat a produce
	// then; claim, commit and release are safe to repeat.
	ErrUnknown = backend.ErrUnknown
	// ErrBroken: a foreign value under one of the store's keys, a script error or a
	// missing right. A person has to look.
	ErrBroken = backend.ErrBroken

	// ErrUnconfirmed goes with ErrUnknown: the primary has the entries, but fewer
	// replicas than Config.Replicas confirmed them in time.
	ErrUnconfirmed = backend.ErrUnconfirmed
	// ErrUnreachable is ErrUnavailable because calls for the shard are not sent at present.
	ErrUnreachable = backend.ErrUnreachable
	// ErrFull is ErrUnavailable because the store is out of memory.
	ErrFull = backend.ErrFull
	// ErrIncompatible is ErrBroken because the data or the setup of the store does not
	// match this program or its configuration.
	ErrIncompatible = backend.ErrIncompatible
	// ErrTooManyPartitions: a new partition beyond Policy.MaxPartitions.
	ErrTooManyPartitions = errors.New("too many partitions")
	// ErrTooManyKeys: a new idempotency key beyond Policy.MaxKeys.
	ErrTooManyKeys = errors.New("too many idempotency keys")
	// ErrNoPartition: the partition has no entries.
	ErrNoPartition = errors.New("no such partition")
	// ErrGone: the caller no longer holds the lease, or its partition ended. Stop.
	ErrGone = errors.New("lease is gone")
)

type metrics struct {
	repaired   prometheus.Counter
	expired    prometheus.Counter
	rolledBack prometheus.Counter
	rejected   prometheus.Counter
	evicted    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	r := metric.New(reg, "spillway_store_")
	m := &metrics{
		repaired: r.Counter("janitor_mended_total", "Partitions repaired by the janitor."),
		expired: r.Counter("janitor_expired_total",
			"Stale entries that the janitor expired in partitions that nobody drained."),
		rolledBack: r.Counter("rolled_back_entries_total",
			"Accepted entries that a rollback of the store removed together with their ledger: a lower bound, from what this process knew."),
		rejected: r.Counter("reads_rejected_total",
			"Reads of partitions and ledgers rejected because too many were under way."),
		evicted: r.Counters("evicted_entries_total",
			"Oldest entries evicted from full partitions by produces of this process.", "namespace"),
	}
	r.Must()
	return m
}
