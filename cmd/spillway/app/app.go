package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/cmd/spillway/load"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/lmstfy"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// App is the whole service: the ports, and behind them a generation, which a reload
// replaces. The comment of Stop gives the order in which all of it stops.
type App struct {
	log     *zap.Logger
	sinks   sink.Registry
	current atomic.Pointer[generation]
	control *control.Control              // what is made at run time; see control.go
	admins  atomic.Pointer[[]admin.Token] // of the admin port, of the file and made at run time
	metrics *prometheus.Registry          // of what outlives generations
	admin   *admin.Server
	socket  *transport.Shared // of the data port; nil under --role drain, and before Start
	drops   *drops.Log
	failed  chan error // why a server ended before Stop
	workers sync.WaitGroup

	reloads                  // see reload.go
	retired []*ingest.Server // of generations before, whose connections may still be open; guarded by reloads.mu

	accessLog lmstfy.AccessLog // of lmstfy's API

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
func NewApp(cfg *config.Config, sinks sink.Registry, log *zap.Logger) (*App, error) {
	a := &App{
		log:     log,
		sinks:   sinks,
		metrics: prometheus.NewRegistry(),
		drops:   drops.NewLog(),
		failed:  make(chan error, 2),
	}
	a.reloads.init(a.metrics)
	a.control = control.Open(cfg.Prefix, a.metrics, log.Named("control"))
	a.control.Subscribe(a.apply)
	first, err := a.newGeneration(cfg, nil)
	if err != nil {
		return nil, err
	}
	a.use(first)
	b := readBuild()
	port := admin.Config{
		Listen: cfg.AdminListen,
		Source: a.view,
		Reload: a.Reload,
		Build:  admin.Build{Version: b.Version, Revision: b.Revision, Go: b.Go},
		Failed: func(err error) { a.failed <- err },
	}
	if port.TLS, err = cfg.AdminCertificates().TLS(a.metrics, log); err != nil {
		return nil, errors.Join(cfg.Locate(err), first.discard(context.Background()))
	}
	a.admin = admin.New(port, log.Named("admin"))
	return a, nil
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

// newRegistry makes a registry of the App's own, so that one process can hold two Apps.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	b := readBuild()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_build_info", Help: "Constant 1. The labels are the version, revision and Go version of the binary.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go_version": b.Go},
	})
	info.Set(1)
	reg.MustRegister(info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// Start opens the ports and starts all components. A store that is down makes the
// service not ready. A store with data of another configuration is an error. After
// an error the App is stopped.
func (a *App) Start(ctx context.Context) error {
	a.life.Lock()
	if a.started || a.stopped {
		a.life.Unlock()
		return lifecycle.ErrStarted
	}
	a.started = true
	err := a.start(ctx)
	a.life.Unlock()
	if err != nil {
		return errors.Join(err, a.StopInTime(ctx))
	}
	return nil
}

// ifInUse is what to do about a port that another process has.
func ifInUse(err error) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return ": another process has it, perhaps a demo: stop that, or choose another port"
	}
	return ""
}

