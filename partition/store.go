package partition

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
)

// Store runs every operation on partitions, as atomic scripts on one Redis. It holds no
// state that matters, so any number of processes may share one Redis. It is safe for
// concurrent use. Open and Close are the life of its connections.
type Store struct {
	backend      *backend.Backend
	prefix       string
	namespaces   map[string]*Namespace
	zones        int
	metrics      *metrics
	log          *zap.Logger
	ledgerRounds atomic.Uint64 // how often checkRollback has read the ledgers
	loaded       atomic.Bool   // Check has put the scripts into the store
	permitted    atomic.Bool   // Check has found all rights
	lastCheck    atomic.Pointer[checkResult]
	checking     sync.Mutex
	produces     sync.Pool // of *produceRun
	stats        backend.ReadLimit
	ledgerReads  backend.ReadLimit
	pace         *backend.Pace
	produceAlert *produceAlert
	close        func() error    // the backend, where it is this Store's own
	connected    <-chan struct{} // a connection was made, or a shard is reachable again
}

// Open makes a Store. It does not connect: while Redis is down, operations return
// ErrUnavailable. Its errors are *FieldError.
func Open(cfg Config, reg prometheus.Registerer, log *zap.Logger) (*Store, error) {
	if !ValidNamespace(cfg.Prefix) {
		return nil, &FieldError{Field: "prefix", Value: cfg.Prefix, Want: "1 to 64 letters, digits, '.', '_' or '-'"}
	}
	if len(cfg.Namespaces) == 0 {
		return nil, &FieldError{Field: "namespaces", Value: "none", Want: "at least one"}
	}
	s := &Store{prefix: cfg.Prefix, namespaces: map[string]*Namespace{}, log: log, close: func() error { return nil }, produceAlert: newProduceAlert(log), pace: backend.NewPace()}
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
	s.connected = s.backend.Connected()
	for _, ns := range s.namespaces {
		ns.store = s
		for i := range ns.shards {
			ns.shards[i].breaker = s.backend.NewBreaker(ns.shards[i].ledger)
		}
	}
	s.zones = 1
	if s.backend.Cluster() {
		s.zones = setZones(s.namespaces)
	}
	s.metrics = newMetrics(reg)
	s.stats = backend.NewReadLimit(statsAtOnce, statsMaxWait, s.metrics.refused)
	s.ledgerReads = backend.NewReadLimit(ledgersAtOnce, ledgersMaxWait, s.metrics.refused)
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
