package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/partition/backend"
)

const (
	masters = 3 // of a cluster, each with a replica
	// In a cluster, the servers find each node under this address, where its proxy listens at the
	// node's own port. The nodes find each other under 127.0.0.1, past the proxies.
	proxyHost = "127.0.0.2"
	// nodeTimeout is how long a master is away before its replica wants its place.
	nodeTimeout = 2 * time.Second
	// healTime is how long replicas may take to be in sync after a fault.
	healTime = 20 * time.Second
)

// A node is a redis-server, and the proxy between it and the servers. The nodes of a cluster are
// pairs: i and i+masters.
type node struct {
	addr, dir string
	client    *redis.Client // past the proxy
	proxy     *proxy
	process   *proc.Process // changes while faults on it run, one at a time
}

// startStore starts the Redis of the plan: one, or a cluster.
func (r *setup) startStore(ctx context.Context) error {
	count, host := 1, "127.0.0.1"
	if r.plan.cluster {
		count, host = 2*masters, proxyHost
	}
	var clients []*redis.Client
	for i := range count {
		addr, err := nodeAddr()
		if err != nil {
			return err
		}
		n := &node{addr: addr, dir: filepath.Join(r.dir, fmt.Sprint("redis-", i)), client: newClient(addr)}
		r.nodes, clients = append(r.nodes, n), append(clients, n.client)
		at := net.JoinHostPort(host, "0")
		if r.plan.cluster {
			at = net.JoinHostPort(host, proc.Port(addr))
		}
		if err := os.Mkdir(n.dir, 0o700); err != nil {
			return err
		}
		if err := r.startNode(ctx, n); err != nil {
			return err
		}
		if n.proxy, err = newProxy(at, addr); err != nil {
			return err
		}
	}
	r.store = r.newStoreClient()
	if !r.plan.cluster {
		return nil
	}
	return proc.FormCluster(ctx, clients[:masters], clients[masters:])
}

// nodeAddr is a free address whose port of the cluster's bus is free as well.
func nodeAddr() (addr string, err error) {
	for range 200 {
		if addr, err = proc.FreeAddr(); err != nil {
			return "", err
		}
		port, _ := strconv.Atoi(proc.Port(addr))
		if bus, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+10000))); err == nil {
			return addr, bus.Close()
		}
	}
	return "", errors.New("no free pair of loopback ports found")
}

// startNode starts a node, on what it kept when it was killed, and waits until it answers.
func (r *setup) startNode(ctx context.Context, n *node) error {
	fsync, command := r.plan.fsync, []string{r.settings.redisServer}
	if fsync == "none" {
		fsync = ""
	}
	if r.plan.steps() {
		command = slices.Concat([]string{"env"}, r.clock().Env(), command)
	}
	if r.plan.cluster {
		command = append(command, "--cluster-enabled", "yes", "--cluster-node-timeout", fmt.Sprint(nodeTimeout.Milliseconds()),
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
			"--cluster-announce-hostname", proxyHost, "--cluster-preferred-endpoint-type", "hostname")
	}
	p, err := rig.StartRedis(ctx, n.dir, fsync, n.client, command...)
	if err != nil {
		return err
	}
	killed := n.process != nil
	n.process = p
	if killed {
		return n.proxy.listen()
	}
	return nil
}

func (n *node) kill() {
	n.proxy.refuse()
	n.process.Kill()
}

// url is the store's address for the servers.
func (r *setup) url() string {
	var addrs []string
	for _, n := range r.nodes {
		addrs = append(addrs, n.proxy.addr())
	}
	if r.plan.cluster {
		return "redis-cluster://" + strings.Join(addrs, ",")
	}
	return "redis://" + addrs[0]
}

// newStoreClient is a client of the whole store, past the proxies.
func (r *setup) newStoreClient() redis.UniversalClient {
	if !r.plan.cluster {
		return newClient(r.nodes[0].addr)
	}
	o := &redis.ClusterOptions{DisableIdentity: true, DialTimeout: time.Second, ReadTimeout: 2 * time.Second}
	for _, n := range r.nodes {
		o.Addrs = append(o.Addrs, n.addr)
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: time.Second}
		return dialer.DialContext(ctx, network, strings.Replace(addr, proxyHost, "127.0.0.1", 1))
	}
	return redis.NewClusterClient(o)
}

// keys are those of the whole store that match.
func (r *setup) keys(ctx context.Context, pattern string) (keys []string, err error) {
	for _, n := range r.nodes {
		if r.plan.cluster && !n.is(ctx, "role:master") {
			continue
		}
		found := n.client.Scan(ctx, 0, pattern, 1000).Iterator()
		for found.Next(ctx) {
			keys = append(keys, found.Val())
		}
		if err := found.Err(); err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
	}
	return keys, nil
}

