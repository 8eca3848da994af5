package share

import (
	"context"
	"sync"
	"time"
)

// Turns bounds how much runs at once. A tenant has half of the places, rounded up, and all but
// one while nobody else wants them, so others find one. Where none is free, one of each tenant
// goes after one of every other.
type Turns struct {
	mu      sync.Mutex
	free    int
	each    int
	queue   int // how many of a tenant may wait
	running map[string]int
	waiting map[string][]chan struct{} // of each tenant, the oldest first
	order   []string                   // the tenants that wait, the one served longest ago first
}

// NewTurns makes Turns with places for n. queue of each tenant may wait for one.
func NewTurns(n, queue int) *Turns {
	return &Turns{
		free:    n,
		each:    (n + 1) / 2,
		queue:   queue,
		running: map[string]int{},
		waiting: map[string][]chan struct{}{},
	}
}

// Do runs work once a place is free for the tenant of ctx, or returns false: ctx ended, or
// many of the tenant wait already.
func (t *Turns) Do(ctx context.Context, work func()) bool {
	tenant := tenantOf(ctx)
	if !t.enter(ctx, tenant) {
		return false
	}
	defer t.leave(tenant)
	work()
	return true
}

// DoFor is Do for a tenant that waits at most so long.
func (t *Turns) DoFor(tenant string, wait time.Duration, work func()) bool {
	ctx := context.Background()
	if !t.tryEnter(tenant) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
		if !t.enter(ctx, tenant) {
			return false
		}
	}
	defer t.leave(tenant)
	work()
	return true
}

func (t *Turns) tryEnter(tenant string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begin(tenant)
}

func (t *Turns) enter(ctx context.Context, tenant string) bool {
	t.mu.Lock()
	if t.begin(tenant) {
		t.mu.Unlock()
		return true
	}
	waiting := t.waiting[tenant]
	if len(waiting) >= t.queue || ctx.Err() != nil {
		t.mu.Unlock()
		return false
	}
	if len(waiting) == 0 {
		t.order = append(t.order, tenant)
	}
	turn := make(chan struct{})
	t.waiting[tenant] = append(waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, other := range t.waiting[tenant] {
		if other == turn {
			t.remove(tenant, i)
			return false
		}
	}
	return true // it came meanwhile
}

// leave gives the place of a tenant to who is next.
func (t *Turns) leave(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if t.running[tenant]--; t.running[tenant] == 0 {
		delete(t.running, tenant)
	}
	for i, next := range t.order {
		if t.begin(next) {
			close(t.waiting[next][0])
			t.order = append(append(t.order[:i:i], t.order[i+1:]...), next)
			t.remove(next, 0)
			return
		}
	}
}

// begin takes a place, if the tenant may have one. The caller has the lock.
func (t *Turns) begin(tenant string) bool {
	if t.free == 0 || t.free == 1 && t.running[tenant] >= t.each {
		return false
	}
	t.free--
	t.running[tenant]++
	return true
}

// remove takes one that waits out of the list of its tenant.
func (t *Turns) remove(tenant string, i int) {
	waiting := t.waiting[tenant]
	if waiting = append(waiting[:i:i], waiting[i+1:]...); len(waiting) > 0 {
		t.waiting[tenant] = waiting
		return
	}
	delete(t.waiting, tenant)
	for i, other := range t.order {
		if other == tenant {
			t.order = append(t.order[:i:i], t.order[i+1:]...)
			return
		}
	}
}

type tenantKey struct{}

// As says for which tenant the work under a context is.
func As(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// tenantOf is what As said; empty: it is the process's own work, or an operator's.
func tenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}
