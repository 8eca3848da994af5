package redistest_test

import (
	"context"
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
	if err := c.Set(context.Background(), "k", 2, 0).Err(); err != nil {
		t.Fatal(err)
	}
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
