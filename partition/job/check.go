package job

import (
	"context"
	"errors"
	"fmt"
	"slices"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
)

// checkResult is the result of the last conclusive check.
type checkResult struct{ err error }

// Check asks whether queues can be used now. It returns nil when every server
//
//   - answers, and has the scripts,
//   - does not evict keys (maxmemory-policy noeviction),
//   - has an append-only file, where Config.Volatile is false,
//   - lets this user run every command,
//   - holds a format that this program knows, and the configured number of shards,
//   - holds queues under these names, no buffers.
//
// What is wrong with a namespace that is not Config.Required is a warning.
//
// ErrIncompatible says what does not match and what to do; a person has to act. Other
// errors pass by themselves. warnings are for the log. On a Redis Cluster that passed once,
// an unreachable master does not fail the Check while at least one shard is left.
//
// The last conclusive result is kept. Until a Check passed, publishes and claims are
// refused.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	warnings, err = s.checkServers(ctx)
	for _, ns := range s.Namespaces() {
		if err != nil {
			break
		}
		wrong := s.checkNamespace(ctx, ns)
		if wrong != nil && errors.Is(wrong, backend.ErrBroken) && !slices.Contains(s.required, ns.Name) {
			warnings = append(warnings, fmt.Sprintf("namespace %s is refused: %v", ns.Name, wrong))
			continue
		}
		err = wrong
	}
	return warnings, s.backend.Explain(ctx, err)
}

// ensureCompatible is nil when publishes and claims of a namespace may run. The first caller
// runs a Check, so that no job is stored where nobody reads it.
func (s *Store) ensureCompatible(ctx context.Context, ns *Namespace) error {
	if done, err := s.checkedBefore(ns); done {
		return err
	}
	err := s.ensureServers(ctx)
	if err == nil {
		ns.checking.Lock()
		defer ns.checking.Unlock()
		if v := ns.checked.Load(); v != nil {
			return v.err
		}
		err = s.checkNamespace(ctx, ns)
	}
	if errors.Is(err, backend.ErrUnknown) {
		err = backend.Wrap(backend.ErrUnavailable, err) // the operation itself did not run
	}
	return err
}

// checkedBefore is what the last conclusive Check found, without a round trip.
func (s *Store) checkedBefore(ns *Namespace) (done bool, err error) {
	if v := s.servers.Load(); v != nil && v.err != nil {
		return true, v.err
	}
	if v := ns.checked.Load(); v != nil {
		return true, v.err
	}
	return false, nil
}

func (s *Store) ensureServers(ctx context.Context) error {
	if v := s.servers.Load(); v != nil {
		return v.err
	}
	_, err := s.checkServers(ctx)
	return err
}

// checkServers checks what does not depend on a namespace, and keeps a conclusive result.
func (s *Store) checkServers(ctx context.Context) (warnings []string, err error) {
	s.checking.Lock()
	defer s.checking.Unlock()
	warnings, err = s.inspectServers(ctx)
	if err == nil || errors.Is(err, backend.ErrIncompatible) {
		s.servers.Store(&checkResult{err})
	}
	return warnings, err
}

func (s *Store) inspectServers(ctx context.Context) (warnings []string, err error) {
	passed := s.servers.Load()
	partly := s.backend.Cluster() && passed != nil && passed.err == nil // a master may be away
	if partly {
		asking, cancel := context.WithTimeout(ctx, backend.ProbeTimeout)
		defer cancel()
		warnings, err = s.backend.CheckServers(asking)
		if err == nil || errors.Is(err, backend.ErrBroken) || ctx.Err() != nil {
			return warnings, err
		}
		return warnings, nil
	}
	if _, err := s.backend.ReadTime(ctx); err != nil {
		return nil, err
	}
	if !s.loaded.Load() {
		if err := s.backend.Load(ctx, luajob.All()); err != nil {
			return nil, err
		}
		s.loaded.Store(true)
	}
	if s.backend.Embedded() {
		return []string{"jobs live in this process and end with it: the embedded store is for trying things out"}, nil
	}
	if warnings, err = s.backend.CheckServers(ctx); err != nil {
		return nil, err
	}
	if !s.volatile {
		if err := s.backend.CheckPersistence(ctx); err != nil {
			return nil, err
		}
	}
	return warnings, nil
}
