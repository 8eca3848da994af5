package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Stores are the stores of several Redis as one: a namespace is in one of them. Each has its
// own connections, clock, Check and zones, so one that is away holds up no other. Its
// methods are those of Store; what they do is done by the store of the namespace.
type Stores struct {
	list       []*Store
	namespaces map[string]*Namespace
	sorted     []*Namespace
	zones      int
}

// MaxStores is how many stores Join takes. Each has a lane of ingest at least for each of its
// zones.
const MaxStores = 16

// Join makes one of several stores, MaxStores at most, which nothing uses yet. More of them, and a
// namespace that two of them have, are errors.
func Join(stores ...*Store) (*Stores, error) {
	if len(stores) > MaxStores {
		return nil, fmt.Errorf("%d stores, at most %d can be one", len(stores), MaxStores)
	}
	all := &Stores{list: stores, namespaces: map[string]*Namespace{}}
	for _, s := range stores {
		for _, ns := range s.Namespaces() {
			if all.namespaces[ns.Name] != nil {
				return nil, fmt.Errorf("namespace %s is in two stores", ns.Name)
			}
			all.namespaces[ns.Name] = ns
			all.sorted = append(all.sorted, ns)
			for i := range ns.shards {
				ns.shards[i].Zone += all.zones
			}
		}
		all.zones += s.zones
	}
	slices.SortFunc(all.sorted, byName)
	return all, nil
}

// Namespace returns the namespace of that name, nil when there is none.
func (a *Stores) Namespace(name string) *Namespace { return a.namespaces[name] }

// Namespaces returns all namespaces in the order of their names.
func (a *Stores) Namespaces() []*Namespace { return a.sorted }

// Zones is the number of zones of all stores, one where there is no store. A zone is a part
// of one store.
func (a *Stores) Zones() int { return max(1, a.zones) }

// NowOf is the clock of the store that holds a namespace.
func (a *Stores) NowOf(ns *Namespace) (ms int64, ok bool) { return ns.Now() }

// NowOf is Now; see Stores.
func (s *Store) NowOf(*Namespace) (ms int64, ok bool) { return s.Now() }

// Produce stores groups of any namespaces, those of several stores at once.
func (a *Stores) Produce(ctx context.Context, groups []*Group) {
	if len(groups) == 0 {
		return
	}
	first := groups[0].Namespace.store
	if len(a.list) == 1 || !slices.ContainsFunc(groups,
		func(g *Group) bool { return g.Namespace.store != first }) {
		first.Produce(ctx, groups)
		return
	}
	byStore := map[*Store][]*Group{}
	for _, g := range groups {
		byStore[g.Namespace.store] = append(byStore[g.Namespace.store], g)
	}
	var running sync.WaitGroup
	for s, part := range byStore {
		running.Go(func() { s.Produce(ctx, part) })
	}
	running.Wait()
}

// Claim needs requests of one store.
func (a *Stores) Claim(ctx context.Context, requests []ClaimRequest, lease time.Duration) []ClaimResult {
	if len(requests) == 0 {
		return nil
	}
	return requests[0].Namespace.store.Claim(ctx, requests, lease)
}

// ReleaseUnknown needs claims of one store.
func (a *Stores) ReleaseUnknown(ctx context.Context, claims []ClaimResult) error {
	if len(claims) == 0 {
		return nil
	}
	return claims[0].Namespace.store.ReleaseUnknown(ctx, claims)
}

// Settle needs leases of one store, such as those of one zone.
func (a *Stores) Settle(ctx context.Context, commits []*Commit, releases []*Release) {
	switch {
	case len(commits) > 0:
		commits[0].Lease.Namespace.store.Settle(ctx, commits, releases)
	case len(releases) > 0:
		releases[0].Lease.Namespace.store.Settle(ctx, nil, releases)
	}
}

func (a *Stores) Due(ctx context.Context, ns *Namespace, shard, offset,
	limit int) ([]DuePartition, int, error) {
	return ns.store.Due(ctx, ns, shard, offset, limit)
}

func (a *Stores) WaitDue(ctx context.Context, ns *Namespace, shard int, due int64, maxWait time.Duration) {
	ns.store.WaitDue(ctx, ns, shard, due, maxWait)
}

func (a *Stores) Stats(ctx context.Context, ns *Namespace, partition string) (Stats, error) {
	return ns.store.Stats(ctx, ns, partition)
}

func (a *Stores) Overview(ctx context.Context, ns *Namespace) (Overview, error) {
	return ns.store.Overview(ctx, ns)
}

func (a *Stores) Audit(ctx context.Context, ns *Namespace) (int64, error) {
	return ns.store.Audit(ctx, ns)
}

func (a *Stores) Partitions(ctx context.Context, ns *Namespace, from Page,
	limit int) ([]Stats, Page, error) {
	return ns.store.Partitions(ctx, ns, from, limit)
}

func (a *Stores) Describe(ctx context.Context, ns *Namespace, names []string) ([]Stats, error) {
	return ns.store.Describe(ctx, ns, names)
}

func (a *Stores) Peek(ctx context.Context, ns *Namespace, name string, r PeekRequest) (Peeked, error) {
	return ns.store.Peek(ctx, ns, name, r)
}

func (a *Stores) Pause(ctx context.Context, ns *Namespace, name string, p Pause) error {
	return ns.store.Pause(ctx, ns, name, p)
}

func (a *Stores) Resume(ctx context.Context, ns *Namespace, name string) (was bool, err error) {
	return ns.store.Resume(ctx, ns, name)
}

func (a *Stores) Pauses(ctx context.Context, ns *Namespace) ([]PausedPart, error) {
	return ns.store.Pauses(ctx, ns)
}

func (a *Stores) Purge(ctx context.Context, ns *Namespace, r PurgeRequest) (PurgeResult, error) {
	return ns.store.Purge(ctx, ns, r)
}

func (a *Stores) DeadLetters(ctx context.Context, ns *Namespace, cursor string,
	limit int) (DeadPage, error) {
	return ns.store.DeadLetters(ctx, ns, cursor, limit)
}

func (a *Stores) DeadLetter(ctx context.Context, ns *Namespace, id string) (Letter, error) {
	return ns.store.DeadLetter(ctx, ns, id)
}

func (a *Stores) Discard(ctx context.Context, ns *Namespace, letters []Letter) (removed int, err error) {
	return ns.store.Discard(ctx, ns, letters)
}

func (a *Stores) Replay(ctx context.Context, ns *Namespace, letters []Letter) []ReplayOutcome {
	return ns.store.Replay(ctx, ns, letters)
}

// ServerVersion is that of the first store, empty where there is none; see Store.
func (a *Stores) ServerVersion() string {
	if len(a.list) == 0 {
		return ""
	}
	return a.list[0].ServerVersion()
}

// Close closes all stores.
func (a *Stores) Close() error {
	var errs []error
	for _, s := range a.list {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
