package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// format is the version of what the keys hold. A program refuses a newer one,
// so a rolling upgrade never lets an old program loose on a new format.
const format = 1

// Check asks whether the store can be used now. It is nil when every server
// answers, holds our scripts, keeps what it is given (maxmemory-policy
// noeviction), has a format this program knows, and records for each namespace
// the shards that are configured. ErrIncompatible says what does not fit and
// the way out; everything else passes by itself. warnings are for the log.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
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
		if fields["aof_enabled"] == "0" {
			seen["append-only file is off at "+c.Options().Addr+": a crash of Redis loses what it accepted since its last snapshot, if it takes any"] = true
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

// recorded compares format and shards with the store, and writes them down
// when the namespace is new.
func (s *Store) recorded(ctx context.Context, ns *Namespace) error {
	pipe := s.backend.out.Pipeline()
	stored := make([]*redis.SliceCmd, len(ns.shards))
	for i := range ns.shards {
		stored[i] = pipe.HMGet(ctx, ns.shards[i].ledger, "format", "shards")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return classify(err)
	}
	pipe = s.backend.out.Pipeline()
	for i, cmd := range stored {
		for j, want := range []int{format, len(ns.shards)} {
			name := []string{"format", "shards"}[j]
			text, ok := cmd.Val()[j].(string)
			if !ok {
				pipe.HSetNX(ctx, ns.shards[i].ledger, name, want)
				continue
			}
			if err := compatible(ns.Name, name, text, want); err != nil {
				return &storeError{ErrIncompatible, err}
			}
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	_, err := pipe.Exec(ctx)
	return classify(err)
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
