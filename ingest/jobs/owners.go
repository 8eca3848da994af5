package jobs

import (
	"context"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/schedule"
)

const (
	ownerTTL    = 30 * time.Second // without a heartbeat
	maxOwnerTTL = 24 * time.Hour
)

// register notes that a service lives, and that these are its schedules.
func (a *api) register(c *call) *ingest.Rejection {
	version, err := strconv.ParseInt(c.args["version"], 10, 64)
	if err != nil || version < 1 || version >= 1<<53 {
		c.bad("version", "a whole number from 1 that rises with each deploy")
	}
	ttl := c.duration("ttl", ownerTTL, time.Second, maxOwnerTTL)
	if c.wrong != nil {
		return c.wrong
	}
	body, rejected := c.Body()
	if rejected != nil {
		return rejected
	}
	r := &schedule.Registration{Namespace: c.namespace, Owner: c.owner, Version: version, TTL: ttl}
	if r.Schedules, err = schedule.ParseRegistered(body); err != nil {
		return Reject(err)
	}
	for _, s := range r.Schedules {
		if rejected := a.fits(c, s.Spec); rejected != nil {
			return rejected
		}
	}
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		if err := r.Register(ctx, a.store); err != nil {
			return nil, err
		}
		return map[string]any{"owner": r.Owner, "version": r.Version,
			"state": "registered", "until_ms": r.Until.UnixMilli(),
			"created": r.Created, "replaced": r.Replaced, "unchanged": r.Unchanged, "deleted": r.Deleted}, nil
	})
}

// fits checks that a run of a schedule is no larger than a publish of the token may be, and notes whose it is.
func (a *api) fits(c *call, spec *schedule.Spec) *ingest.Rejection {
	if err := spec.Within(schedule.Limits{Entry: a.cfg.MaxEntry, Entries: a.cfg.MaxEntries, Body: a.cfg.MaxBody}); err != nil {
		return Reject(err)
	}
	if !c.key.Limiters().Produce.Allows(spec.Counts()) {
		return ingest.Reject(wire.CodeTooManyEntries,
			"a run has more jobs than the token's rate ever allows at once: send a smaller shards, or raise the rate")
	}
	spec.By = c.key.Name()
	return nil
}

func (a *api) heartbeat(c *call) *ingest.Rejection {
	ttl := c.duration("ttl", ownerTTL, time.Second, maxOwnerTTL)
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		o, err := a.store.Heartbeat(ctx, c.namespace, c.owner, ttl)
		return schedule.DescribeOwner(a.store, o), err
	})
}

// deregister ends a registration; with schedules=delete the owner is forgotten, with all it has.
func (a *api) deregister(c *call) *ingest.Rejection {
	what, given := c.args["schedules"]
	if given && what != "keep" && what != "delete" {
		c.bad("schedules", "keep or delete")
	}
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		if err := a.store.Deregister(ctx, c.namespace, c.owner); err != nil {
			return nil, err
		}
		deleted := 0
		if what == "delete" {
			var err error
			if deleted, err = schedule.DeleteOwned(ctx, a.store, c.namespace, c.owner); err != nil {
				return nil, err
			}
			if err = a.store.Forget(ctx, c.namespace, c.owner); err != nil {
				return nil, err
			}
		}
		return map[string]any{"owner": c.owner, "state": "ended", "deleted": deleted}, nil
	})
}

func (a *api) listOwners(c *call) *ingest.Rejection {
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		return schedule.Owners(ctx, a.store, c.namespace)
	})
}

// getOwner shows an owner with its schedules.
func (a *api) getOwner(c *call) *ingest.Rejection {
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		return schedule.ShowOwner(ctx, a.store, c.namespace, c.owner)
	})
}
