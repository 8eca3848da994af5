package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// checkSharedKeys asks whether the keys that all partitions of a shard share hold
// values of the right type. A foreign value under the active set or the ledger is
// an error, because nothing of the shard works then. One under the dead letters is
// a warning, because few entries need them. The commands are among the documented
// rights; the text names the type found only where the user may run TYPE.
func (s *Store) checkSharedKeys(ctx context.Context) (warnings []string, err error) {
	type read struct {
		ns          *Namespace
		at          *shard
		key, want   string
		cmd         redis.Cmder
		deadLetters bool
	}
	var reads []read
	pipe := s.backend.Out.Pipeline()
	for _, ns := range s.Namespaces() {
		for _, sh := range ns.shards() {
			reads = append(reads,
				read{ns, sh, sh.ready, "sorted set", pipe.ZCard(ctx, sh.ready), false},
				read{ns, sh, sh.Ledger, "hash", pipe.HGet(ctx, sh.Ledger, "format"), false},
				read{ns, sh, sh.dead, "list", pipe.LLen(ctx, sh.dead), true})
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) && !backend.IsWrongType(err) {
		return nil, backend.Classify(err)
	}
	for _, r := range reads {
		switch err := r.cmd.Err(); {
		case backend.IsWrongType(err):
			text := s.describeWrongType(ctx, r.ns.Name, r.key, r.want)
			if !r.deadLetters {
				return nil, backend.Wrap(ErrBroken, errors.New(text))
			}
			warnings = append(warnings, text+"; until then no entry can become a dead letter")
		case err != nil && !errors.Is(err, redis.Nil):
			return nil, backend.Classify(err)
		}
	}
	return warnings, nil
}

func (s *Store) describeWrongType(ctx context.Context, namespace, key, want string) string {
	got, err := s.backend.Out.Type(ctx, key).Result()
	if err != nil {
		got = "value of another type" // the user may not run TYPE
	}
	return fmt.Sprintf("namespace %s: the key %s holds a %s where Spillway keeps a %s: something else wrote it; move it away with redis-cli "+
		"RENAME '%s' '%s.foreign'",
		namespace, key, got, want, key, key)
}
