package php

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// restartEvery is how often the signal is read at most.
const restartEvery = time.Second

// restart is the restart signal of an application, as it was read last.
type restart struct {
	mu      sync.Mutex
	at      time.Time
	text    string
	known   bool         // it was read once
	changes atomic.Int64 // since it was
}

// RestartSignal names the value of the key with which PHP tells its workers to restart: another text
// once that changed; "" while there is none, or it cannot be read. It is up to a second old. The
// value is compared as it lies there, for PHP may wrap it.
func (s *Store) RestartSignal(ctx context.Context, namespace string) string {
	n := s.named(namespace)
	if n == nil {
		return ""
	}
	r := n.restart
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < restartEvery {
		return r.text
	}
	r.at = time.Now()
	value, err := s.backend.Background.Get(ctx, n.CachePrefix+n.Flavor.restartKey()).Result()
	text := ""
	switch {
	case errors.Is(err, redis.Nil):
	case err != nil:
		return r.text
	default:
		h := fnv.New64a()
		_, _ = h.Write([]byte(value))
		text = strconv.FormatUint(h.Sum64(), 16)
	}
	if r.known && text != r.text {
		r.changes.Add(1)
	}
	r.text, r.known = text, true
	return text
}

// Restart tells the workers of an application to restart after their jobs, PHP's own, too.
func (s *Store) Restart(ctx context.Context, namespace string) error {
	n := s.named(namespace)
	if n == nil {
		return fmt.Errorf("the store has no namespace %s", namespace)
	}
	now, err := s.backend.KnownTime(ctx)
	if err == nil {
		// A number is stored by the caches of both libraries as it is.
		err = backend.Classify(s.backend.Background.Set(ctx,
			n.CachePrefix+n.Flavor.restartKey(), now/1000, 0).Err())
	}
	n.restart.mu.Lock()
	n.restart.at = time.Time{}
	n.restart.mu.Unlock()
	s.RestartSignal(ctx, namespace) // so that claims that wait here end at once
	return err
}
