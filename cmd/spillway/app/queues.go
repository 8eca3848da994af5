package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/push"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/ingest/sqs"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/php"
	"github.com/spillway-io/spillway/partition/schedule"
)

// startStopper is the life of a component.
type startStopper interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// queueing is what a generation has for namespaces of kind queue.
type queueing struct {
	jobs    map[string]*job.Store   // of the pools that may have queues
	php     map[string]*php.Store   // of the pools of PHP applications
	engines map[string]*jobs.Engine // the same; empty under --role drain
	keepers []startStopper          // janitors, promoters, expirers, movers and firers
	pushers []*push.Pusher          // of the pools whose queues are pushed; none under --role ingest
}

// openJobs opens the store of queues in every pool: any may get a namespace at run time.
func (a *App) openJobs(g *generation) error {
	g.jobs, g.engines = map[string]*job.Store{}, map[string]*jobs.Engine{}
	g.php = map[string]*php.Store{}
	for _, name := range g.cfg.PoolNames() {
		log := a.poolLog(g, "jobs", name)
		if ofPHP := g.cfg.PHPIn(name); len(ofPHP) > 0 {
			if err := a.openPHP(g, name, ofPHP, log); err != nil {
				return err
			}
			continue
		}
		cfg := job.Config{
			Prefix:     g.cfg.Prefix,
			Volatile:   g.cfg.Pools[name].Volatile,
			Namespaces: policiesOf(g.snapshot, name),
			Required:   g.cfg.QueuesIn(name),
			TakeRate:   a.control.TakeRate,
		}
		store, err := job.Open(cfg, g.pools[name], g.registerer(name), log)
		if err != nil {
			return g.cfg.Locate(err)
		}
		g.jobs[name] = store
		g.keepers = append(g.keepers, job.NewPromoter(store), job.NewExpirer(store),
			job.NewMover(store), job.NewTracer(store),
			schedule.NewFirer(store, g.registerer(name), log))
		if g.cfg.Role == "drain" {
			continue
		}
		if err := g.openEngine(name, store, log); err != nil {
			return err
		}
	}
	return nil
}

// openEngine makes what serves requests about the jobs of a pool.
func (g *generation) openEngine(pool string, store jobs.Store, log *zap.Logger) error {
	settings := jobs.DefaultConfig()
	config.CopyFields(&settings, *g.cfg)
	e, err := jobs.New(settings, store, g.registerer(pool), log)
	if err == nil {
		g.engines[pool] = e
	}
	return err
}

// openPHP opens the store of PHP's queues in a pool, which holds no others: it is the Redis of a
// PHP application.
func (a *App) openPHP(g *generation, pool string, policies map[string]php.Policy,
	log *zap.Logger) error {
	store, err := php.Open(php.Config{Prefix: g.cfg.Prefix, Namespaces: policies},
		g.pools[pool], g.registerer(pool), log)
	if err != nil {
		return g.cfg.Locate(err)
	}
	g.php[pool] = store
	if g.cfg.Role == "drain" {
		return nil
	}
	return g.openEngine(pool, store, log)
}

// policiesOf are those of the namespaces of kind queue in a pool.
func policiesOf(s *control.Snapshot, pool string) map[string]job.Policy {
	policies := map[string]job.Policy{}
	for _, n := range s.NamespacesOf(pool) {
		policies[n.Name] = n.Policy
	}
	return policies
}

// jobStores are the stores of queues, in the order of their pools, for the admin port.
func (g *generation) jobStores() (stores []admin.JobStore) {
	for _, name := range g.cfg.PoolNames() {
		if store := g.php[name]; store != nil {
			stores = append(stores, store)
		} else {
			stores = append(stores, g.jobs[name])
		}
	}
	return stores
}

// workersOf are the workers of a namespace that this process heard of.
func (g *generation) workersOf(namespace string) []jobs.Worker {
	for _, e := range g.engines {
		if list := e.Workers(namespace); len(list) > 0 {
			return list
		}
	}
	return []jobs.Worker{}
}

// mountJobs adds the routes of queues to the data port.
func (g *generation) mountJobs(in *ingest.Config) {
	addQueueTokens(in, g.snapshot)
	for _, name := range g.cfg.PoolNames() {
		in.Mounts = append(in.Mounts, g.engines[name].Mount())
	}
}

// mountSQS adds SQS's API to the data port.
func (a *App) mountSQS(g *generation, in *ingest.Config) {
	cfg := sqs.Config{AccessKeys: map[string]sqs.Key{}, OpenNames: in.NamespaceKeys, Control: a.control}
	for _, name := range g.file.Pools {
		cfg.Engines = append(cfg.Engines, g.engines[name])
	}
	for _, name := range g.cfg.QueueNames() {
		for _, k := range g.cfg.QueueNamespaces[name].Keys {
			cfg.AccessKeys[string(k.ID)] = sqs.Key{Namespace: name, Secret: k.Value}
		}
	}
	in.Mounts = append(in.Mounts, sqs.NewAPI(cfg).Mount())
}

// startJobs begins to keep stores and queues, and to serve requests about jobs.
func (g *generation) startJobs(ctx context.Context) error {
	if err := startEach(ctx, "keeper", g.keepers); err != nil {
		return err
	}
	return startEach(ctx, "engine of queues", slices.Collect(maps.Values(g.engines)))
}

// stopEngines ends what serves requests about jobs, once none comes any more.
func (g *generation) stopEngines(ctx context.Context) error {
	return stopEach(ctx, slices.Collect(maps.Values(g.engines)))
}

// startEach starts all, one after the other.
func startEach[T startStopper](ctx context.Context, what string, all []T) error {
	for _, s := range all {
		if err := s.Start(ctx); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// stopEach stops all at once: one whose Redis is away takes all the time there is, and the
// others must not wait for it.
func stopEach[T startStopper](ctx context.Context, all []T) error {
	errs := make([]error, len(all))
	var stopping sync.WaitGroup
	for i, s := range all {
		stopping.Go(func() { errs[i] = s.Stop(ctx) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// queuesOf are the jobs of a namespace of kind queue; nil: it is not in use.
func (g *generation) queuesOf(namespace string) verb.Queues {
	for _, store := range g.jobs {
		if ns := store.Namespace(namespace); ns != nil {
			return queues{store, ns}
		}
	}
	return nil
}

// queues are the jobs of one namespace, for the admin port.
type queues struct {
	store *job.Store
	ns    *job.Namespace
}

// Jobs implements verb.Queues.
func (q queues) Jobs(ctx context.Context) (int64, error) {
	l, err := q.store.Ledger(ctx, q.ns)
	return l.Ready + l.Prepared + l.Delayed + l.Leased + l.Dead, err
}

// Schedules implements verb.Queues.
func (q queues) Schedules(ctx context.Context) (int64, error) {
	return q.store.CountSchedules(ctx, q.ns)
}

// Purge implements verb.Queues.
func (q queues) Purge(ctx context.Context) (deleted int64, err error) {
	return q.store.PurgeAll(ctx, q.ns)
}
