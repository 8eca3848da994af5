package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition/metric"
	"github.com/spillway-io/spillway/partition/ready"
)

// reloads is what an App needs to replace its generation.
type reloads struct {
	mu    sync.Mutex    // held by a reload, and at last by Stop
	queue chan struct{} // one runs and one waits; more would load the same
	// load reads the configuration anew; nil: this process cannot reload.
	load func() (*config.Config, error)
	// applied is called with the configuration in use, for what is the process's.
	applied func(*config.Config)

	reject  error           // why none may run: the App starts, or it stops; guarded by mu
	running context.Context // ends when the App is to stop: what is not replaced by then stays
	cancel  context.CancelFunc
	// replacing ends later: a replacement under way finishes requests and batches first.
	replacing context.Context
	hurry     context.CancelFunc

	successful, succeeded prometheus.Gauge
}

func (r *reloads) init(reg prometheus.Registerer) {
	m := metric.New(reg, "spillway_config_last_reload_")
	r.successful = m.Gauge("successful",
		"1 unless the last reload was rejected and an earlier configuration is in use.")
	r.succeeded = m.Gauge("success_timestamp_seconds",
		"When the configuration in use was last read, in Unix seconds.")
	m.Must()
	r.record(true)
	r.queue = make(chan struct{}, 2)
	r.reject = ready.ErrStarting
	r.running, r.cancel = context.WithCancel(context.Background())
	r.replacing, r.hurry = context.WithCancel(context.Background())
}

// begin allows reloads, once the App has started.
func (r *reloads) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reject = nil
}

// record notes for Prometheus how a reload went.
func (r *reloads) record(ok bool) {
	if !ok {
		r.successful.Set(0)
		return
	}
	r.successful.Set(1)
	r.succeeded.SetToCurrentTime()
}

// end ends reloads for good. One under way gives up, or has until ctx ends where it
// replaces already. The result lets those that wait fail.
func (r *reloads) end(ctx context.Context) (unlock func()) {
	r.cancel()
	defer r.hurry()
	defer context.AfterFunc(ctx, r.hurry)()
	r.mu.Lock()
	r.reject = ready.ErrShuttingDown
	return r.mu.Unlock
}

// onReload sets how Reload reads the configuration. It is called before Start.
func (a *App) onReload(load func() (*config.Config, error), applied func(*config.Config)) {
	a.reloads.load, a.reloads.applied = load, applied
}

// Reload reads the configuration again, and replaces all that follows from it. It returns
// the keys that changed, none if nothing did. After an error, which has all mistakes, the
// configuration in use stays. What has begun goes to its end: ctx only keeps one that
// waits for another from beginning.
func (a *App) Reload(ctx context.Context) (changed []string, err error) {
	select {
	case a.reloads.queue <- struct{}{}:
		defer func() { <-a.reloads.queue }()
	default:
		return nil, errors.New("a reload is running and another one waits: try again later")
	}
	a.reloads.mu.Lock()
	defer a.reloads.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	start := time.Now()
	changes, err := a.reload()
	a.reloads.record(err == nil)
	var texts []string
	for _, c := range changes {
		changed, texts = append(changed, c.Key), append(texts, c.Text)
	}
	switch {
	case err != nil:
		for _, err := range config.Split(err) {
			texts = append(texts, err.Error())
		}
		a.log.Error("configuration not reloaded, the one in use stays", zap.Strings("errors", texts))
		return nil, err
	case len(changes) == 0:
		a.log.Info("configuration unchanged, nothing to reload")
	default:
		a.log.Info("configuration reloaded", zap.Strings("changed", texts),
			zap.Duration("took", time.Since(start)))
	}
	return changed, nil
}

