package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Stores are the stores of several Redis as one: a namespace is in one of them. Each has its
// own connections, clock, Check and zones, so one that is away holds up no other.
type Stores struct {
	verbs
	list       []*Store
	namespaces map[string]*Namespace
	sorted     []*Namespace
	zones      int
}

// verbs are the operations on a namespace, which Store and Stores have alike: the store of the
// namespace does them.
type verbs struct{}

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
		}
		s.firstZone = all.zones
		all.zones += s.Zones()
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
