package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/ready"
	"github.com/spillway-io/spillway/partition/schedule"
)

// generation is what follows from the settings, and what a reload replaces as a whole.
// What is connected to what, and built in this order:
//
//	  (1) store ──────────────┬──────────────┐
//	   ▲ Redis, or embedded   │              │
//	   │                 (2) sinks           │
//	   │                      │              │
//	   │◀── claim, commit (3) drain          │
//	   │                                     │
//	   └◀── produce ──── (4) ingest ◀── data port, the App's
//	                                         │
//	       metrics, ledger (5) view  ◀── admin port, the App's
//
//	(6) watch: checks every second whether the store can be used; /readyz of both
//	    ports answers with the result
//	(7) janitors: repair what no other script meets
//	(8) jobs: for namespaces of kind queue a store, its keepers (promoter, expirer, mover,
//	    firer), the engine behind the data port's routes, and pushers, which write jobs to sinks
//
// (1), (7) and (8) are one a pool, with a Redis or the embedded store each.
//
// A role builds less: ingest has no (2) and (3), drain has no (4).
type generation struct {
	cfg     *config.Config
	metrics *prometheus.Registry
	pools   map[string]*backend.Backend // by name; the default one is that of --redis
	stores  map[string]*partition.Store // of the pools that have buffers
	store   *partition.Stores           // all of them
	drain   *drain.Drainer              // with its sinks; nil under --role ingest
	ingest  *ingest.Server              // nil under --role drain
	watch   *ready.Watch
	view    admin.View

	file     control.File      // what the configuration says about what can be made at run time, too
	snapshot *control.Snapshot // what was in use when it was built; control.go applies those that follow
	queueing                   // see queues.go
	drained  chan struct{}     // closes when a reload has stopped drain and pushers
}

// newGeneration builds what cfg describes. Nothing is opened, and the generation before,
// nil for the first, runs on. Its errors are mistakes in cfg.
func (a *App) newGeneration(cfg *config.Config, before *generation) (*generation, error) {
	g := &generation{
		cfg:     cfg,
		metrics: newRegistry(),
		drained: make(chan struct{}),
		pools:   map[string]*backend.Backend{},
		stores:  map[string]*partition.Store{},
	}
	if err := a.openPools(g, before); err != nil {
		return nil, errors.Join(err, g.closePools())
	}
	admins, err := cfg.AdminAccess()
	if err != nil {
		return nil, errors.Join(err, g.closePools())
	}
	g.file = controlFile(cfg, admins)
	g.snapshot = a.control.Preview(g.file)
	if err := a.openJobs(g); err != nil {
		return nil, errors.Join(err, g.stopEngines(context.Background()), g.closePools())
	}
	g.watch = ready.New(controlCheck{g.checks(), a.control,
		a.control.Named(poolsOf(cfg), g.ownPools())}, g.metrics, a.log)
	if err := a.build(g, before); err != nil {
		return nil, errors.Join(cfg.Locate(err), g.discard(context.Background()))
	}
	return g, nil
}

func (a *App) build(g, before *generation) error {
	var err error
	if g.cfg.Role != "ingest" {
		sinks, err := newSinks(g.cfg, a.sinks, g.store, g.metrics, a.log.Named("sink"))
		if err != nil {
			return err
		}
		var targets []drain.Target
		for _, ns := range g.store.Namespaces() {
			settings := g.cfg.Namespaces[ns.Name]
			targets = append(targets, drain.Target{
				Namespace:   ns,
				Sink:        sinks[ns.Name],
				Label:       settings.Label(),
				BackoffBase: settings.BackoffBase,
				BackoffMax:  settings.BackoffMax,
				After:       before.sinkEnded(ns.Name, ""),
			})
		}
		draining := g.cfg.Drain()
		draining.Drops = a.drops
		if len(targets) > 0 {
			if g.drain, err = drain.New(draining, g.store, targets, g.metrics,
				a.log.Named("drain")); err != nil {
				return err
			}
		}
		if err := a.openPushers(g, before); err != nil {
			return err
		}
	}
	if g.cfg.Role != "drain" {
		in := g.cfg.Ingest()
		in.Drops = a.drops
		g.mountJobs(&in)
		a.mountSQS(g, &in)
		in.Mounts = append(in.Mounts, a.lmstfyMounts(g)...)
		if in.TLS, err = g.cfg.Certificates().TLS(g.metrics, a.log); err != nil {
			return err
		}
		if g.ingest, err = ingest.New(in, g.store, g.metrics, a.log.Named("ingest")); err != nil {
			return err
		}
		g.ingest.SetReady(g.watch.Ready)
	}
	g.view = admin.View{
		Store:      g.store,
		Health:     g.watch,
		Metrics:    prometheus.Gatherers{g.metrics, a.metrics},
		Drops:      a.drops,
		Settings:   g.cfg.Shown(),
		Limits:     schedule.Limits{Entry: int(g.cfg.MaxEntry), Entries: g.cfg.MaxEntries, Body: int(g.cfg.MaxBody)},
		MaskFields: g.cfg.MaskFields,
		More:       a.lmstfyAdmin(g),
		Jobs:       g.jobStores(),
		Workers:    g.workersOf,
		Role:       g.cfg.Role,
		StoreMode:  storeMode(g.cfg.Redis),
		StoreURL:   config.RedactStore(g.cfg.Redis),
	}
	if g.drain != nil {
		g.view.Drain = g.drain
	}
	for _, p := range g.pushers {
		g.view.Push = append(g.view.Push, p)
	}
	return nil
}

