package app

import (
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/push"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/branches"
	"github.com/spillway-io/spillway/drain/sink/fallback"
)

// openPushers makes what pushes queues to sinks, for the pools whose queues have rules.
// Those that it has made are in g, also after an error.
func (a *App) openPushers(g, before *generation) error {
	for _, pool := range g.cfg.PoolNames() {
		targets, err := pushTargets(g.cfg, pool, a.sinks, g.store, a.log.Named("push"))
		if err != nil {
			return err
		}
		if len(targets) == 0 {
			continue
		}
		for _, t := range targets {
			for name, s := range t.Sinks {
				s.After = before.sinkEnded(t.Namespace, name)
				t.Sinks[name] = s
			}
		}
		settings := push.DefaultConfig()
		config.CopyFields(&settings, *g.cfg)
		p, err := g.newPusher(pool, settings, targets, a.log.Named("push"))
		if err != nil {
			return err
		}
		g.pushers = append(g.pushers, p)
	}
	return nil
}

// newPusher makes what pushes the queues of a pool.
func (g *generation) newPusher(pool string, cfg push.Config, targets []push.Target,
	log *zap.Logger) (*push.Pusher, error) {
	if store := g.php[pool]; store != nil {
		return push.New(cfg, store, targets, g.registerer(pool), log)
	}
	store := g.jobs[pool]
	return push.New(cfg, store, targets, g.registerer(pool), log)
}

// pushTargets are the namespaces of a pool that have push rules, with a sink of their own
// for each name that these use: errors of one namespace do not delay another.
func pushTargets(c *config.Config, pool string, registry sink.Registry, store branches.Store,
	log *zap.Logger) (targets []push.Target, err error) {
	for _, name := range slices.Concat(c.QueuesIn(pool), slices.Sorted(maps.Keys(c.PHPIn(pool)))) {
		rules := c.PushOf(name)
		if len(rules) == 0 {
			continue
		}
		t := push.Target{Namespace: name, Sinks: map[string]push.Sink{}}
		for _, rule := range rules {
			t.Rules = append(t.Rules, rule.Rule())
			if _, made := t.Sinks[rule.Sink]; made {
				continue
			}
			tiers, err := pushChain(c, rule.Sink).tiers(registry, store, nil)
			if err != nil {
				return nil, err
			}
			t.Sinks[rule.Sink] = withPushFallbacks(tiers, rule, log.With(zap.String("namespace", name)))
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// pushPatience is what a namespace of entries calls max_age: a sink that answers nothing for
// an eighth of it is down, and its jobs go to the fallback.
const pushPatience = 4 * time.Minute

// withPushFallbacks makes one sink of the tiers of a name.
func withPushFallbacks(tiers []fallback.Tier, rule config.Push, log *zap.Logger) push.Sink {
	if len(tiers) == 1 {
		return push.Sink{Sink: tiers[0].Sink, Label: tiers[0].Label}
	}
	label := tiers[0].Label + " with fallback"
	for _, t := range tiers[1:] {
		label += " " + t.Label
	}
	cfg := fallback.Config{
		MaxAge:      pushPatience,
		BackoffBase: rule.Backoff.Base,
		BackoffMax:  rule.Backoff.Max,
	}
	return push.Sink{Sink: fallback.New(cfg, tiers, log), Label: label}
}
