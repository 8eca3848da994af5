// Package backend is one Redis, for whatever keeps data in it: a server, the master that
// sentinels name, a cluster, or a miniredis in this process. It opens the connections, runs
// scripts and reads their replies in place, puts every error into a class that says what the
// caller may do next, waits for replicas, follows the server's clock, and rejects calls on
// shards that cannot be reached. It knows nothing of what the scripts store: package
// partition keeps the buffer on it.
package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// Limits of every connection. A stalled Redis costs a caller its own deadline or the
// read timeout, whichever ends first; waiting goroutines do not pile up.
const (
	dialTimeout = time.Second
	readTimeout = 2 * time.Second
	poolTimeout = 250 * time.Millisecond
	poolSize    = 16
)

// Config is the configuration of a Backend. Open returns a *FieldError for a value that
// it cannot use.
type Config struct {
	// URL is the address of Redis, in one of these forms.
	//
	//	embedded:                                  miniredis in this process, gone with it
	//	redis://[user:password@]host:port[/db]     one server
	//	rediss://…                                 the same over TLS
	//	redis-sentinel://h1,h2,h3/master[/db]      the master that the sentinels name
	//	redis-cluster://h1,h2,h3                   Redis Cluster
	URL string
	// Replicas is how many replicas must confirm the calls of RunDurably: 0 to
	// MaxReplicas; default 0, the primary alone. With the embedded server it must be 0.
	Replicas int
	// Follows is a Backend with the same URL that this one replaces; default none. An
	// embedded server is the same for both then, and gone when both are closed.
	Follows *Backend
	// Patience multiplies all time-outs after which a server counts as unreachable; default 1. It is 30 for the
	// embedded server, which may be slow but is never away.
	Patience int
}

// A Backend is one Redis: a server, the master that sentinels name, a cluster, or a
// miniredis in this process. It runs scripts and knows how they end; it knows nothing of
// what they store. It has three clients, so that none can take the connections of
// another. It is safe for concurrent use.
type Backend struct {
	In         redis.UniversalClient // for what brings data: produce, publish
	Out        redis.UniversalClient // for what takes it: claim, settle
	Background redis.UniversalClient // for limited reads, checks and background work

	addrs    []string // of the servers or sentinels that the URL names, for people
	network  string   // tcp or unix
	tls      bool
	embedded bool
	patience time.Duration   // a factor
	server   *embeddedServer // nil unless embedded
	cluster  bool
	replicas int

	newClient func() redis.UniversalClient
	conns     conns

	prober   *prober
	clock    Clock
	metrics  *metrics
	version  atomic.Value // string, of ServerVersion
	full     sync.Map     // addresses of the servers whose memory is full
	end      func()
	closing  sync.Once
	closeErr error

	mu        sync.Mutex
	listeners []chan struct{} // of Connected
}

// Open makes a Backend. It does not connect: while Redis is down, calls end with
// ErrUnavailable. Its errors are *FieldError.
func Open(cfg Config, reg prometheus.Registerer, log *zap.Logger) (*Backend, error) {
	switch durability := fmt.Sprintf("replica=%d", cfg.Replicas); {
	case cfg.Replicas < 0 || cfg.Replicas > MaxReplicas:
		return nil, &FieldError{"durability", durability, "async, or replica=1 to replica=5"}
	case cfg.Replicas > 0 && strings.HasPrefix(cfg.URL, "embedded:"):
		return nil, &FieldError{"durability", durability,
			"async with the embedded store, which has no replicas; or another redis"}
	}
	redisLog.to.Store(log.Named("redis"))
	b, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	b.replicas = cfg.Replicas
	b.prober = newProber(log, b.returned)
	b.metrics = newMetrics(reg, b.prober.unreachable)
	return b, nil
}

// Embedded reports whether the server lives in this process and dies with it.
func (b *Backend) Embedded() bool { return b.embedded }

// Probing bounds background work of a moment: to 1 s, times Config.Patience.
func (b *Backend) Probing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.patience*probeTimeout)
}

// Cluster reports whether the servers are a Redis Cluster.
func (b *Backend) Cluster() bool { return b.cluster }