func (a *App) start(ctx context.Context) error {
	// Ports first: a second instance on the same ports should fail before it uses
	// the same store.
	if err := a.admin.Start(ctx); err != nil {
		return fmt.Errorf("admin_listen: %w%s", err, ifInUse(err))
	}
	a.AdminListen = a.admin.Address()
	g := a.current.Load()
	if g.ingest != nil {
		socket, err := transport.ListenShared(g.cfg.Listen)
		if err != nil {
			return fmt.Errorf("listen: %w%s", err, ifInUse(err))
		}
		a.socket, a.Listen = socket, socket.Addr().String()
	}
	if err := g.watch.Start(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := a.control.Start(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	a.announce(g)

	a.running = true
	if err := g.startJobs(ctx); err != nil {
		return err
	}
	if err := g.startDrain(ctx); err != nil {
		return err
	}
	if err := a.startIngest(ctx, g); err != nil {
		return err
	}
	a.reloads.begin()
	return nil
}

// config is the configuration in use.
func (a *App) config() *config.Config { return a.current.Load().cfg }

func (a *App) report(what string, err error) {
	if err != nil {
		a.failed <- fmt.Errorf("%s: %w", what, err)
	}
}

// announce logs the configuration that started, and warnings about it.
func (a *App) announce(g *generation) {
	if g.pools[config.DefaultPool].Embedded() && len(g.cfg.PHPNamespaces) < len(g.cfg.AllNames()) {
		a.log.Warn("the store is embedded: entries are lost when this process ends; set --redis to keep them")
	}
	a.warnPlainHTTP(g.cfg)
	a.log.Info("started",
		zap.String("listen", a.Listen), zap.String("admin_listen",
			a.AdminListen), zap.String("role", g.cfg.Role),
		zap.String("redis", config.RedactStore(g.cfg.Redis)), zap.Strings("namespaces",
			g.cfg.AllNames()),
		zap.String("version", readBuild().Version))
}

func (a *App) warnPlainHTTP(cfg *config.Config) {
	if config.OtherThanLoopback(a.Listen) && cfg.TLSCert == "" ||
		config.OtherThanLoopback(a.AdminListen) &&
			cfg.AdminTLSCert == "" {
		a.log.Warn("plain HTTP on an address other than loopback: tokens and entries can be read on the network; set tls_cert and tls_key, or use a TLS proxy")
	}
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
//  7. watch, janitor and Redis: all of the above needed them
func (a *App) Stop(ctx context.Context) error {
	a.stopping.Do(func() {
		a.life.Lock() // a Start that is running ends first
		a.stopped = true
		a.life.Unlock()
		half, cancel := context.WithDeadline(ctx, halfway(ctx))
		defer cancel()
		defer a.endReloads(half)() // so does a reload
		a.stopErr = a.stop(ctx)
	})
	return a.stopErr
}

// StopInTime is Stop within the time of the configuration, also when ctx has ended.
func (a *App) StopInTime(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config().ShutdownTimeout)
	defer cancel()
	return a.Stop(ctx)
}

// NotReady makes the service not ready for good, so that load balancers choose another
// instance, and goes on to answer requests until Stop.
func (a *App) NotReady() {
	a.endReloads(context.Background())()
}

// endReloads makes the service not ready, and waits for a reload under way, until ctx ends.
func (a *App) endReloads(ctx context.Context) (unlock func()) {
	a.current.Load().watch.ShutDown()
	unlock = a.reloads.end(ctx)
	a.current.Load().watch.ShutDown() // of the generation that the reload began
	return unlock
}

func (a *App) stop(ctx context.Context) error {
	start, g := time.Now(), a.current.Load()
	defer a.logProgress(g)()
	var errs []error
	step := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	// A client that sends its request slowly must not use up the time that
	// batches need.
	half, cancel := context.WithDeadline(ctx, halfway(ctx))
	defer cancel()
	if a.socket != nil {
		step("close data port", a.socket.Close())
		step("finish requests", stopEach(half, append(a.retired, g.ingest)))
		// Slow clients may have used up their half, and engines have claims to give back.
		rest, cancel := context.WithDeadline(ctx, halfway(ctx))
		defer cancel()
		step("finish requests about jobs", g.stopEngines(rest))
	}
	step("finish batches and close sinks", g.stopDrain(ctx))
	if store := g.stores[config.DefaultPool]; a.running && store != nil && store.Embedded() {
		a.readFinalLedgers(ctx, store)
	}
	step("finish admin requests", a.admin.Stop(ctx))
	a.workers.Wait()
	step("stop reading the control document", a.control.Stop(ctx))
	step("close store", g.close(ctx))
	err := errors.Join(errs...)
	if a.running {
		a.log.Info("stopped", zap.Duration("took", time.Since(start)), zap.Error(err))
	}
	return err
}

// progressEvery is how often the log says what a stop or a reload waits for.
const progressEvery = 3 * time.Second

// logProgress logs what still runs, until its result is called.
func (a *App) logProgress(g *generation) (end func()) {
	if !a.running {
		return func() {}
	}
	ended := make(chan struct{})
	var logging sync.WaitGroup
	logging.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				a.log.Info("finishing requests and batches", g.busy()...)
			}
		}
	})
	return func() { close(ended); logging.Wait() }
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
func (a *App) readFinalLedgers(ctx context.Context, store *partition.Store) {
	a.Final = map[string]partition.Overview{}
	for _, ns := range store.Namespaces() {
		o, err := store.Overview(ctx, ns)
		if err != nil {
			a.log.Warn("final ledger not read", zap.String("namespace", ns.Name), zap.Error(err))
			continue
		}
		a.Final[ns.Name] = o
		l := o.Ledger
		a.log.Info("final ledger of the embedded store", zap.String("namespace", ns.Name),
			zap.Int64("accepted", l.Accepted), zap.Int64("delivered",
				l.Delivered), zap.Int64("evicted", l.Evicted),
			zap.Int64("expired", l.Expired), zap.Int64("dead", l.Dead), zap.Int64("lost", l.Lost),
			zap.Int64("buffered", l.Buffered))
	}
}

// service is an App as bench and demo use it.
type service struct{ *App }

// newService is a load.NewService.
func newService(cfg *config.Config, sinks sink.Registry, stderr io.Writer,
	level string) (load.Service, error) {
	if sinks == nil {
		sinks = sinkRegistry()
	}
	a, err := NewApp(cfg, sinks, newLogger(stderr, level, "auto"))
	return service{a}, err
}

func (s service) Addresses() (data, admin string)      { return s.Listen, s.AdminListen }
func (s service) Store() *partition.Store              { return s.current.Load().stores[config.DefaultPool] }
func (s service) Final() map[string]partition.Overview { return s.App.Final }