func (a *App) reload() ([]config.Change, error) {
	switch before := a.current.Load(); {
	case a.reloads.load == nil:
		return nil, errors.New("only spillway serve has a configuration to read again")
	case a.reloads.reject != nil:
		return nil, a.reloads.reject
	case before.watch.Ready() != nil:
		// What waits in a namespace that is removed, and whether Redis holds the same
		// number of shards, could not be checked.
		return nil, fmt.Errorf("the store is not ready: try again once it is: %w", before.watch.Ready())
	}
	cfg, err := a.reloads.load()
	if err != nil {
		return nil, err
	}
	before := a.current.Load()
	changes := config.Changes(before.cfg, cfg)
	if len(changes) == 0 {
		return nil, nil
	}
	errs := config.RestartOnly(before.cfg, cfg, changes)
	if errs = append(errs, before.leftIn(a.reloads.running, cfg)...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	next, err := a.newGeneration(cfg, before)
	if err != nil {
		return nil, err
	}
	next.watch.Follow(before.watch)
	if err = next.watch.Start(a.reloads.running); err == nil {
		err = next.watch.Ready()
	}
	if a.reloads.running.Err() != nil {
		err = ready.ErrShuttingDown
	} else if err != nil {
		err = fmt.Errorf("store: %w", err)
	} else {
		err = errors.Join(next.ruleErrors(a.control)...)
	}
	if err != nil {
		return nil, errors.Join(err, next.discard(context.Background()))
	}
	if err := a.replace(before, next); err != nil {
		return nil, err
	}
	a.reloads.applied(cfg)
	a.warnPlainHTTP(cfg)
	return changes, nil
}

// replace puts next in the place of before. The order, and why:
//
//  1. next answers all requests, also those on open connections: what was revoked is
//     rejected from here on, and no connection is rejected
//  2. before finishes the requests that it had begun, while its drain finishes or
//     releases its batches and closes its sinks: a file has one writer
//  3. next opens each sink, and begins to claim for it, once before has closed that one
//  4. before is closed, once the operator's act that uses it has ended
func (a *App) replace(before, next *generation) error {
	ctx, cancel := context.WithTimeout(a.reloads.replacing, next.cfg.ShutdownTimeout)
	defer cancel()
	defer a.logProgress(before)()
	if err := errors.Join(next.startJobs(ctx), a.startIngest(ctx, next)); err != nil {
		return errors.Join(err, next.discard(ctx)) // it was stopped before: cannot happen
	}
	a.use(next)
	warn := func(what string, err error) {
		if err != nil {
			a.log.Warn("reload: "+what, zap.Error(err))
		}
	}
	var requests sync.WaitGroup // and batches
	if before.ingest != nil {
		requests.Go(func() { warn("finish requests", before.ingest.Retire(ctx, next.ingest)) })
	}
	requests.Go(func() {
		warn("finish batches and close sinks", before.stopDrain(ctx))
		close(before.drained)
	})
	warn("start drain", next.startDrain(ctx))
	requests.Wait()
	warn("finish requests about jobs", before.stopEngines(ctx))
	if before.ingest != nil {
		a.retire(before.ingest)
	}
	for _, err := range before.leftIn(ctx, next.cfg) {
		warn("accepted while the namespace was removed", err)
	}
	warn("end", before.end(ctx))
	// A purge or a replay under way goes to its end.
	a.workers.Go(func() { a.admin.AfterAct(func() { warn("close store", before.closePools()) }) })
	return nil
}

// retire keeps a server until its connections are closed, and forgets those without any.
func (a *App) retire(server *ingest.Server) {
	var open []*ingest.Server
	for _, s := range append(a.retired, server) {
		if s.Connections() > 0 {
			open = append(open, s)
		}
	}
	a.retired = open
}

// leftIn is an error for each namespace that cfg has no more and that has entries: nobody
// would deliver, expire or count them.
func (g *generation) leftIn(ctx context.Context, cfg *config.Config) (errs []error) {
	for _, ns := range g.store.Namespaces() {
		if _, stays := cfg.Namespaces[ns.Name]; stays {
			continue
		}
		at := "namespaces." + ns.Name
		o, err := g.store.Overview(ctx, ns)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: removed, and what waits in it cannot be read: %w", at, err))
		case o.Ledger.Buffered > 0:
			errs = append(errs, fmt.Errorf("%s: removed, and %d entries wait in it: keep it until they are delivered, or purge them; after a restart "+
				"without it they stay in Redis, delivered by nobody", at, o.Ledger.Buffered))
		}
	}
	for _, name := range g.cfg.QueueNames() {
		if _, stays := cfg.QueueNamespaces[name]; stays {
			continue
		}
		at := "namespaces." + name
		jobs, err := g.queuesOf(name).Jobs(ctx)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: removed, and its jobs cannot be counted: %w", at, err))
		case jobs > 0:
			errs = append(errs, fmt.Errorf("%s: removed, and it has %d jobs: keep it until they are done, or delete them; after a restart without it "+
				"they stay in Redis, served by nobody", at, jobs))
		}
	}
	return errs
}
