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
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/space"
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

// behind is the namespace behind a handle.
func (s *Store) behind(ns *job.Namespace) (*namespace, error) {
	if n := s.named(ns.Name); n != nil {
		return n, nil
	}
	return nil, job.ErrNoQueue
}

// of is the namespace behind ns. It is an error if that does not serve the queue.
func (s *Store) of(ns *job.Namespace, queue string) (*namespace, error) {
	n, err := s.behind(ns)
	if err == nil && !n.Serves(queue) {
		return nil, job.ErrNoQueue
	}
	return n, err
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

// Policy is the settings of one namespace: what the PHP application is configured with. Validate
// returns a *partition.FieldError for each value outside its bounds.
type Policy struct {
	// Flavor is the library whose rules hold; there is no default.
	Flavor Flavor
	// KeyPrefix is what PHP's client puts before every key, such as laravel_database_; default none.
	KeyPrefix string
	// CachePrefix is the same of the application's cache, where the restart signal is; default none.
	CachePrefix string
	// Rules name the queues that are served, their tries, and their TTR: 1 to job.MaxRules.
	Rules []job.Rule
	// Tries is how often a payload that names none is delivered: 0 to job.MaxTries, 0 for ever.
	// Default: 1 with laravel, else 0, as those libraries.
	Tries int
	// RetryAfter is how long PHP's workers reserve a job; 0: for ever, then nobody takes their
	// reservations back. 1s to 24h; default 90s with laravel, else 60s.
	RetryAfter time.Duration
	// TTR is the lease of a claim without one: 1s to 24h; default 60s.
	TTR time.Duration
	// Poll is the pause between two looks for jobs while claims wait: 10ms to 1m; 0, the default:
	// one command waits in Redis.
	Poll time.Duration
	// MaxKeys is how many idempotency keys a queue remembers: 1 to 1,000,000,000; default 1,000,000.
	MaxKeys int64
}

// DefaultPolicy returns the defaults of a flavor.
func DefaultPolicy(f Flavor) Policy {
	p := Policy{Flavor: f, TTR: time.Minute, RetryAfter: time.Minute, MaxKeys: 1_000_000}
	if f == Laravel {
		p.Tries, p.RetryAfter = 1, 90*time.Second
	}
	return p
}

// Validate returns a *partition.FieldError for each unusable setting, joined.
func (p Policy) Validate() error {
	var v partition.Validation
	v.Check(p.Flavor.Valid(), "flavor", p.Flavor, "think3, think2 or laravel")
	v.Check(validPrefix(p.KeyPrefix), "key_prefix", p.KeyPrefix, wantPrefix)
	v.Check(validPrefix(p.CachePrefix), "cache_prefix", p.CachePrefix, wantPrefix)
	v.Check(p.Tries >= 0 && p.Tries <= job.MaxTries, "tries", p.Tries,
		fmt.Sprintf("0 to %d; 0: for ever", job.MaxTries))
	v.Check(p.RetryAfter == 0 || p.RetryAfter >= time.Second &&
		p.RetryAfter <= 24*time.Hour, "retry_after", p.RetryAfter,
		"1s to 24h, as PHP has it; never: PHP has null there")
	v.Check(validTTR(p.TTR), "ttr", p.TTR, wantTTR)
	v.Check(p.Poll == 0 || p.Poll >= 10*time.Millisecond && p.Poll <= time.Minute,
		"poll", p.Poll, "10ms to 1m; none: wait in Redis")
	v.Check(p.MaxKeys >= 1 && p.MaxKeys <= 1_000_000_000, "max_keys", p.MaxKeys,
		"1 to 1000000000, of each queue")
	v.Check(len(p.Rules) >= 1 && len(p.Rules) <= job.MaxRules, "queues", len(p.Rules),
		`1 to 256 names or patterns of the queues that are served, such as [default, "mail*"]`)
	for i, r := range p.Rules {
		at := fmt.Sprintf("queues[%d].", i)
		v.Check(r.Match.Valid(), at+"match", string(r.Match),
			"the name of a queue, with * for any text")
		v.Check(r.Tries >= 0 && r.Tries <= job.MaxTries, at+"tries", r.Tries,
			fmt.Sprintf("1 to %d", job.MaxTries))
		v.Check(r.TTR == 0 || validTTR(time.Duration(r.TTR)), at+"ttr", r.TTR, wantTTR)
		v.Check(r.Rate.IsZero() && r.Delay == 0 && r.Burst == 0 && r.KeepTrace == 0 && r.KeepAcked == 0 && r.Concurrency == 0, at+"match", string(r.Match),
			"a rule of PHP's queues with match, tries and ttr alone: rate, burst, concurrency, keep_trace and keep_acked are of kind queue")
	}
	return v.Err()
}

const wantTTR = "1s to 24h"

func validTTR(d time.Duration) bool { return d >= time.Second && d <= 24*time.Hour }

const wantPrefix = "200 printable ASCII characters at most, without spaces, braces, * ? [ ] and \\"

// validPrefix accepts no character that a pattern of SCAN or a hash tag gives a meaning.
func validPrefix(s string) bool {
	return len(s) <= 200 && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`{}*?[]\`, r)
	})
}

// A namespace is the queues of one application under a policy. It never changes.
type namespace struct {
	*job.Namespace
	Policy
	cluster bool
	own     string // before the keys that are Spillway's
	breaker *backend.Breaker
	names   *names
	sums    *ledger
	restart *restart
	polled  atomic.Bool // the server has no BLMOVE
}

// newNamespace makes a namespace. Its errors are *backend.FieldError, joined.
func (s *Store) newNamespace(name string, p Policy) (*namespace, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if s.backend.Cluster() && p.Flavor == Think2 {
		return nil, backend.Wrong("flavor", string(p.Flavor), "a flavor whose keys have a hash tag: on a cluster those of think2, queues:NAME, lie on several servers")
	}
	of, err := job.NewNamespace(s.prefix, name, job.DefaultPolicy())
	if err != nil {
		return nil, err
	}
	of.PHP, of.TTR, of.Policy.Rules = true, p.TTR, p.Rules
	of.Policy.MaxJobs = 0 // PHP has no bound, so there is none to be near to
	own := s.prefix + ":php:"
	of.History = space.NewHistory(s.backend, own+"{"+name+"}:history", own+"{"+name+"}:closed")
	return &namespace{
		Namespace: of,
		Policy:    p,
		cluster:   s.backend.Cluster(),
		own:       own,
		breaker:   s.backend.NewBreaker(own + p.KeyPrefix),
		names:     &names{},
		sums:      &ledger{},
		restart:   &restart{},
	}, nil
}

// tries is how often a payload of a queue that names none is delivered; 0: for ever.
func (n *namespace) tries(queue string) int64 {
	for _, r := range n.Rules {
		if r.Tries > 0 && r.Match.Matches(queue) {
			return int64(r.Tries)
		}
	}
	return int64(n.Policy.Tries)
}

// keys are those of a queue: PHP's, and ours beside them.
type keys struct {
	ready, delayed, reserved, notify             string
	account, leases, held, dead, letters, prefix string
}

func (n *namespace) keys(queue string) keys {
	base := n.KeyPrefix + n.Flavor.base(queue, n.cluster)
	own := n.own + base
	return keys{base, base + ":delayed", base + ":reserved", base + ":notify",
		own + ":account", own + ":leases", own + ":held", own + ":dead", own + ":letters", own + ":"}
}

// nine are the keys of claim, settle and purge.
func (k keys) nine() []string {
	return []string{k.ready, k.delayed, k.reserved, k.notify, k.account, k.leases,
		k.held, k.dead, k.letters}
}
