package redistest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
)

func TestServerAnswersAgainAfterKillAndLaunch(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	s.Kill()
	s.Launch()
	if err := s.Client().Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestSentinelsPromoteTheReplica(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr)
	}
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.MasterName, SentinelAddrs: addrs})
	defer c.Close()
	if err := c.Set(context.Background(), "k", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Failover(t)
	redistest.Until(t, time.Minute, "the sentinels name the replica", func() bool { return c.Set(context.Background(), "k", 2, 0).Err() == nil })
}

func TestClusterPromotesTheReplica(t *testing.T) {
	t.Parallel()
	s := redistest.StartCluster(t)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Masters[0].Addr, s.Masters[1].Addr}})
	defer c.Close()
	for _, key := range []string{"a", "b", "c", "d"} {
		if err := c.Set(context.Background(), key, 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.Failover(t, "a")
	ctx := context.Background()
	redistest.Until(t, 10*time.Second, "the promoted replica takes writes", func() bool {
		c.ReloadState(ctx) // which the client does not do by itself when a master cannot be dialled
		return c.Set(ctx, "a", 2, 0).Err() == nil
	})
}

func TestAServerGoesByItsOwnClock(t *testing.T) {
	t.Parallel()
	s := redistest.StartWithClock(t)
	ctx, c := context.Background(), s.Client()
	byScript := redis.NewScript("return tonumber(redis.call('TIME')[1])")
	for _, step := range []time.Duration{59 * time.Minute, -2 * time.Hour, 3 * time.Hour} {
		before := byScript.Run(ctx, c, nil).Val().(int64)
		s.Advance(step)
		s.Kill()
		s.Launch()
		s.Advance(0)
		after := c.Time(ctx).Val().Unix()
		if passed := time.Duration(after-before) * time.Second; passed < step || passed > step+time.Minute {
			t.Errorf("%v passed, want %v", passed, step)
		}
	}
}

func TestKeysEndAndBlockedClientsWakeByTheServersClock(t *testing.T) {
	t.Parallel()
	s := redistest.StartWithClock(t)
	ctx, c := context.Background(), s.Client()
	if err := c.Set(ctx, "k", 1, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	s.Advance(59 * time.Minute)
	if n := c.Exists(ctx, "k").Val(); n != 1 {
		t.Error("the key ended before its ttl")
	}
	s.Advance(2 * time.Minute)
	if n := c.Exists(ctx, "k").Val(); n != 0 {
		t.Error("the key did not end with its ttl")
	}
	woken := make(chan error, 1)
	go func() { woken <- c.Do(ctx, "blpop", "list", 3600).Err() }()
	redistest.Until(t, 30*time.Second, "the client waits", func() bool {
		return strings.Contains(c.Info(ctx, "clients").Val(), "blocked_clients:1")
	})
	s.Advance(time.Hour)
	if err := <-woken; !errors.Is(err, redis.Nil) {
		t.Errorf("BLPOP ended with %v", err)
	}
}
