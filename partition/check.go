package partition

import (
	"context"
	"errors"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// Check asks whether the store can be used now. It returns nil when every server
//
//   - answers, and has the scripts,
//   - does not evict keys (maxmemory-policy noeviction),
//   - lets this user run every command,
//   - holds a format that this program knows, and the configured number of shards,
//   - holds no foreign value as an active set or ledger.
//
// ErrIncompatible says what does not match and what to do; a person has to act. Other
// errors pass by themselves. warnings are for the log.
//
// On a Redis Cluster that passed once, an unreachable master does not fail the Check
// while at least one shard is left.
//
// The last conclusive result is kept. Until a Check passed, and after one with
// ErrIncompatible until another passes, Produce, Due and Claim are refused.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	warnings, err = s.conclude(ctx)
	return warnings, s.backend.Explain(ctx, err)
}

// conclude is Check without its words for people.
func (s *Store) conclude(ctx context.Context) (warnings []string, err error) {
	if warnings, err = s.check(ctx, true); backend.Denied(err) && !errors.Is(err, ErrIncompatible) {
		err = s.missingRights(ctx, err)
	}
	if err == nil || errors.Is(err, ErrIncompatible) {
		s.lastCheck.Store(&checkResult{err})
	}
	return warnings, err
}

// Inspect is a Check that lets nothing run which was refused, and records no format and
// no number of shards where a namespace is new to the store.
func (s *Store) Inspect(ctx context.Context) (warnings []string, err error) {
	if warnings, err = s.check(ctx, false); backend.Denied(err) && !errors.Is(err, ErrIncompatible) {
		err = s.missingRights(ctx, err)
	}
	return warnings, s.backend.Explain(ctx, err)
}

// checkResult is the result of the last conclusive Check.
type checkResult struct{ err error }

// ensureCompatible is nil when Produce, Due and Claim may run. The first caller runs a
// Check, so that no entry is stored where nobody reads it.
func (s *Store) ensureCompatible(ctx context.Context) error {
	if v := s.lastCheck.Load(); v != nil {
		return v.err
	}
	s.checking.Lock()
	defer s.checking.Unlock()
	if v := s.lastCheck.Load(); v != nil {
		return v.err
	}
	_, err := s.conclude(ctx)
	if errors.Is(err, ErrUnknown) {
		err = backend.Wrap(ErrUnavailable, err) // the operation itself did not run
	}
	return err
}

func (s *Store) check(ctx context.Context, record bool) (warnings []string, err error) {
	if v := s.lastCheck.Load(); s.backend.Cluster() && v != nil && v.err == nil {
		return s.checkReachable(ctx)
	}
	if _, err := s.backend.ReadTime(ctx); err != nil {
		return nil, err
	}
	if !s.loaded.Load() {
		if err := s.backend.Load(ctx, lua.All()); err != nil {
			return nil, err
		}
		s.loaded.Store(true)
	}
	if !s.backend.Embedded() {
		if warnings, err = s.backend.CheckServers(ctx); err != nil {
			return nil, err
		}
		foreign, err := s.checkSharedKeys(ctx)
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, foreign...)
		if err := s.checkPermissions(ctx); err != nil {
			return nil, err
		}
	}
	all := s.shardLedgers(func(*shard) bool { return true })
	if record {
		err = s.checkLayout(ctx, all, true)
	} else {
		_, _, err = s.compareLayouts(ctx, all, "")
	}
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if l.err != nil {
			return nil, l.err
		}
	}
	return warnings, nil
}

// checkReachable is check without the masters that are unreachable.
func (s *Store) checkReachable(ctx context.Context) (warnings []string, err error) {
	asking, cancel := context.WithTimeout(ctx, backend.ProbeTimeout)
	warnings, err = s.backend.CheckServers(asking)
	cancel()
	if errors.Is(err, ErrBroken) || ctx.Err() != nil {
		return nil, err
	}
	all := s.shardLedgers(func(sh *shard) bool { return sh.breaker.Allow() })
	if err := s.checkLayout(ctx, all, false); err != nil {
		return nil, err
	}
	err = backend.ErrUnreachable
	for _, l := range all {
		switch {
		case l.err == nil:
			err = nil
		case errors.Is(l.err, ErrBroken):
			return nil, l.err
		case err != nil:
			err = l.err
		}
	}
	return warnings, err
}
