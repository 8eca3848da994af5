package partition

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// format is the version of what the keys hold. A program refuses a newer one,
// so a rolling upgrade never lets an old program loose on a new format.
const format = 1

// Check asks whether the store can be used now. It is nil when every server
// answers, holds our scripts, keeps what it is given (maxmemory-policy
// noeviction), lets this user run every command, has a format this program knows, and records for each namespace
// the shards that are configured, and nothing else wrote where shards keep their active set and ledger.
// ErrIncompatible says what does not fit and
// the way out; everything else passes by itself. warnings are for the log.
//
// An answer to the question of fitting is kept: until the first Check passed,
// and from one that found ErrIncompatible to the next that passes, entries are
// neither taken nor given out.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	warnings, err = s.check(ctx)
	if err == nil || errors.Is(err, ErrIncompatible) {
		s.fits.Store(&verdict{err})
	}
	return warnings, err
}

// verdict is what the last conclusive Check found.
type verdict struct{ err error }

// fit is nil when entries may be taken and given out. Whoever comes first asks
// the store; so nothing is stored where nobody would look for it.
func (s *Store) fit(ctx context.Context) error {
	if v := s.fits.Load(); v != nil {
		return v.err
	}
	s.fitting.Lock()
	defer s.fitting.Unlock()
	if v := s.fits.Load(); v != nil {
		return v.err
	}
	_, err := s.Check(ctx)
	if errors.Is(err, ErrUnknown) {
		err = &storeError{ErrUnavailable, err} // of the operation that asked: it did not run
	}
	return err
}

func (s *Store) check(ctx context.Context) (warnings []string, err error) {
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
		if warnings, err = s.promises(ctx); err != nil {
			return nil, err
		}
		foreign, err := s.foreignKeys(ctx)
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, foreign...)
		if err := s.allowed(ctx); err != nil {
			return nil, err
		}
	}
	for _, ns := range s.Namespaces() {
		if err := s.recorded(ctx, ns); err != nil {
			return nil, err
		}
	}
	return warnings, nil
}

// promises reads what the servers are set up to keep. INFO is asked, not
// CONFIG, which managed services refuse.
func (s *Store) promises(ctx context.Context) (warnings []string, err error) {
	seen := map[string]bool{}
	err = masters(ctx, s.backend.out, func(ctx context.Context, c *redis.Client) error {
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
		if p, ok := fields["maxmemory_policy"]; ok && p != "noeviction" {
			return &storeError{ErrIncompatible, fmt.Errorf(
				"maxmemory-policy of %s is %s, which deletes entries unasked: run CONFIG SET maxmemory-policy noeviction and put it into redis.conf", c.Options().Addr, p)}
		}
		if s.replicas > 0 {
			if err := c.Do(ctx, "wait", 0, 1).Err(); err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
				return &storeError{ErrIncompatible, fmt.Errorf("durability replica=%d: the user may not run WAIT on %s: ACL SETUSER … +wait", s.replicas, c.Options().Addr)}
			}
			if n, _ := strconv.Atoi(fields["connected_slaves"]); n < s.replicas {
				seen[fmt.Sprintf("%s: it has %d replicas connected, so durability replica=%d acknowledges nothing", c.Options().Addr, n, s.replicas)] = true
			}
		}
		for _, text := range shortcomings(fields) {
			seen[c.Options().Addr+": "+text] = true
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

// shortcomings are what a server promises less than it could.
func shortcomings(info map[string]string) (texts []string) {
	if info["aof_enabled"] == "0" {
		texts = append(texts, "its append-only file is off: a crash of Redis loses what it accepted since its last snapshot, if it takes any")
	}
	if info["aof_last_write_status"] == "err" {
		texts = append(texts, "its last write to the append-only file failed: it refuses writes until it succeeds; see its disk")
	}
	if info["rdb_last_bgsave_status"] == "err" {
		texts = append(texts, "its last snapshot failed: it may refuse writes until one succeeds; see its disk")
	}
	if major, err := strconv.Atoi(strings.SplitN(info["redis_version"], ".", 2)[0]); err == nil && major < 7 {
		texts = append(texts, "it says that it is version "+info["redis_version"]+": Spillway is tried on 7.0 and newer")
	}
	return texts
}

// recorded compares format and shards with the store, which writes them down
// when the namespace is new to it.
func (s *Store) recorded(ctx context.Context, ns *Namespace) error {
	settings := map[string]int{"format": format, "shards": len(ns.shards)}
	epoch := rand.Text() // a name for this history of a ledger, which no later one has
	missing, nameless := false, false
	compare := func(declare bool) error {
		missing, nameless = false, false
		pipe := s.backend.out.Pipeline()
		stored := make([]map[string]*redis.StringCmd, len(ns.shards))
		epochs := make([]*redis.StringCmd, len(ns.shards))
		for i := range ns.shards {
			stored[i] = map[string]*redis.StringCmd{}
			for name, want := range settings {
				if declare { // the first of several programs wins; all read what it wrote
					pipe.HSetNX(ctx, ns.shards[i].ledger, name, want)
				}
				stored[i][name] = pipe.HGet(ctx, ns.shards[i].ledger, name)
			}
			if declare {
				pipe.HSetNX(ctx, ns.shards[i].ledger, "epoch", epoch)
			}
			epochs[i] = pipe.HGet(ctx, ns.shards[i].ledger, "epoch")
		}
		if _, err := pipe.Exec(ctx); classify(err) != nil {
			return classify(err)
		}
		for i := range stored {
			nameless = nameless || errors.Is(epochs[i].Err(), redis.Nil)
			for name, cmd := range stored[i] {
				if errors.Is(cmd.Err(), redis.Nil) {
					missing = true
				} else if err := compatible(ns.Name, name, cmd.Val(), settings[name]); err != nil {
					return &storeError{ErrIncompatible, err}
				}
			}
		}
		return nil
	}
	// Reading comes first, and mostly is all: a store that is full refuses to
	// write even what it holds already.
	if err := compare(false); err != nil || !missing && !nameless {
		return err
	}
	upgrade := !missing
	if err := compare(true); !upgrade {
		return err
	}
	return nil // a ledger from before there were epochs gets one when its store has room
}

func compatible(namespace, field, stored string, want int) error {
	got, err := strconv.Atoi(stored)
	switch {
	case err != nil:
		return fmt.Errorf("namespace %s: its ledger holds %s=%q, which is no number; another program wrote there", namespace, field, stored)
	case field == "format" && got > want:
		return fmt.Errorf("namespace %s: the store holds format %d, this program knows up to %d: upgrade the program", namespace, got, want)
	case field == "shards" && got != want:
		return fmt.Errorf("namespace %s: shards is %d, but the store was first used with %d: configure shards %d, or use a new namespace or prefix", namespace, want, got, got)
	}
	return nil
}