// is reports whether a node says all this of its replication.
func (n *node) is(ctx context.Context, words ...string) bool {
	text := n.client.Info(ctx, "replication").Val()
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// serving are the masters, once each has a replica that is in sync.
func (r *setup) serving(ctx context.Context) (list []*node, err error) {
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	for {
		list = nil
		for i, n := range r.nodes[:masters] {
			replica := r.nodes[i+masters]
			if replica.is(ctx, "role:master") {
				n, replica = replica, n
			}
			if n.is(ctx, "role:master", "state=online") && replica.is(ctx, "role:slave", "master_link_status:up") &&
				strings.Contains(n.client.ClusterInfo(ctx).Val(), "cluster_state:ok") {
				list = append(list, n)
			}
		}
		if len(list) == masters {
			return list, nil
		}
		if !rig.Sleep(ctx, 100*time.Millisecond) {
			return nil, fmt.Errorf("only %d masters have a replica that is in sync", len(list))
		}
	}
}

// victim is the node that a fault is for. In a cluster it is a master, once all replicas are in sync:
// otherwise two faults in a row lose what was acknowledged, and nobody promised anything else.
func (r *setup) victim(ctx context.Context, f planned) (*node, error) {
	if !r.plan.cluster {
		return r.nodes[0], nil
	}
	list, err := r.serving(ctx)
	if err != nil {
		return nil, err
	}
	return list[int(f.at/time.Millisecond)%masters], nil
}

// failover kills a master, and starts it again when its replica has its place.
func failover(ctx context.Context, r *setup, f planned) error {
	n, err := r.victim(ctx, f)
	if err != nil {
		return err
	}
	began := time.Now()
	replica := r.nodes[(slices.Index(r.nodes, n)+masters)%len(r.nodes)]
	n.kill()
	patience, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	for !replica.is(patience, "role:master") {
		if !rig.Sleep(patience, 50*time.Millisecond) {
			err = errors.New("the replica was not promoted")
			break
		}
	}
	r.progress("        %s has the place of %s after %v", replica.addr, n.addr, time.Since(began).Round(time.Millisecond))
	rig.Sleep(ctx, f.lasts-time.Since(began))
	return errors.Join(err, r.startNode(context.WithoutCancel(ctx), n))
}

// moveSlots moves the slots of a few shards that take entries to other masters.
func moveSlots(ctx context.Context, r *setup, f planned) error {
	list, err := r.serving(ctx)
	if err != nil {
		return err
	}
	shards := r.shards(bufferNamespace)
	for i := range 1 + int(f.at/time.Millisecond)%3 {
		key := shards[(int(f.at/time.Microsecond)+i)%len(shards)] + "ledger"
		slot := list[0].client.ClusterKeySlot(ctx, key).Val()
		at := slices.IndexFunc(list, func(n *node) bool { return n.serves(ctx, slot) })
		if at < 0 {
			return fmt.Errorf("no master serves slot %d", slot)
		}
		to := (at + 1 + i%2) % masters
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), healTime)
		err := proc.MoveSlot(patience, slot, list[at].client, list[to].client)
		for err != nil && rig.Sleep(patience, 200*time.Millisecond) { // one that is half moved serves nobody
			err = proc.MoveSlot(patience, slot, list[at].client, list[to].client)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("move slot %d: %w", slot, err)
		}
		rig.Sleep(ctx, f.lasts/4)
	}
	return nil
}

// serves reports whether a slot is the node's own.
func (n *node) serves(ctx context.Context, slot int64) bool {
	id := n.client.ClusterMyID(ctx).Val()
	return slices.ContainsFunc(n.client.ClusterShards(ctx).Val(), func(s redis.ClusterShard) bool {
		return slices.ContainsFunc(s.Nodes, func(o redis.Node) bool { return o.ID == id }) &&
			slices.ContainsFunc(s.Slots, func(o redis.SlotRange) bool { return o.Start <= slot && slot <= o.End })
	})
}

// shards are the key prefixes of all shards of a buffer.
func (r *setup) shards(namespace string) (all []string) {
	for i := range r.plan.shards {
		all = append(all, backend.ShardPrefix("sw", namespace, i, r.plan.shards))
	}
	return all
}

func (n *node) close() {
	if n.proxy != nil {
		n.proxy.close()
	}
	_ = n.client.Close()
	if n.process != nil {
		n.process.Stop()
	}
}

// clock is that of Redis. How far it is ahead outlives a Redis that is killed.
func (r *setup) clock() proc.Clock {
	return proc.Clock{Library: r.settings.clock, Path: filepath.Join(r.dir, "clock-offset")}
}

func stepClock(_ context.Context, r *setup, f planned) error {
	r.progress("        Redis's clock is ahead by %v", f.offset)
	return r.clock().Set(f.offset)
}