// startDrain begins to claim and to push, and opens the sinks.
func (g *generation) startDrain(ctx context.Context) error {
	if g.drain != nil {
		if err := g.drain.Start(ctx); err != nil {
			return fmt.Errorf("drain: %w", err)
		}
	}
	return startEach(ctx, "push", g.pushers)
}

// stopDrain finishes or releases batches and jobs, and closes the sinks.
func (g *generation) stopDrain(ctx context.Context) error {
	var pushing sync.WaitGroup
	var pushed, drained error
	pushing.Go(func() { pushed = stopEach(ctx, g.pushers) })
	if g.drain != nil {
		drained = g.drain.Stop(ctx)
	}
	pushing.Wait()
	return errors.Join(drained, pushed)
}

// sinkEnded returns what waits until a sink of a namespace is closed: each sink has one writer,
// and a slow one holds up no other. name is that of a sink of push; "": a buffer's.
func (g *generation) sinkEnded(namespace, name string) func(context.Context) {
	if g == nil {
		return nil
	}
	var ended <-chan struct{}
	if g.drain != nil && name == "" {
		ended = g.drain.Ended(namespace)
	}
	for _, p := range g.pushers {
		if c := p.Ended(namespace, name); c != nil {
			ended = c
		}
	}
	if ended == nil {
		return nil
	}
	drained := g.drained
	return func(ctx context.Context) {
		select {
		case <-ended:
		case <-drained:
		case <-ctx.Done():
		}
	}
}

// startIngest begins to admit requests, on the data port of the App.
func (a *App) startIngest(ctx context.Context, g *generation) error {
	if g.ingest == nil {
		return nil
	}
	g.ingest.SetListener(a.socket.Lease())
	if err := g.ingest.Start(ctx); err != nil {
		return fmt.Errorf("ingest server: %w", err)
	}
	a.workers.Go(func() { a.report("ingest server", <-g.ingest.Failed()) })
	return nil
}

// close ends what needs the store, then the store. Ingest and drain have stopped before.
func (g *generation) close(ctx context.Context) error {
	return errors.Join(g.end(ctx), g.closePools())
}

// end is close, but the store stays open.
func (g *generation) end(ctx context.Context) error {
	return errors.Join(g.watch.Stop(ctx), stopEach(context.WithoutCancel(ctx), g.keepers))
}

// discard is close for a generation that never ran.
func (g *generation) discard(ctx context.Context) error {
	return errors.Join(g.stopEngines(ctx), g.stopDrain(ctx), g.close(ctx))
}

// busy logs what still runs, for an operator who waits.
func (g *generation) busy() []zap.Field {
	var fields []zap.Field
	if g.ingest != nil {
		fields = append(fields, zap.Int64("requests", g.ingest.Requests()),
			zap.Int64("connections", g.ingest.Connections()))
	}
	if g.drain != nil {
		status, writes := g.drain.Status(), 0
		for _, t := range status.Targets {
			writes += t.InFlight
		}
		fields = append(fields, zap.Int("leases", status.Workers.Busy), zap.Int("writes", writes))
	}
	return fields
}