// Addrs are those of the servers or sentinels that the URL names.
func (b *Backend) Addrs() []string { return b.addrs }

// Replicas is how many replicas RunDurably waits for.
func (b *Backend) Replicas() int { return b.replicas }

// NewClient makes one more client, with 16 connections of its own: for commands that wait in
// Redis. The caller closes it.
func (b *Backend) NewClient() redis.UniversalClient { return b.newClient() }

// CountError counts an error of a call under its class. Run counts those of whole calls.
func (b *Backend) CountError(err error) { b.metrics.failed(err) }

// Close closes the connections; operations under way fail. A second Close does nothing.
func (b *Backend) Close() error {
	b.closing.Do(func() {
		b.prober.stop()
		b.closeErr = b.closeClients()
		b.end()
	})
	return b.closeErr
}

func (b *Backend) closeClients() error {
	return errors.Join(b.In.Close(), b.Out.Close(), b.Background.Close())
}

const wantURL = "embedded:, redis://host:port, rediss://host:port, redis-sentinel://h1,h2/master or redis-cluster://h1,h2"

// connect makes the clients of a URL. An embedded server is that of the backend before,
// if there is one.
func connect(cfg Config) (*Backend, error) {
	raw, before := cfg.URL, cfg.Follows
	scheme, rest, found := strings.Cut(raw, ":")
	if !found {
		return nil, badURL()
	}
	var client func() redis.UniversalClient
	b := &Backend{network: "tcp", end: func() {}, patience: max(1, time.Duration(cfg.Patience))}
	switch scheme {
	case "embedded":
		if rest != "" {
			return nil, badURL()
		}
		var err error
		if before != nil && before.server != nil {
			b.server = before.server.share()
		} else if b.server, err = openEmbedded(); err != nil {
			return nil, err
		}
		b.embedded, b.end, b.patience = true, b.server.close, 30
		client = func() redis.UniversalClient {
			return redis.NewClient(b.withLimits(&redis.UniversalOptions{Addrs: []string{b.server.Addr()},
				Password: b.server.password}).Simple())
		}
	case "redis", "rediss", "unix":
		one, err := parseSingleHost(raw)
		if err != nil {
			return nil, err
		}
		b.addrs, b.tls = []string{one.Addr}, one.TLSConfig != nil
		client = func() redis.UniversalClient {
			return redis.NewClient(b.withLimits(&redis.UniversalOptions{
				Addrs:     []string{one.Addr},
				Username:  one.Username,
				Password:  one.Password,
				DB:        one.DB,
				TLSConfig: one.TLSConfig,
			}).Simple())
		}
		if scheme == "unix" {
			b.network = one.Network
			client = func() redis.UniversalClient {
				o := b.withLimits(&redis.UniversalOptions{Username: one.Username, Password: one.Password,
					DB: one.DB}).Simple()
				o.Network, o.Addr = one.Network, one.Addr
				return redis.NewClient(o)
			}
		}
	case "redis-sentinel", "redis-cluster":
		port := "6379"
		if scheme == "redis-sentinel" {
			port = "26379"
		}
		o, err := parseHosts(scheme, rest, port)
		if err != nil {
			return nil, err
		}
		b.addrs = o.Addrs
		if scheme == "redis-cluster" {
			if o.MasterName != "" || o.DB != 0 {
				return nil, badURL()
			}
			b.cluster = true
			client = func() redis.UniversalClient { return newCluster(b.withLimits(o).Cluster()) }
			break
		}
		if o.MasterName == "" {
			return nil, &FieldError{"redis", "redis-sentinel://…",
				"the master's name after the hosts, as in redis-sentinel://h1,h2/mymaster"}
		}
		client = func() redis.UniversalClient { return redis.NewFailoverClient(b.withLimits(o).Failover()) }
	default:
		return nil, badURL()
	}
	b.newClient = client
	b.In = client()
	b.Out = client()
	b.Background = client()
	return b, nil
}

// badURL does not repeat the URL, because that may hold a password.
func badURL() error { return &FieldError{"redis", "the URL", wantURL} }

