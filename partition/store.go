package partition

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// Store runs every operation on partitions, as atomic scripts on one Redis. It holds no
// state that matters, so any number of processes may share one Redis. It is safe for
// concurrent use. Open and Close are the life of its connections.
type Store struct {
	backend      *backend
	prefix       string
	replicas     int
	namespaces   map[string]*Namespace
	zones        int
	prober       *prober
	clock        clock
	metrics      *metrics
	log          *zap.Logger
	ledgerRounds atomic.Uint64 // how often checkRollback has read the ledgers
	loaded       atomic.Bool   // Check has put the scripts into the store
	permitted    atomic.Bool   // Check has found all rights
	lastCheck    atomic.Pointer[checkResult]
	version      atomic.Value // string, of ServerVersion
	checking     sync.Mutex
	produces     sync.Pool // of *produceRun
	stats        readLimit
	ledgerReads  readLimit
	pace         *pace
	produceAlert *produceAlert
	closing      sync.Once
	closeErr     error
}

// Open makes a Store. It does not connect: while Redis is down, operations return
// ErrUnavailable. Its errors are *FieldError.
func Open(cfg Config, reg prometheus.Registerer, log *zap.Logger) (*Store, error) {
	if !ValidNamespace(cfg.Prefix) {
		return nil, &FieldError{"prefix", cfg.Prefix, "1 to 64 letters, digits, '.', '_' or '-'"}
	}
	if len(cfg.Namespaces) == 0 {
		return nil, &FieldError{"namespaces", "none", "at least one"}
	}
	s := &Store{prefix: cfg.Prefix, replicas: cfg.Replicas, namespaces: map[string]*Namespace{}, log: log, produceAlert: newProduceAlert(log), pace: newPace()}
	s.produces.New = func() any { return &produceRun{} }
	for name, policy := range cfg.Namespaces {
		ns, err := newNamespace(cfg.Prefix, name, policy)
		if err != nil {
			return nil, err
		}
		ns.drops = cfg.Drops.Of(name)
		s.namespaces[name] = ns
	}
	var err error
	switch durability := fmt.Sprintf("replica=%d", cfg.Replicas); {
	case cfg.Replicas < 0 || cfg.Replicas > MaxReplicas:
		return nil, &FieldError{"durability", durability, "async, or replica=1 to replica=5"}
	case cfg.Replicas > 0 && strings.HasPrefix(cfg.URL, "embedded:"):
		return nil, &FieldError{"durability", durability, "async with the embedded store, which has no replicas; or another redis"}
	}
	redisLog.to.Store(log.Named("redis"))
	if s.backend, err = openBackend(cfg.URL, cfg.Follows); err != nil {
		return nil, err
	}
	s.prober = newProber(log, s.backend.returned)
	for _, ns := range s.namespaces {
		s.addBreakers(ns)
	}
	s.zones = 1
	if s.backend.cluster {
		s.zones = setZones(s.namespaces)
	}
	s.metrics = newMetrics(reg, s.prober.unreachable)
	s.stats = readLimit{make(chan struct{}, statsAtOnce), statsMaxWait, s.metrics.refused}
	s.ledgerReads = readLimit{make(chan struct{}, ledgersAtOnce), ledgersMaxWait, s.metrics.refused}
	for name := range s.namespaces {
		s.metrics.evicted.WithLabelValues(name)
	}
	return s, nil
}

// Embedded reports whether the store lives in this process and dies with it.
func (s *Store) Embedded() bool { return s.backend.embedded }

// Now is the store's clock in Unix ms. ok is false until the store has answered once.
// The wall clock of the process is never used for ages.
func (s *Store) Now() (ms int64, ok bool) { return s.clock.now() }

// Ping reads the store's time, and so sets the clock.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.readTime(ctx)
	return err
}

// Close closes the connections; operations under way fail. A second Close does nothing.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.prober.stop()
		s.closeErr = s.backend.in.Close()
		for _, c := range []redis.UniversalClient{s.backend.out, s.backend.background} {
			if err := c.Close(); s.closeErr == nil {
				s.closeErr = err
			}
		}
		s.backend.close()
	})
	return s.closeErr
}
