// Package php keeps jobs in the queues of PHP applications, on the keys of their own libraries,
// think-queue and Laravel: it publishes what their workers run, and claims what they push.
//
// A Store answers the operations of queues of package job, so that routes, push, clients and the
// admin port serve both kinds. What differs:
//
//   - An id is that of a delivery: a payload gets another one with each claim. Publish answers none.
//   - Every settlement is fenced, an ack, too: once PHP has the payload, it is job.Gone.
//   - job.Release gives back whatever the try, for workers in which PHP's library decides.
//   - There is no ttl, no spread, no schedule, no prepared job, no follow-up.
//
// Nothing that PHP wrote is ever unserialized: a payload is JSON bytes. The scripts, their keys and
// their invariants are in package lua/php; DESIGN.md says what is decided here.
package php

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

// Config is the configuration of a Store. Open returns a *backend.FieldError for a value that it
// cannot use.
type Config struct {
	// Prefix begins every key of Spillway's own: 1 to 64 letters, digits, '.', '_' or '-'.
	Prefix string
	// Namespaces are the policies by the name of their namespace.
	Namespaces map[string]Policy
}

// Reads are limited, so that no number of readers slows down those who work.
const (
	readsAtOnce  = 4
	readsMaxWait = 500 * time.Millisecond
)

// Store runs every operation on the queues of PHP's on one Redis, as atomic scripts. It holds no
// state that matters, so any number of processes, and of PHP's workers, may share one Redis. It is
// safe for concurrent use.
type Store struct {
	backend    *backend.Backend
	prefix     string
	log        *zap.Logger
	namespaces map[string]*namespace // a reload makes another Store
	reads      backend.ReadLimit
	metrics    *metrics
	passed     atomic.Pointer[[]string] // the warnings of the Check that passed
}

// Open makes a Store on a Backend, which the caller closes after it. It does not connect.
func Open(cfg Config, b *backend.Backend, reg prometheus.Registerer,
	log *zap.Logger) (*Store, error) {
	switch {
	case !partition.ValidNamespace(cfg.Prefix):
		return nil, backend.Wrong("prefix", cfg.Prefix, "1 to 64 letters, digits, '.', '_' or '-'")
	case b.Embedded():
		return nil, backend.Wrong("redis", "embedded:", "the Redis of the PHP application, such as redis://host:6379/0")
	}
	s := &Store{backend: b, prefix: cfg.Prefix, log: log,
		namespaces: map[string]*namespace{}, metrics: newMetrics(reg)}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Namespaces)) {
		n, err := s.newNamespace(name, cfg.Namespaces[name])
		errs = append(errs, err)
		s.namespaces[name] = n
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	reg.MustRegister(s.sums())
	s.reads = backend.NewReadLimit(readsAtOnce, readsMaxWait, s.metrics.rejected)
	return s, nil
}

// Namespace returns the namespace of that name, nil when there is none.
func (s *Store) Namespace(name string) *job.Namespace {
	if n := s.named(name); n != nil {
		return n.Namespace
	}
	return nil
}

func (s *Store) named(name string) *namespace { return s.namespaces[name] }

// of is the namespace behind a handle; an error: it does not serve the queue.
func (s *Store) of(ns *job.Namespace, queue string) (*namespace, error) {
	n := s.named(ns.Name)
	if n == nil || !n.Serves(queue) {
		return nil, job.ErrNoQueue
	}
	return n, nil
}

// Namespaces returns all namespaces in the order of their names.
func (s *Store) Namespaces() []*job.Namespace {
	list := make([]*job.Namespace, 0, len(s.namespaces))
	for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
		list = append(list, s.namespaces[name].Namespace)
	}
	return list
}

// Now is the store's clock in Unix ms. ok is false until the store has answered once.
func (s *Store) Now() (ms int64, ok bool) { return s.backend.Now() }

// explained is the error of a call in words of jobs.
func explained(err error) error {
	if backend.IsWrongType(err) {
		return fmt.Errorf("%w: %w", job.ErrForeignType, err)
	}
	return err
}

// probeQueue is a name that no caller can use.
const probeQueue = "!permission-probe"

// Check asks whether the queues can be used now: whether the server is one for them, and this user
// has all rights on PHP's keys and on Spillway's.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	passed := s.passed.Load()
	if passed == nil {
		if err := s.backend.Load(ctx, luaphp.All()); err != nil {
			return nil, err
		}
	}
	if warnings, err = s.backend.CheckServers(ctx); err != nil {
		return warnings, err
	}
	if passed != nil {
		return append(warnings, *passed...), nil
	}
	passed = new([]string)
	for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
		n := s.namespaces[name]
		if err := s.checkRights(ctx, n); err != nil {
			return warnings, err
		}
		odd, err := s.oddities(ctx, n)
		if err != nil {
			return warnings, err
		}
		*passed = append(*passed, odd...)
	}
	s.passed.Store(passed)
	return append(warnings, *passed...), nil
}

// checkRights tries whether the server lets this user run all commands, as space does for shards.
func (s *Store) checkRights(ctx context.Context, n *namespace) error {
	k := n.keys(probeQueue)
	c := backend.NewCall(luaphp.PermissionProbe, nil, append(k.nine(),
		k.prefix+"out:probe", k.prefix+"known:probe"))
	s.backend.Run(ctx, s.backend.Out, []*backend.Call{c})
	missing := backend.Rights{}
	if err := missing.Read(c, n.Name, "keys"); err != nil {
		return err
	}
	if len(missing) > 0 {
		return backend.Wrap(backend.ErrIncompatible, fmt.Errorf("namespace %s: the Redis user lacks rights: it needs ~%squeues:* (think3: ~%s{queues:*), "+
			"~%s*, %%R~%s%s and +@all -@dangerous; %w", n.Name, n.KeyPrefix, n.KeyPrefix, n.own, n.CachePrefix, n.Flavor.restartKey(),
			missing.Error(s.backend.Addrs(), s.prefix)))
	}
	return nil
}
