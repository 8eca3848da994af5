package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
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
	return warnings, s.backend.explain(ctx, err)
}

// conclude is Check without its words for people.
func (s *Store) conclude(ctx context.Context) (warnings []string, err error) {
	if warnings, err = s.check(ctx, true); denied(err) && !errors.Is(err, ErrIncompatible) {
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
	if warnings, err = s.check(ctx, false); denied(err) && !errors.Is(err, ErrIncompatible) {
		err = s.missingRights(ctx, err)
	}
	return warnings, s.backend.explain(ctx, err)
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
		err = &storeError{ErrUnavailable, err} // the operation itself did not run
	}
	return err
}

func (s *Store) check(ctx context.Context, record bool) (warnings []string, err error) {
	if v := s.lastCheck.Load(); s.backend.cluster && v != nil && v.err == nil {
		return s.checkReachable(ctx)
	}
	if _, err := s.readTime(ctx); err != nil {
		return nil, err
	}
	if !s.loaded.Load() {
		if err := load(ctx, s.backend.in); err != nil {
			return nil, classify(err)
		}
		s.loaded.Store(true)
	}
	if !s.backend.embedded {
		if warnings, err = s.checkServers(ctx); err != nil {
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
	asking, cancel := context.WithTimeout(ctx, probeTimeout)
	warnings, err = s.checkServers(asking)
	cancel()
	if errors.Is(err, ErrBroken) || ctx.Err() != nil {
		return nil, err
	}
	all := s.shardLedgers(func(sh *shard) bool { return sh.breaker.allow() })
	if err := s.checkLayout(ctx, all, false); err != nil {
		return nil, err
	}
	err = errUnreachable
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

// minVersion is the oldest major version of Redis that works. Before 7.0 an error inside
// a script loses its code, so a full store or a replica looks like a broken one, and
// entries that could be tried again are refused.
const minVersion = 7

// checkServers reads how the servers are set up. It uses INFO, not CONFIG, which managed
// services refuse.
func (s *Store) checkServers(ctx context.Context) (warnings []string, err error) {
	var mu sync.Mutex
	seen := map[string]bool{}
	warn := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		seen[text] = true
	}
	err = eachMaster(ctx, s.backend.out, func(ctx context.Context, c *redis.Client) error {
		if _, err := s.readTimeOf(ctx, c); err != nil {
			return err
		}
		info, err := c.InfoMap(ctx).Result()
		if err != nil {
			return err
		}
		fields := map[string]string{}
		for _, section := range info {
			for k, v := range section {
				fields[k] = v
			}
		}
		s.version.Store(fields["redis_version"])
		if major, err := strconv.Atoi(strings.SplitN(fields["redis_version"], ".", 2)[0]); err == nil && major < minVersion {
			return &storeError{ErrIncompatible, fmt.Errorf(
				"redis at %s is version %s, and Spillway needs %d.0 or newer: upgrade Redis, or give the address of another", c.Options().Addr, fields["redis_version"], minVersion)}
		}
		if p, ok := fields["maxmemory_policy"]; ok && p != "noeviction" {
			return &storeError{ErrIncompatible, fmt.Errorf(
				"maxmemory-policy of %s is %s, which lets Redis delete entries: run CONFIG SET maxmemory-policy noeviction and put it into redis.conf", c.Options().Addr, p)}
		}
		if s.replicas > 0 {
			if err := c.Do(ctx, "wait", 0, 1).Err(); err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
				return &storeError{ErrIncompatible, fmt.Errorf("durability replica=%d: the user may not run WAIT on %s: ACL SETUSER … +wait", s.replicas, c.Options().Addr)}
			}
			if n, _ := strconv.Atoi(fields["connected_slaves"]); n < s.replicas {
				warn(fmt.Sprintf("%s: it has %d replicas connected, so with durability replica=%d nothing is acknowledged", c.Options().Addr, n, s.replicas))
			}
		}
		for _, text := range serverWarnings(fields) {
			warn(c.Options().Addr + ": " + text)
		}
		return nil
	})
	for text := range seen {
		warnings = append(warnings, text)
	}
	if errors.Is(err, ErrIncompatible) {
		return nil, err
	}
	return warnings, classify(err)
}

// ServerVersion is the version of Redis, of one of the masters, as the last Check read it;
// empty before, and where Redis does not say it.
func (s *Store) ServerVersion() string {
	version, _ := s.version.Load().(string)
	return version
}

// serverWarnings says what is less safe than it could be in the setup of a server.
func serverWarnings(info map[string]string) (texts []string) {
	if info["aof_enabled"] == "0" {
		texts = append(texts, "its append-only file is off: a crash of Redis loses what it accepted since its last snapshot, if there is one")
	}
	if info["aof_last_write_status"] == "err" {
		texts = append(texts, "its last write to the append-only file failed: it refuses writes until it succeeds; see its disk")
	}
	if info["rdb_last_bgsave_status"] == "err" {
		texts = append(texts, "its last snapshot failed: it may refuse writes until one succeeds; see its disk")
	}
	return texts
}
