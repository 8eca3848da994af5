package app

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/ready"
)

// openPools opens every pool, and the stores in them.
func (a *App) openPools(g, before *generation) error {
	var stores []*partition.Store
	for _, name := range g.cfg.PoolNames() {
		var follows *backend.Backend
		if before != nil {
			follows = before.pools[name]
		}
		log := a.poolLog(g, "store", name)
		b, err := openPool(g.cfg, name, follows, g.registerer(name), log)
		if err != nil {
			return err
		}
		g.pools[name] = b
		policies := g.cfg.PoliciesIn(name)
		if len(policies) == 0 {
			continue
		}
		s, err := partition.Open(partition.Config{
			Backend:    b,
			Prefix:     g.cfg.Prefix,
			Namespaces: policies,
			Drops:      a.drops,
		}, g.registerer(name), log)
		if err != nil {
			return g.cfg.Locate(err)
		}
		g.stores[name], stores = s, append(stores, s)
		g.keepers = append(g.keepers, partition.NewJanitor(s))
	}
	var err error
	g.store, err = partition.Join(stores...)
	return err
}

// poolLog is for what works on a pool.
func (a *App) poolLog(g *generation, of, pool string) *zap.Logger {
	log := a.log.Named(of)
	if len(g.cfg.Pools) > 0 {
		log = log.With(zap.String("pool", pool))
	}
	return log
}

// registerer is for the metrics of a pool.
func (g *generation) registerer(pool string) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"pool": pool}, g.metrics)
}

// checks are the questions whether the pools can be used.
func (g *generation) checks() *ready.Pools {
	all := &ready.Pools{}
	for _, name := range g.cfg.PoolNames() {
		p := &ready.Pool{Name: name}
		if s := g.stores[name]; s != nil {
			p.Ask = append(p.Ask, s)
		}
		if len(g.cfg.QueuesIn(name)) > 0 {
			p.Ask = append(p.Ask, g.jobs[name])
		}
		if s := g.php[name]; s != nil {
			p.Ask = append(p.Ask, s)
		}
		if len(p.Ask) > 0 {
			all.Pools = append(all.Pools, p)
		}
	}
	return all
}

// closePools closes the connections of all pools, and so ends the stores.
func (g *generation) closePools() error {
	var errs []error
	for _, b := range g.pools {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// openPool connects to nothing yet. before is the one that it replaces, or nil.
func openPool(c *config.Config, name string, before *backend.Backend, reg prometheus.Registerer,
	log *zap.Logger) (*backend.Backend, error) {
	replicas, err := config.ReplicasOf(c.Durability)
	if err != nil {
		return nil, c.FieldError("durability", err)
	}
	url, err := c.PoolURL(name)
	if err != nil {
		key, _ := c.PoolSetting(name)
		return nil, c.FieldError(key, fmt.Errorf("%s: %w", key, err))
	}
	b, err := backend.Open(backend.Config{URL: url, Replicas: replicas, Follows: before}, reg, log)
	if err == nil {
		return b, nil
	}
	var field *partition.FieldError
	if name != config.DefaultPool && errors.As(err, &field) && field.Field == "redis" {
		at := "pools." + name
		return nil, c.FieldError(at, partition.Wrong(at, field.Value, field.Want))
	}
	return nil, c.Locate(err)
}
