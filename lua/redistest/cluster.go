package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// Cluster is three masters with a replica each: Replicas[i] follows Masters[i].
type Cluster struct {
	Masters, Replicas []*Server
}

// StartCluster starts the six and waits until each says that all slots are
// served and each replica is in sync.
func StartCluster(tb testing.TB) *Cluster {
	tb.Helper()
	ctx := context.Background()
	var all []*Server
	var clients []*redis.Client
	for i := range 6 {
		s := StartClusterNode(tb)
		c := s.Client()
		must(tb, c.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		all, clients = append(all, s), append(clients, c)
	}
	host, port, _ := net.SplitHostPort(all[0].Addr)
	for i, c := range clients {
		if i < 3 {
			must(tb, c.Do(ctx, "cluster", "addslotsrange", i*slots/3, (i+1)*slots/3-1).Err())
		}
		if i > 0 {
			must(tb, c.ClusterMeet(ctx, host, port).Err())
		}
	}
	for _, c := range clients {
		Until(tb, healthy, "all nodes know each other", func() bool {
			return strings.Count(c.ClusterNodes(ctx).Val(), " connected") == 6
		})
	}
	for i, c := range clients[3:] {
		must(tb, c.ClusterReplicate(ctx, clients[i].ClusterMyID(ctx).Val()).Err())
	}
	for i, c := range clients {
		Until(tb, healthy, "all slots are served and replicated", func() bool {
			return strings.Contains(c.ClusterInfo(ctx).Val(), "cluster_state:ok") &&
				strings.Count(c.ClusterNodes(ctx).Val(), "slave") == 3 &&
				(i < 3 || info(c, "replication")["master_link_status"] == "up")
		})
	}
	return &Cluster{all[:3], all[3:]}
}

// StartClusterNode starts a server that could join a cluster and serves no
// slot yet.
func StartClusterNode(tb testing.TB, args ...string) *Server {
	tb.Helper()
	for range 200 {
		addr := FreeAddr(tb)
		host, port, _ := net.SplitHostPort(addr)
		n, _ := strconv.Atoi(port)
		bus, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(n+10000)))
		if err != nil {
			continue
		}
		_ = bus.Close()
		return start(tb, addr, tb.TempDir(), append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0",
		}, args...))
	}
	tb.Fatal("no free pair of loopback ports found")
	return nil
}

// StartClusterOfOne starts a single node that serves every slot.
func StartClusterOfOne(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := StartClusterNode(tb, args...)
	c := s.Client()
	must(tb, c.Do(context.Background(), "cluster", "addslotsrange", 0, slots-1).Err())
	Until(tb, healthy, "all slots are served", func() bool {
		return strings.Contains(c.ClusterInfo(context.Background()).Val(), "cluster_state:ok")
	})
	return s
}

// URL is the address in the form partition.Config wants.
func (c *Cluster) URL() string {
	return "redis-cluster://" + c.Masters[0].Addr + "," + c.Masters[1].Addr + "," + c.Masters[2].Addr
}

// Failover kills the master that serves the key's slot and waits until its
// replica has its place. It returns the number of the master.
func (c *Cluster) Failover(tb testing.TB, key string) int {
	tb.Helper()
	slot := c.Masters[0].Client().ClusterKeySlot(context.Background(), key).Val()
	i := 0
	for int(slot) >= (i+1)*slots/3 {
		i++
	}
	c.Masters[i].Kill()
	replica := c.Replicas[i].Client()
	Until(tb, healthy, fmt.Sprintf("replica %d is promoted", i), func() bool {
		return info(replica, "replication")["role"] == "master"
	})
	return i
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
