package control

import (
	"context"
	"time"

	luacontrol "github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/partition/backend"

	"github.com/spillway-io/spillway/partition"
)

// keepLimiters gives the tokens of a new snapshot their limiters: those in use now, where
// the rate is the same.
func (c *Control) keepLimiters(s *Snapshot) {
	before := c.Snapshot()
	for _, tokens := range s.tokens {
		for _, t := range tokens {
			var old Limiters
			if was := before.Token(t.Namespace, t.Hash); was != nil {
				old = was.Limiters
			}
			pool := s.namespaces[t.Namespace].Pool
			limit := func(old *Limiter, r partition.Rate, verb string) *Limiter {
				switch {
				case r.Count == 0:
					return nil
				case old != nil && old.rate == r && old.pool == pool:
					return old
				}
				return &Limiter{
					rate:   r,
					pool:   pool,
					key:    rateKey(c.prefix, t.Namespace, t.Hash, verb),
					grant:  c.grant,
					asking: make(chan struct{}, 1),
				}
			}
			var l Limit
			if t.Limit != nil {
				l = *t.Limit
			}
			interval := time.Duration(l.Interval) * time.Second
			t.Limiters = Limiters{
				Produce: limit(old.Produce, t.Produce, "produce"),
				Consume: limit(old.Consume, t.Consume, "consume"),
				Write:   limit(old.Write, partition.Rate{Count: l.Write, Per: interval}, "write"),
				Read:    limit(old.Read, partition.Rate{Count: l.Read, Per: interval}, "read"),
			}
		}
	}
}

// TakeRate takes jobs off the rate at which the token of a name may publish: see job.TakeRate. A token that is revoked has no
// rate any more: what it leaves behind is the namespace's.
func (c *Control) TakeRate(ctx context.Context, namespace, token string, jobs int) (func(int), time.Duration, error) {
	for _, t := range c.Snapshot().Tokens(namespace) {
		if t.Name == token {
			taken, wait, err := t.Limiters.Produce.Take(ctx, int64(jobs))
			return func(n int) { taken.RefundPart(int64(n)) }, wait, err
		}
	}
	return func(int) {}, 0, nil
}

// grantTimeout bounds how long a request waits for a part of its rate.
const grantTimeout = 2 * time.Second

// grant asks the namespace's own Redis, so that one that is away holds up no other.
func (c *Control) grant(ctx context.Context, l *Limiter, need int64) (granted, error) {
	b, err := c.pool(l.pool)
	if err != nil {
		return granted{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	slice := max(l.rate.Count/slicesOfWindow, 1)
	call := backend.NewCall(luacontrol.Grant, nil, []string{l.key}, l.rate.Count, l.rate.Per.Milliseconds(),
		need, slice)
	b.Run(ctx, b.In, []*backend.Call{call})
	g := granted{
		sent:  call.Sent,
		now:   call.Now,
		n:     call.Rest.Int(),
		left:  call.Rest.Int(),
		until: call.Rest.Int(),
	}
	err = call.Err
	if err == nil && call.Rest.Broken {
		err = call.Misread()
	}
	switch {
	case err != nil:
		c.metrics.grants.WithLabelValues(grantFailed).Inc()
	case g.n == 0:
		c.metrics.grants.WithLabelValues(grantRejected).Inc()
	default:
		c.metrics.grants.WithLabelValues(grantGiven).Inc()
	}
	return g, err
}