// parseHosts reads //[user:password@]h1[:port],h2…[/master[/db]], which net/url cannot
// parse. port is the default of hosts without one.
func parseHosts(scheme, rest, port string) (*redis.UniversalOptions, error) {
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return nil, badURL()
	}
	o := &redis.UniversalOptions{}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		var err error
		if o.Username, err = url.PathUnescape(user); err != nil {
			return nil, badURL()
		}
		if o.Password, err = url.PathUnescape(password); err != nil {
			return nil, badURL()
		}
		o.SentinelUsername, o.SentinelPassword = o.Username, o.Password
		rest = rest[i+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	if err := checkOptions(scheme, query); err != nil {
		return nil, err
	}
	hosts, path, _ := strings.Cut(rest, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, badURL()
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		o.Addrs = append(o.Addrs, host)
	}
	master, db, hasDB := strings.Cut(path, "/")
	o.MasterName = master
	if hasDB {
		n, err := strconv.Atoi(db)
		if err != nil || n < 0 {
			return nil, badURL()
		}
		o.DB = n
	}
	return o, nil
}

// withLimits sets the options of every client. No client retries by itself: a script
// whose reply was lost may have run, and go-redis would run it again.
func (b *Backend) withLimits(o *redis.UniversalOptions) *redis.UniversalOptions {
	// Each client of a cluster appends to its list of nodes. They must not share the memory.
	o.Addrs = slices.Clip(o.Addrs)
	o.MaxRetries = -1
	o.DialTimeout = b.patience * dialTimeout
	o.Dialer = b.conns.dialer(o)
	o.ReadTimeout = b.patience * readTimeout
	o.WriteTimeout = b.patience * readTimeout
	o.PoolTimeout = b.patience * poolTimeout
	o.PoolSize = poolSize
	o.MaxActiveConns = poolSize
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true // Redis 7.0 has no ACL rule for CLIENT SETINFO
	o.Protocol = 2           // RESP2, which has no push messages
	o.OnConnect = func(context.Context, *redis.Conn) error {
		b.returned()
		return nil
	}
	return o
}

// Connected returns a channel of the caller's own. It has room for one signal: a
// connection was made, or a shard is reachable again, so the server may be another one
// than before.
func (b *Backend) Connected() <-chan struct{} {
	listener := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners = append(b.listeners, listener)
	return listener
}

// returned signals to all listeners.
func (b *Backend) returned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, listener := range b.listeners {
		select {
		case listener <- struct{}{}:
		default:
		}
	}
}

// ReloadClusterMap makes the clients of a cluster ask for its slot map now, because
// another master may serve the shard. By themselves they ask once a minute.
func (b *Backend) ReloadClusterMap(ctx context.Context) {
	for _, client := range []redis.UniversalClient{b.In, b.Out} {
		if cluster, ok := client.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx)
		}
	}
}

// ClientFor is the client of the server that holds a key. Reads of several servers use
// one client per server instead of the cluster's client, whose pipeline ends with the
// slowest server, and may then report that server's error for all commands. The client
// of one server follows no redirect.
func (b *Backend) ClientFor(ctx context.Context, key string) redis.Cmdable {
	if cluster, ok := b.Out.(*redis.ClusterClient); ok {
		if node, err := cluster.MasterForKey(ctx, key); err == nil {
			return node
		}
	}
	return b.Out
}

// mapTimeout bounds the renewal of the slot map. The client asks one random server,
// which may be down; then the old map is used.
const mapTimeout = 500 * time.Millisecond

// EachMaster calls f concurrently for every server that holds data, and returns all
// errors.
func EachMaster(ctx context.Context, c redis.UniversalClient,
	f func(context.Context, *redis.Client) error) error {
	cluster, ok := c.(*redis.ClusterClient)
	if !ok {
		return f(ctx, c.(*redis.Client))
	}
	var mu sync.Mutex
	var errs []error
	renewing, cancel := context.WithTimeout(ctx, mapTimeout)
	defer cancel()
	err := cluster.ForEachMaster(renewing, func(_ context.Context, c *redis.Client) error {
		err := f(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
		return nil
	})
	return errors.Join(append(errs, err)...)
}
