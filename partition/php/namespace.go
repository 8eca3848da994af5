package php

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/space"
)

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

// How names are found: by SCAN of all keys, at most so often, in steps with a rest between them, so
// that a large cache beside the queues costs little.
const (
	namesEvery = 10 * time.Second
	scanStep   = 1000
	scanRest   = 5 * time.Millisecond
	maxNames   = 100_000
)

// names are the queues that were found for the patterns of a namespace.
type names struct {
	mu    sync.Mutex
	list  []string
	at    time.Time
	scans map[string]*scan // under way, by the address of their server
	told  bool             // that there are queues which are not served
}

// scan is how far one server was looked at.
type scan struct {
	cursor uint64
	list   []string
	other  string // a queue that a pattern matches, and that is not served for its name
	ended  bool
}

// Queues returns the queues of a namespace: those that its rules name, and those that exist now, or
// did at most ten seconds ago, and match a pattern. Up to 100,000.
func (s *Store) Queues(ctx context.Context, ns *job.Namespace) ([]string, error) {
	n := s.named(ns.Name)
	if n == nil {
		return nil, job.ErrNoQueue
	}
	var list []string
	wild := false
	for _, r := range n.Rules {
		if r.Match.Wild() {
			wild = true
		} else {
			list = append(list, string(r.Match))
		}
	}
	if wild {
		found, err := s.found(ctx, n)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// found are the queues that exist and match a pattern. A scan that outlasts ctx goes on with the next
// call; until it has ended, the names of the last one hold.
func (s *Store) found(ctx context.Context, n *namespace) ([]string, error) {
	n.names.mu.Lock() // one scan at a time: others want what it finds
	defer n.names.mu.Unlock()
	if time.Since(n.names.at) < namesEvery {
		return n.names.list, nil
	}
	if n.names.scans == nil {
		n.names.scans = map[string]*scan{}
	}
	var mu sync.Mutex // of scans: the masters of a cluster are scanned together
	err := backend.EachMaster(ctx, s.backend.Background, func(ctx context.Context,
		c *redis.Client) error {
		mu.Lock()
		of := n.names.scans[c.Options().Addr]
		if of == nil {
			of = &scan{}
			n.names.scans[c.Options().Addr] = of
		}
		mu.Unlock()
		return n.goOn(ctx, c, of)
	})
	switch {
	case err != nil && ctx.Err() != nil && !n.names.at.IsZero():
		return n.names.list, nil
	case err != nil:
		return nil, err
	}
	var list []string
	for _, of := range n.names.scans {
		list = append(list, of.list...)
		if of.other != "" && !n.names.told {
			n.names.told = true
			s.log.Warn("queues are not served: names have letters, digits, '.', '_' and '-'",
				zap.String("namespace", n.Name), zap.String("queue", of.other))
		}
	}
	slices.Sort(list)
	n.names.list, n.names.at, n.names.scans = slices.Compact(list), time.Now(), nil
	return n.names.list, nil
}

// goOn scans a server to its end, or until ctx ends.
func (n *namespace) goOn(ctx context.Context, c *redis.Client, of *scan) error {
	for !of.ended {
		keys, next, err := c.Scan(ctx, of.cursor, n.KeyPrefix+"*queues:*", scanStep).Result()
		if err != nil {
			return backend.Classify(err)
		}
		for _, key := range keys {
			name := n.Flavor.queueOf(key[len(n.KeyPrefix):], n.cluster)
			switch other := n.Flavor.otherOf(key[len(n.KeyPrefix):], n.cluster); {
			case partition.ValidOwnName(name):
				if n.Serves(name) && len(of.list) < maxNames {
					of.list = append(of.list, name)
				}
			case other != "" && n.Serves(other):
				of.other = other
			}
		}
		of.cursor, of.ended = next, next == 0
		if of.ended {
			break
		}
		select {
		case <-time.After(scanRest):
		case <-ctx.Done():
			return backend.Classify(ctx.Err())
		}
	}
	return nil
}
