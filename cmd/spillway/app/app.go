package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// App is the whole service. What is connected to what, and built in this order:
//
//	  (1) store ──────────────┬──────────────┐
//	   ▲ Redis, or embedded   │              │
//	   │                 (2) sinks           │
//	   │                      │              │
//	   │◀── claim, commit (3) drain          │
//	   │                                     │
//	   └◀── produce ──── (4) ingest ◀── data port
//	                                         │
//	       metrics, ledger (5) admin ◀── admin port
//
//	(6) watch: checks every second whether the store can be used; /readyz of both
//	    ports answers with the result
//	(7) accounts: reads the ledger of each namespace every second, for metrics and log
//	(8) janitor: repairs what no other script meets
//
// A role builds less: ingest has no (2) and (3), drain has no (4).
// The comment of Stop gives the order in which they stop.
type App struct {
	cfg      *Config
	log      *zap.Logger
	store    *partition.Store
	janitor  *partition.Janitor
	drain    *drain.Drainer // with its sinks; nil under --role ingest
	ingest   *ingest.Server // nil under --role drain
	admin    *admin.Server
	watch    *watch
	accounts *admin.Accounts
	drops    *drops.Log
	failed   chan error // why a server ended before Stop
	workers  sync.WaitGroup

	life    sync.Mutex // held by Start
	started bool       // Start was called
	stopped bool       // Stop was called
	running bool       // Start succeeded

	stopping sync.Once
	stopErr  error

	// Listen and AdminListen are the addresses in use, set by Start;
	// Listen is empty under --role drain.
	Listen, AdminListen string
	// Final is the overview of each namespace of the embedded store after the
	// drain stopped; Stop sets it, because the store is gone afterwards.
	Final map[string]partition.Overview
}

// NewApp builds what cfg describes. Outside the process it only reads the files of
// certificates. Its errors are mistakes in cfg.
func NewApp(cfg *Config, sinks sink.Registry, log *zap.Logger) (*App, error) {
	a := &App{cfg: cfg, log: log, drops: drops.NewLog(), failed: make(chan error, 2)}
	reg := newRegistry()
	policies := map[string]partition.Policy{}
	for name, ns := range cfg.Namespaces {
		policies[name] = ns.Policy()
	}
	replicas, err := replicasOf(cfg.Durability)
	if err != nil {
		return nil, cfg.fieldError("durability", err)
	}
	if a.store, err = partition.Open(partition.Config{URL: cfg.Redis, Prefix: cfg.Prefix, Replicas: replicas, Namespaces: policies, Drops: a.drops}, reg, log.Named("store")); err != nil {
		return nil, cfg.locate(err)
	}
	a.janitor = partition.NewJanitor(a.store)
	a.watch = newWatch(a.store, reg, log)
	a.accounts = admin.NewAccounts(a.store, reg, log.Named("account"))
	if err := a.build(reg, sinks); err != nil {
		if a.drain != nil {
			err = errors.Join(err, a.drain.Stop(context.Background()))
		}
		return nil, errors.Join(cfg.locate(err), a.store.Close())
	}
	return a, nil
}

