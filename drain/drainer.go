// Package drain moves entries from the store to the sinks.
//
// A Drainer claims what is due, hands each lease to a worker of its namespace,
// and settles what became of every entry:
//
//	store.Due ─▶ claimer ─▶ store.Claim ─▶ lease worker ─▶ sink guard ─▶ sink.Write
//	     ▲     (one a shard)              (pool a namespace)    │
//	     └──────────── store.Settle ◀── settler ◀── account ◀──┘
//
// An entry of a lease ends in exactly one of delivered, expired and dead, in a
// commit that names its sequence, or stays buffered for a later attempt:
//
//	d, err := drain.New(drain.DefaultConfig(), store, []drain.Target{{
//		Namespace: store.Namespace("default"), Sink: out, Label: "stdout:",
//	}}, registry, log)
//	…
//	err = d.Start(ctx)
//	defer d.Stop(ctx)
//
// Words of this package, beside those of package partition:
//
//	room          one of three parts: claimers, lease worker, sink guard (DESIGN.md)
//	slot          the right to hold one more lease; a namespace has as many as workers can start at once, a
//	              coalescing one as many as fill two Writes
//	unit          what goes into one Write: one batch, several of one lease, or part of a rejected one
//	pace          how long the sink lately took for a Write: a moving average
//	minLife       the life an entry must have left to be worth a Write: about twice the pace
//	trial         a Write of entries with less life than minLife, made to learn the pace again
//	probe         a claim that a tripped breaker lets through to learn whether the sink answers
//	tripped       the breaker saw only failures, and lets nothing but probes through
//	fenced        rejected by the store, because another drainer has the lease now
//	group         pending Writes of several leases that go out in one Write, where the sink coalesces
//	member        one of them
//	suspect       a partition whose Write failed in a group, so that it may be the cause
//	poison entry  the entry for which the sink rejects its batch; bisecting finds it
//
// DESIGN.md holds the invariants, the failure table and what a sink may see
// twice.
package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// Store is what a Drainer needs of *partition.Store or *partition.Stores.
type Store interface {
	Due(ctx context.Context, ns *partition.Namespace, shard, offset,
		limit int) ([]partition.DuePartition, int, error)
	WaitDue(ctx context.Context, ns *partition.Namespace, shard int, due int64, limit time.Duration)
	Claim(ctx context.Context, requests []partition.ClaimRequest, lease time.Duration) []partition.ClaimResult
	Settle(ctx context.Context, commits []*partition.Commit, releases []*partition.Release)
	ReleaseUnknown(ctx context.Context, claims []partition.ClaimResult) error
	NowOf(ns *partition.Namespace) (ms int64, ok bool)
	Zones() int // see partition.Namespace.ZoneOf
}

// Target is one namespace and where its batches go. A sink serves one target.
type Target struct {
	Namespace *partition.Namespace
	Sink      sink.Sink
	Label     string // the sink's URL without its secrets, for logs
	// BackoffBase and BackoffMax replace those of the Config for this namespace; 0 =
	// as there.
	BackoffBase, BackoffMax time.Duration
	// After is waited for before the sink is opened: another drainer of the process has it
	// still. It returns when its context ends; nil: nothing.
	After func(context.Context)
}

// config is the configuration for this namespace.
func (t Target) config(c Config) Config {
	if t.BackoffBase != 0 {
		c.BackoffBase = t.BackoffBase
	}
	if t.BackoffMax != 0 {
		c.BackoffMax = t.BackoffMax
	}
	return c
}

// Drainer drains namespaces into their sinks, from Start to Stop. Any number of
// drainers, in any number of processes, may drain the same namespaces.
type Drainer struct {
	cfg        Config
	store      Store
	log        *zap.Logger
	settlers   []*settler // by zone
	namespaces []*namespaceDrain
	outage     partition.OutageLog // of the claimers

	life *guard.Life
}

// New makes a Drainer, which must be stopped even if it never starts. Errors
// are *partition.FieldError, a namespace given twice or without a sink, and
// metrics that are registered already.
func New(cfg Config, store Store, targets []Target, reg prometheus.Registerer,
	log *zap.Logger) (*Drainer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := checkTargets(cfg, targets); err != nil {
		return nil, err
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	d := &Drainer{cfg: cfg, store: store, log: log, life: guard.NewLife("drain")}
	for range store.Zones() {
		d.settlers = append(d.settlers, newSettler(store))
	}
	d.outage.Log, d.outage.Level = log, zap.WarnLevel
	d.outage.Began, d.outage.Ended = "store failing, claims paused", "store serves claims again"
	for _, t := range targets {
		n, err := newNamespaceDrain(d, t, m.of(t.Namespace.Name))
		if err != nil {
			return nil, errors.Join(err, d.Stop(context.Background()))
		}
		d.namespaces = append(d.namespaces, n)
	}
	if err := reg.Register(ranks(d.namespaces)); err != nil {
		return nil, errors.Join(fmt.Errorf("register drain metrics: %w", err), d.Stop(context.Background()))
	}
	return d, nil
}

func checkTargets(cfg Config, targets []Target) error {
	if len(targets) == 0 {
		return errors.New("drain has no targets")
	}
	seen := make(map[string]bool, len(targets))
	for _, t := range targets {
		switch {
		case t.Namespace == nil || t.Sink == nil:
			return fmt.Errorf("drain target %q lacks its namespace or its sink", t.Label)
		case seen[t.Namespace.Name]:
			return fmt.Errorf("namespace %s has two drain targets", t.Namespace.Name)
		}
		if err := t.config(cfg).Validate(); err != nil {
			return fmt.Errorf("drain target of namespace %s: %w", t.Namespace.Name, err)
		}
		seen[t.Namespace.Name] = true
	}
	return nil
}

// Start begins to drain and returns at once: the store may be away and a sink closed,
// so ctx bounds nothing. A second Start, and one after Stop, are errors and change
// nothing.
func (d *Drainer) Start(context.Context) error {
	return d.life.Begin(func() error {
		for _, s := range d.settlers {
			go s.run(d.life.Calling)
		}
		for _, n := range d.namespaces {
			n.start()
		}
		return nil
	}, func() {
		for _, n := range d.namespaces {
			<-n.ended
		}
		for _, s := range d.settlers {
			s.close()
		}
	})
}

// Stop ends the claims, lets the leases in hand finish and closes the sinks: see guard.Life. When
// ctx ends first it releases the batches of Writes under way.
func (d *Drainer) Stop(ctx context.Context) error {
	return d.life.End(ctx, func() {
		for _, n := range d.namespaces {
			n.freeWorkers()
		}
	}, d.closed, d.stuck)
}

// Ended closes when a namespace is drained no more; nil: it is none of this drainer's.
func (d *Drainer) Ended(namespace string) <-chan struct{} {
	for _, n := range d.namespaces {
		if n.name == namespace {
			return n.ended
		}
	}
	return nil
}

// closed is what the sinks said when they were closed.
func (d *Drainer) closed() error {
	var errs []error
	for _, n := range d.namespaces {
		errs = append(errs, n.closed)
	}
	return errors.Join(errs...)
}

func (d *Drainer) stuck() string {
	var names []string
	for _, n := range d.namespaces {
		select {
		case <-n.ended:
		default:
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ", ")
}
