package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/ready"
)

// controlFile is what the configuration says about what can be made at run time, too.
func controlFile(c *config.Config, admins []admin.Token) control.File {
	var f control.File
	for _, name := range c.PoolNames() {
		if len(c.PHPIn(name)) == 0 { // the Redis of a PHP application holds nothing else
			f.Pools = append(f.Pools, name)
		}
	}
	for name, pool := range c.Pools {
		if pool.Volatile {
			f.Volatile = append(f.Volatile, name)
		}
	}
	f.Buffers = slices.Concat(c.Names(), c.PHPNames()) // nobody makes one of that name at run time
	for _, name := range c.QueueNames() {
		q := c.QueueNamespaces[name]
		f.Namespaces = append(f.Namespaces, control.Namespace{Name: name, Pool: c.PoolOf(name),
			Policy: q.Policy()})
		if len(q.Tokens)+len(q.Keys) == 0 {
			f.Open = append(f.Open, name)
		}
		for _, t := range q.Tokens {
			f.Tokens = append(f.Tokens, t.Control(name))
		}
		for _, k := range q.Keys {
			f.Tokens = append(f.Tokens, control.Token{Namespace: name, Name: string(k.ID),
				Hash: control.HashToken(k.Value)})
		}
	}
	for _, a := range admins {
		f.Admins = append(f.Admins, control.Admin{Name: a.Name, Role: a.Role.String(), Hash: a.Hash})
	}
	return f
}

// controlCheck adds what of the control document is not used to the warnings of a Check.
type controlCheck struct {
	ready.Checker
	control *control.Control
	named   *control.Named
}

func (c controlCheck) Check(ctx context.Context) (warnings []string, err error) {
	warnings, err = c.Checker.Check(ctx)
	if err == nil {
		c.named.Open(ctx)
	}
	return append(warnings, c.control.Warnings()...), err
}

// poolsOf are the pools of the namespaces of the file.
func poolsOf(c *config.Config) map[string]string {
	pools := map[string]string{}
	for _, name := range slices.Concat(c.Names(), c.QueueNames()) {
		pools[name] = c.PoolOf(name)
	}
	return pools
}

// ownPools are the pools in which Spillway may keep what is about itself: none of a PHP application.
func (g *generation) ownPools() control.Pools {
	pools := control.Pools{}
	for name, b := range g.pools {
		if g.php[name] == nil {
			pools[name] = b
		}
	}
	return pools
}

// use puts a generation into use.
func (a *App) use(g *generation) {
	a.current.Store(g)
	a.control.Use(g.file, g.ownPools()) // which calls apply
}

// apply puts a snapshot of the control document into use.
func (a *App) apply(s *control.Snapshot) {
	tokens := adminTokens(s)
	a.admins.Store(&tokens)
	if g := a.current.Load(); g != nil {
		g.apply(s, a.log)
	}
}

// view is what the admin port shows.
func (a *App) view() admin.View {
	g := a.current.Load()
	v := g.view
	v.Tokens = *a.admins.Load()
	v.Control = a.control
	v.Queues = g.queuesOf
	return v
}

// applyTimeout bounds the Check of new namespaces. One that it does not pass in time is
// checked again by the promoter.
const applyTimeout = 500 * time.Millisecond

// apply gives the namespaces of kind queue and their tokens to what serves them. What was
// revoked ends first: no store is asked for that. New namespaces come before their tokens,
// because the data port rejects tokens of one that it does not have. Nobody is admitted to
// one whose tokens it does not know.
func (g *generation) apply(s *control.Snapshot, log *zap.Logger) {
	if len(g.jobs) == 0 {
		return
	}
	g.applyTokens(s, log)
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	var pools sync.WaitGroup
	for pool, store := range g.jobs {
		pools.Go(func() {
			if err := store.SetNamespaces(ctx, policiesOf(s, pool)); err != nil {
				log.Warn("namespace of kind queue not usable yet, checked again every second",
					zap.String("pool", pool), zap.Error(err))
			}
		})
	}
	pools.Wait()
	g.applyTokens(s, log)
}

// applyTokens sets the tokens of the namespaces that are in use, ends what waits under one that
// was revoked, and has all others ask again where their namespace changed.
func (g *generation) applyTokens(s *control.Snapshot, log *zap.Logger) {
	if g.ingest != nil {
		in := g.cfg.Ingest()
		addQueueTokens(&in, s)
		for _, n := range s.Namespaces() {
			if g.queuesOf(n.Name) == nil {
				delete(in.Tokens, n.Name)
				in.Closed = slices.DeleteFunc(in.Closed,
					func(name string) bool { return name == n.Name })
			}
		}
		if err := g.ingest.SetTokens(in.Tokens, in.Closed); err != nil {
			log.Error("tokens not in use", zap.Error(err)) // a namespace without a store: cannot happen
		}
	}
	for _, e := range g.engines {
		e.Refresh()
	}
	for _, p := range g.pushers {
		p.Refresh()
	}
}

// addQueueTokens adds the tokens of the namespaces of kind queue to what the data port
// knows of buffers. One that was made at run time is closed until it has a token.
func addQueueTokens(in *ingest.Config, s *control.Snapshot) {
	for _, n := range s.Namespaces() {
		var tokens []ingest.Token
		for _, t := range s.Tokens(n.Name) {
			tokens = append(tokens, ingest.Token{Hash: t.Hash, Name: t.Name, Limiters: t.Limiters})
		}
		in.Tokens[n.Name] = tokens
		if len(tokens) == 0 && !n.FromFile {
			in.Closed = append(in.Closed, n.Name)
		}
	}
}

// ruleErrors are what keeps a reload from g: a rule made at run time that would count no more, so that
// its queues had no limit. A start has no such choice, and warns.
func (g *generation) ruleErrors(c *control.Control) (errs []error) {
	now, next := c.Snapshot(), c.Preview(g.file)
	for _, n := range g.snapshot.Namespaces() {
		add := func(r *control.Rule, format string, args ...any) {
			errs = append(errs, fmt.Errorf("namespaces.%s: rule %q %s", n.Name, r.Match, fmt.Sprintf(format, args...)))
		}
		rules := now.Rules(n.Name)
		for _, r := range next.UnusedRules(n.Name) {
			if slices.ContainsFunc(rules, func(o *control.Rule) bool { return !o.FromFile && o.Match == r.Match }) {
				add(r, "was made at run time and would not count any more: %s: delete or replace it before", r.Unused)
			}
		}
	}
	return errs
}

// adminTokens are the tokens of the admin port, of the file and made at run time.
func adminTokens(s *control.Snapshot) (tokens []admin.Token) {
	for _, a := range s.Admins() {
		t := admin.Token{Name: a.Name, Hash: a.Hash}
		if err := t.Role.UnmarshalText([]byte(a.Role)); err == nil { // it was checked before
			tokens = append(tokens, t)
		}
	}
	return tokens
}
