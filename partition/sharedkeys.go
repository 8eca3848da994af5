package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// checkSharedKeys looks whether the keys that all partitions of a shard share hold
// what they should. Something else that wrote there is an error where nothing
// of the shard works (the active set, the ledger), and a warning for dead
// letters, which few entries need. It asks with commands that the documented
// rights have, so the type is named only where TYPE is allowed.
func (s *Store) checkSharedKeys(ctx context.Context) (warnings []string, err error) {
	type question struct {
		ns             *Namespace
		key, want      string
		cmd            redis.Cmder
		onlyDeadLetter bool
	}
	var asked []question
	pipe := s.backend.out.Pipeline()
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			sh := &ns.shards[i]
			asked = append(asked,
				question{ns, sh.ready, "sorted set", pipe.ZCard(ctx, sh.ready), false},
				question{ns, sh.ledger, "hash", pipe.HGet(ctx, sh.ledger, "format"), false},
				question{ns, sh.dead, "list", pipe.LLen(ctx, sh.dead), true})
		}
	}
	_, err = pipe.Exec(ctx)
	if err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err) {
		return nil, classify(err)
	}
	for _, q := range asked {
		switch err := q.cmd.Err(); {
		case isWrongType(err):
			text := s.describeWrongType(ctx, q.ns.Name, q.key, q.want)
			if !q.onlyDeadLetter {
				return nil, &storeError{ErrBroken, errors.New(text)}
			}
			warnings = append(warnings, text+"; until then no entry can become a dead letter")
		case err != nil && !errors.Is(err, redis.Nil):
			return nil, classify(err)
		}
	}
	return warnings, nil
}

func (s *Store) describeWrongType(ctx context.Context, namespace, key, want string) string {
	got, err := s.backend.out.Type(ctx, key).Result()
	if err != nil {
		got = "value of another type" // the user may not ask
	}
	return fmt.Sprintf("namespace %s: the key %s holds a %s where Spillway keeps a %s: something else wrote it; move it away with redis-cli RENAME '%s' '%s.foreign'",
		namespace, key, got, want, key, key)
}

// isWrongType is true for the answer to a command for another type of value.
func isWrongType(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "WRONGTYPE")
}
