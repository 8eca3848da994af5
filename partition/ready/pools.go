package ready

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// Pool asks whether one pool can be used.
type Pool struct {
	Name  string
	Ask   []Checker // one or more
	texts string    // what was said of it last, while it cannot be used; empty: it can
	class error     // backend.Permanence of that
}

// Pools are the Check of all pools as one. A pool that cannot be used makes the service
// not ready only where no other one can: its own namespaces are rejected, and a load balancer
// that left this process would take the others with it.
type Pools struct {
	Pools   []*Pool // of which at least one has namespaces
	checked bool
}

// Check is nil with warnings while at least one pool can be used. The first Check fails, too,
// where a pool can never be used as it is. It is not safe for concurrent use.
func (p *Pools) Check(ctx context.Context) (warnings []string, err error) {
	if len(p.Pools) == 1 {
		return p.Pools[0].check(ctx)
	}
	texts, errs := make([][]string, len(p.Pools)), make([]error, len(p.Pools))
	var asking sync.WaitGroup
	for i, pool := range p.Pools {
		asking.Go(func() { texts[i], errs[i] = pool.check(ctx) })
	}
	asking.Wait()
	first := !p.checked
	p.checked = true
	usable := false
	for i, pool := range p.Pools {
		for _, text := range texts[i] {
			warnings = append(warnings, "pool "+pool.Name+": "+text)
		}
		switch e := errs[i]; {
		case e == nil:
			pool.texts, usable = "", true
			continue
		case first && errors.Is(e, partition.ErrIncompatible):
			return nil, fmt.Errorf("pool %s: %w", pool.Name, e)
		case pool.texts == "" || pool.class != backend.Permanence(e): // else the text may differ in a port number alone
			pool.texts, pool.class = e.Error(), backend.Permanence(e)
		}
		if err == nil {
			err = fmt.Errorf("pool %s: %w", pool.Name, errs[i])
		}
		warnings = append(warnings, "pool "+pool.Name+" cannot be used, its namespaces are rejected: "+pool.texts)
	}
	if usable {
		return warnings, nil
	}
	return nil, err
}

// check asks all that are in the pool.
func (p *Pool) check(ctx context.Context) (warnings []string, err error) {
	for _, store := range p.Ask {
		texts, err := store.Check(ctx)
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, texts...)
	}
	return warnings, nil
}
