package partition

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of every connection. A stalled Redis costs a caller its own deadline or the
// read timeout, whichever ends first; waiting goroutines do not pile up.
const (
	dialTimeout = time.Second
	readTimeout = 2 * time.Second
	poolTimeout = 250 * time.Millisecond
	poolSize    = 16
)

// backend is one Redis with three clients, so that none can take the connections of
// another: in for produce, out for claim, commit and release, and background for reads
// (see readLimit), checks and the janitor.
type backend struct {
	in, out    redis.UniversalClient
	background redis.UniversalClient
	addrs      []string // of the servers or sentinels that the URL names, for people
	network    string   // tcp or unix
	tls        bool
	embedded   bool
	server     *embeddedServer // nil unless embedded
	cluster    bool
	connected  chan struct{} // has room for one signal: a connection was made, or a shard is reachable again
	close      func()
}

const wantURL = "embedded:, redis://host:port, rediss://host:port, redis-sentinel://h1,h2/master or redis-cluster://h1,h2"

// openBackend parses the URL. It does not connect. An embedded server is that of the
// store before, if there is one.
func openBackend(raw string, before *Store) (*backend, error) {
	scheme, rest, found := strings.Cut(raw, ":")
	if !found {
		return nil, badURL()
	}
	var client func() redis.UniversalClient
	b := &backend{network: "tcp", connected: make(chan struct{}, 1), close: func() {}}
	switch scheme {
	case "embedded":
		if rest != "" {
			return nil, badURL()
		}
		var err error
		if before != nil && before.backend.server != nil {
			b.server = before.backend.server.share()
		} else if b.server, err = openEmbedded(); err != nil {
			return nil, err
		}
		b.embedded, b.close = true, b.server.close
		client = func() redis.UniversalClient {
			o := b.withLimits(&redis.UniversalOptions{Addrs: []string{b.server.Addr()}, Password: b.server.password}).Simple()
			// It shares the processors of this process, so it may be slow, but never down.
			o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute
			return redis.NewClient(o)
		}
	case "redis", "rediss", "unix":
		one, err := parseSingleHost(raw)
		if err != nil {
			return nil, err
		}
		b.addrs, b.tls = []string{one.Addr}, one.TLSConfig != nil
		client = func() redis.UniversalClient {
			return redis.NewClient(b.withLimits(&redis.UniversalOptions{
				Addrs: []string{one.Addr}, Username: one.Username, Password: one.Password, DB: one.DB, TLSConfig: one.TLSConfig,
			}).Simple())
		}
		if scheme == "unix" {
			b.network = one.Network
			client = func() redis.UniversalClient {
				o := b.withLimits(&redis.UniversalOptions{Username: one.Username, Password: one.Password, DB: one.DB}).Simple()
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
			client = func() redis.UniversalClient { return redis.NewClusterClient(b.withLimits(o).Cluster()) }
			break
		}
		if o.MasterName == "" {
			return nil, &FieldError{"redis", "redis-sentinel://…", "the master's name after the hosts, as in redis-sentinel://h1,h2/mymaster"}
		}
		client = func() redis.UniversalClient { return redis.NewFailoverClient(b.withLimits(o).Failover()) }
	default:
		return nil, badURL()
	}
	b.in, b.out, b.background = client(), client(), client()
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
func (b *backend) withLimits(o *redis.UniversalOptions) *redis.UniversalOptions {
	o.MaxRetries = -1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = dialTimeout, readTimeout, readTimeout
	o.PoolTimeout, o.PoolSize, o.MaxActiveConns = poolTimeout, poolSize, poolSize
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

// returned tells the janitor that a connection may lead to another server than before.
func (b *backend) returned() {
	select {
	case b.connected <- struct{}{}:
	default:
	}
}

// reloadClusterMap makes the clients of a cluster ask for its slot map now, because
// another master may serve the shard. By themselves they ask once a minute.
func (b *backend) reloadClusterMap(ctx context.Context) {
	for _, client := range []redis.UniversalClient{b.in, b.out} {
		if cluster, ok := client.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx)
		}
	}
}

// clientFor is the client of the server that holds a key. Reads of several servers use
// one client per server instead of the cluster's client, whose pipeline ends with the
// slowest server, and may then report that server's error for all commands. The client
// of one server follows no redirect.
func (b *backend) clientFor(ctx context.Context, key string) redis.Cmdable {
	if cluster, ok := b.out.(*redis.ClusterClient); ok {
		if node, err := cluster.MasterForKey(ctx, key); err == nil {
			return node
		}
	}
	return b.out
}

// mapTimeout bounds the renewal of the slot map. The client asks one random server,
// which may be down; then the old map is used.
const mapTimeout = 500 * time.Millisecond

// eachMaster calls f concurrently for every server that holds data, and returns all
// errors.
func eachMaster(ctx context.Context, c redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
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
