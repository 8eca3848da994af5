package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/proc"
)

const slots = 16384

// Cluster is masters with a replica each, Replicas[i] of Masters[i], or with none.
type Cluster struct {
	Masters, Replicas []*Server
}

// StartCluster starts the six and waits until each says that all slots are
// served and each replica is in sync.
func StartCluster(tb testing.TB) *Cluster {
	tb.Helper()
	var all []*Server
	var clients []*redis.Client
	for range 6 {
		s := StartClusterNode(tb)
		all, clients = append(all, s), append(clients, s.Client())
	}
	must(tb, proc.FormCluster(context.Background(), clients[:3], clients[3:]))
	c := &Cluster{all[:3], all[3:]}
	c.failAfter(tb, patient)
	return c
}

// StartMasters starts a cluster of so many masters without replicas. Those that
// can be reached serve their slots while another is away.
func StartMasters(tb testing.TB, n int) *Cluster {
	tb.Helper()
	c := &Cluster{}
	var clients []*redis.Client
	for range n {
		s := StartClusterNode(tb, "--cluster-require-full-coverage", "no")
		c.Masters, clients = append(c.Masters, s), append(clients, s.Client())
	}
	must(tb, proc.FormCluster(context.Background(), clients, nil))
	c.failAfter(tb, patient)
	return c
}

// MasterOf is the number of the master that StartMasters or StartCluster gave
// the key's slot.
func (c *Cluster) MasterOf(key string) int {
	slot := int(c.Masters[0].Client().ClusterKeySlot(context.Background(), key).Val())
	i := 0
	for slot >= (i+1)*slots/len(c.Masters) {
		i++
	}
	return i
}

// StartClusterNode starts a server that could join a cluster and serves no
// slot yet.
func StartClusterNode(tb testing.TB, args ...string) *Server {
	tb.Helper()
	for range 200 {
		addr := FreeAddr(tb)
		host, port, _ := net.SplitHostPort(addr)
		n, _ := strconv.Atoi(port)
		if !proc.Free(net.JoinHostPort(host, strconv.Itoa(n+10000))) { // the cluster's bus
			continue
		}
		return start(tb, addr, tb.TempDir(), append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.Itoa(hasty), "--cluster-replica-validity-factor", "0",
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
	var addrs []string
	for _, m := range c.Masters {
		addrs = append(addrs, m.Addr)
	}
	return "redis-cluster://" + strings.Join(addrs, ",")
}

// How long, in ms, a master is silent until the others fail it over. Groups are formed hasty, and then patient: on a busy
// machine a server is silent for a second, and who expects no failover would see one.
const (
	hasty   = 1000
	patient = 15000
)

func (c *Cluster) failAfter(tb testing.TB, ms int) {
	tb.Helper()
	for _, server := range slices.Concat(c.Masters, c.Replicas) {
		must(tb, server.Client().ConfigSet(context.Background(), "cluster-node-timeout", strconv.Itoa(ms)).Err())
	}
}

// Hasty makes a replica take the place of its master once that has been silent for a second.
func (c *Cluster) Hasty(tb testing.TB) { tb.Helper(); c.failAfter(tb, hasty) }

// Failover kills the master that serves the key's slot and waits until its
// replica has its place. It returns the number of the master.
func (c *Cluster) Failover(tb testing.TB, key string) int {
	tb.Helper()
	c.Hasty(tb)
	i := c.MasterOf(key)
	c.Masters[i].Kill()
	replica := c.Replicas[i].Client()
	Until(tb, healthy, fmt.Sprintf("replica %d is promoted", i), func() bool {
		return info(replica, "replication")["role"] == "master"
	})
	return i
}

// MoveSlot moves the slot of a key from one master to another, key by key, as redis-cli does.
func (c *Cluster) MoveSlot(tb testing.TB, key string, from, to int) {
	tb.Helper()
	ctx := context.Background()
	source, target := c.Masters[from].Client(), c.Masters[to].Client()
	must(tb, proc.MoveSlot(ctx, source.ClusterKeySlot(ctx, key).Val(), source, target))
}

// BeginMove begins what MoveSlot does, and moves no key. From then on the cluster rejects calls of
// which some keys exist.
func (c *Cluster) BeginMove(tb testing.TB, key string, from, to int) {
	tb.Helper()
	ctx := context.Background()
	source, target := c.Masters[from].Client(), c.Masters[to].Client()
	slot := source.ClusterKeySlot(ctx, key).Val()
	must(tb, source.ConfigResetStat(ctx).Err()) // for UntilRejected
	must(tb, target.Do(ctx, "cluster", "setslot", slot, "importing", source.ClusterMyID(ctx).Val()).Err())
	must(tb, source.Do(ctx, "cluster", "setslot", slot, "migrating", target.ClusterMyID(ctx).Val()).Err())
}

// UntilRejected waits until the master whose slot BeginMove moves has rejected a call.
func (c *Cluster) UntilRejected(tb testing.TB, master int) {
	tb.Helper()
	client := c.Masters[master].Client()
	Until(tb, healthy, "a call is rejected", func() bool { return info(client, "errorstats")["errorstat_TRYAGAIN"] != "" })
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