func (a *App) build(reg *prometheus.Registry, registry sink.Registry) error {
	var err error
	if a.cfg.Role != "ingest" {
		sinks, err := newSinks(a.cfg, registry, a.store, reg, a.log.Named("sink"))
		if err != nil {
			return err
		}
		var targets []drain.Target
		for _, ns := range a.store.Namespaces() {
			settings := a.cfg.Namespaces[ns.Name]
			targets = append(targets, drain.Target{
				Namespace: ns, Sink: sinks[ns.Name], Label: settings.label(),
				BackoffBase: settings.BackoffBase, BackoffMax: settings.BackoffMax,
			})
		}
		draining := a.cfg.drain()
		draining.Drops = a.drops
		if a.drain, err = drain.New(draining, a.store, targets, reg, a.log.Named("drain")); err != nil {
			return err
		}
	}
	if a.cfg.Role != "drain" {
		in := a.cfg.ingest()
		in.Drops = a.drops
		if in.TLS, err = a.cfg.dataTLS().config(reg, a.log); err != nil {
			return err
		}
		if a.ingest, err = ingest.New(in, a.store, reg, a.log.Named("ingest")); err != nil {
			return err
		}
		a.ingest.SetReady(a.watch.Ready)
	}
	tokens, err := a.cfg.adminAccess()
	if err != nil {
		return err
	}
	view := admin.View{
		Store: a.store, Accounts: a.accounts, Health: a.watch, Metrics: reg, Drops: a.drops, Settings: a.cfg.shown(),
		Tokens: tokens, MaskFields: a.cfg.MaskFields,
		Role: a.cfg.Role, StoreMode: storeMode(a.cfg.Redis), StoreURL: redactStore(a.cfg.Redis),
	}
	if a.drain != nil {
		view.Drain = a.drain
	}
	b := readBuild()
	cfg := admin.Config{Listen: a.cfg.AdminListen, Source: func() admin.View { return view }, Build: admin.Build{Version: b.Version, Revision: b.Revision, Go: b.Go}, Failed: func(err error) { a.failed <- err }}
	if cfg.TLS, err = a.cfg.adminTLS().config(reg, a.log); err != nil {
		return err
	}
	a.admin = admin.New(cfg, a.log.Named("admin"))
	return nil
}

// storeMode is the kind of store that a URL names.
func storeMode(raw string) string {
	switch scheme, _, _ := strings.Cut(raw, ":"); scheme {
	case "embedded":
		return "embedded"
	case "redis-sentinel", "rediss-sentinel":
		return "sentinel"
	case "redis-cluster", "rediss-cluster":
		return "cluster"
	default:
		return "redis"
	}
}

// shown are the settings of each namespace as the admin port shows them.
func (c *Config) shown() map[string][]admin.Setting {
	shown := map[string][]admin.Setting{}
	for name, ns := range c.Namespaces {
		ns.Sink, ns.Fallback = sink.Redact(ns.Sink), redactSinks(ns.Fallback)
		for _, s := range settingsOf(&ns) {
			shown[name] = append(shown[name], admin.Setting{Key: s.key(), Value: reflect.ValueOf(s.value).Elem().Interface()})
		}
	}
	return shown
}

// newRegistry makes a registry of the App's own, so that one process can hold two Apps.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	b := readBuild()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_build_info", Help: "Constant 1. The labels are the version, revision and Go version of the binary.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go_version": b.Go},
	})
	info.Set(1)
	reg.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// Start opens the ports and starts all components. A store that is down makes the
// service not ready. A store with data of another configuration is an error. After
// an error the App is stopped.
func (a *App) Start(ctx context.Context) error {
	a.life.Lock()
	if a.started || a.stopped {
		a.life.Unlock()
		return errStartedBefore
	}
	a.started = true
	err := a.start(ctx)
	a.life.Unlock()
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.ShutdownTimeout)
		defer cancel()
		return errors.Join(err, a.Stop(ctx))
	}
	return nil
}

func (a *App) start(ctx context.Context) error {
	// Ports first: a second instance on the same ports should fail before it uses
	// the same store.
	if err := a.admin.Start(ctx); err != nil {
		return fmt.Errorf("admin_listen: %w", err)
	}
	a.AdminListen = a.admin.Address()
	if a.ingest != nil {
		listener, err := net.Listen("tcp", a.cfg.Listen)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		a.ingest.SetListener(listener) // Stop closes it from here on
		a.Listen = listener.Addr().String()
	}
	if err := a.watch.Start(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	a.announce()

	a.running = true
	if err := a.janitor.Start(ctx); err != nil {
		return fmt.Errorf("janitor: %w", err)
	}
	if err := a.accounts.Start(ctx); err != nil {
		return fmt.Errorf("accounts: %w", err)
	}
	if a.drain != nil {
		if err := a.drain.Start(ctx); err != nil {
			return fmt.Errorf("drain: %w", err)
		}
	}
	if a.ingest != nil {
		if err := a.ingest.Start(ctx); err != nil {
			return fmt.Errorf("ingest server: %w", err)
		}
		a.workers.Go(func() { a.report("ingest server", <-a.ingest.Failed()) })
	}
	return nil
}

func (a *App) report(what string, err error) {
	if err != nil {
		a.failed <- fmt.Errorf("%s: %w", what, err)
	}
}

// announce logs the configuration that started, and warnings about it.
func (a *App) announce() {
	if a.store.Embedded() {
		a.log.Warn("the store is embedded: entries are lost when this process ends; set --redis to keep them")
	}
	if otherThanLoopback(a.Listen) && a.cfg.TLSCert == "" || otherThanLoopback(a.AdminListen) && a.cfg.AdminTLSCert == "" {
		a.log.Warn("plain HTTP on an address other than loopback: tokens and entries can be read on the network; set tls_cert and tls_key, or use a TLS proxy")
	}
	a.log.Info("started",
		zap.String("listen", a.Listen), zap.String("admin_listen", a.AdminListen), zap.String("role", a.cfg.Role),
		zap.String("redis", redactStore(a.cfg.Redis)), zap.Strings("namespaces", a.cfg.names()), zap.String("version", readBuild().Version))
}

// Wait blocks until ctx ends, which is no error, or a server fails.
func (a *App) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.failed:
		return err
	}
}

// Stop stops the App and waits for all its goroutines; ctx bounds how long
// requests and batches may take. The order, and why:
//
//  1. not ready: load balancers choose another instance before requests fail
//  2. stop listening, finish requests: the store has every entry that was
//     answered "accepted", and no new ones arrive
//  3. stop claiming, finish or release batches: a committed batch is not delivered
//     twice, and another process can claim a released one before its lease expires
//  4. close sinks (the drain does): no write is running, so they can flush
//  5. read the ledger of an embedded store: it is gone afterwards
//  6. admin port: until here operators can read metrics and ledger
//  7. watch, accounts, janitor and Redis: all of the above needed them
func (a *App) Stop(ctx context.Context) error {
	a.stopping.Do(func() {
		a.life.Lock() // a Start that is running ends first
		a.stopped = true
		a.life.Unlock()
		a.stopErr = a.stop(ctx)
	})
	return a.stopErr
}

func (a *App) stop(ctx context.Context) error {
	start := time.Now()
	a.watch.shutDown()
	var errs []error
	step := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	if a.ingest != nil {
		// A client that sends its request slowly must not use up the time that
		// batches need.
		half, cancel := context.WithDeadline(ctx, halfway(ctx))
		step("finish requests", a.ingest.Stop(half))
		cancel()
	}
	if a.drain != nil {
		step("finish batches and close sinks", a.drain.Stop(ctx))
	}
	if a.running && a.store.Embedded() {
		a.readFinalLedgers(ctx)
	}
	step("finish admin requests", a.admin.Stop(ctx))
	step("stop watch", a.watch.Stop(ctx))
	step("stop accounts", a.accounts.Stop(ctx))
	a.workers.Wait()
	step("stop janitor", a.janitor.Stop(context.WithoutCancel(ctx))) // the store closes next
	step("close store", a.store.Close())
	err := errors.Join(errs...)
	if a.running {
		a.log.Info("stopped", zap.Duration("took", time.Since(start)), zap.Error(err))
	}
	return err
}

// halfway is the middle between now and the deadline of ctx.
func halfway(ctx context.Context) time.Time {
	now := time.Now()
	end, ok := ctx.Deadline()
	if !ok {
		return now.Add(time.Hour)
	}
	return now.Add(end.Sub(now) / 2)
}

// readFinalLedgers keeps and logs the ledgers of the embedded store, whose entries
// are lost when the process ends.
func (a *App) readFinalLedgers(ctx context.Context) {
	a.Final = map[string]partition.Overview{}
	for _, ns := range a.store.Namespaces() {
		o, err := a.store.Overview(ctx, ns)
		if err != nil {
			a.log.Warn("final ledger not read", zap.String("namespace", ns.Name), zap.Error(err))
			continue
		}
		a.Final[ns.Name] = o
		l := o.Ledger
		a.log.Info("final ledger of the embedded store", zap.String("namespace", ns.Name),
			zap.Int64("accepted", l.Accepted), zap.Int64("delivered", l.Delivered), zap.Int64("evicted", l.Evicted),
			zap.Int64("expired", l.Expired), zap.Int64("dead", l.Dead), zap.Int64("lost", l.Lost), zap.Int64("buffered", l.Buffered))
	}
}
