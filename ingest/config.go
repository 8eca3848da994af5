package ingest

import (
	"crypto/tls"
	"errors"
	"time"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/transform"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// entryOverhead is what 1000 entries take beside their bytes, each for a partition
// of its own with a long name, in bytes: 0.7 MB, and room for pooled buffers.
const entryOverhead = 1 << 20

// What a connection holds beside its share of MaxInflightBytes, in bytes: request
// line and headers, the first 8 KiB of a body, buffers, stack. A test measures it.
const (
	connMemory = 64 << 10
	tlsMemory  = 32 << 10 // more with TLS
)

// minTimeout is the shortest timeout for clients: a round trip to another continent
// takes longer than a few milliseconds.
const minTimeout = 100 * time.Millisecond

// MaxMemory is what a server may hold in the worst case, in bytes. It is the sum of
//   - MaxConns · 64 KiB, or 96 KiB with TLS,
//   - 2 · MaxInflightBytes: what is reserved, and as much again in pools and in
//     garbage that is not collected yet,
//   - 7 MiB of buffers that are kept for the next bodies,
//   - what each zstd decoder may take beyond its reservation.
func (c Config) MaxMemory() int64 {
	perConn := int64(connMemory)
	if c.TLS != nil {
		perConn += tlsMemory
	}
	return int64(c.MaxConns)*perConn + c.memory().Max()
}

func (c Config) memory() memory.Config {
	return memory.Config{MaxInflightBytes: c.MaxInflightBytes, MaxDecompressed: c.MaxDecompressed,
		MaxConns: c.MaxConns, Wait: c.ProduceTimeout}
}

// maxLanes bounds Config.Lanes; maxTotalLanes is how many lanes that makes.
const (
	maxLanes      = 64
	maxTotalLanes = maxLanes + partition.MaxStores*partition.MaxZones
)

// Config bounds what a server takes on. MaxMemory is the memory that this allows.
type Config struct {
	// Lanes is how many flushes may run at once; default 2. A partition always
	// has the same lane. On a Redis Cluster the lanes are divided among the zones
	// (see partition.Namespace.ZoneOf), at least one for each.
	Lanes int
	// MaxInflightBytes bounds the memory of requests in bytes, from the first
	// bytes of their body to their answer; default 64 MiB. It covers the body, the
	// decompressed body, the encoded entries and about 1 KiB a request. Memory is
	// reserved before it is allocated, for a body as it arrives. Bodies that are
	// still arriving may have half of it. A namespace may hold four times what it leaves
	// to all others. Requests beyond it are rejected with 503 overloaded.
	MaxInflightBytes int64
	// MaxBody is the largest body as it is sent, in bytes; default 1 MiB.
	MaxBody int
	// MaxDecompressed is the largest body after decompression, in bytes; default
	// 4 MiB. At least MaxBody.
	MaxDecompressed int
	// MaxEntries is how many entries a request may hold; default 1000.
	MaxEntries int
	// MaxEntry is the largest payload of an entry, in bytes; default 32 KiB.
	MaxEntry int
	// ReadTimeout is how long a whole request may take to arrive, first byte to
	// last; default 10s. Slow clients need time for their largest bodies.
	ReadTimeout time.Duration
	// WriteTimeout is how long sending an answer may take; default 10s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may be idle between requests; default
	// 75s.
	IdleTimeout time.Duration
	// MaxConns is how many connections may be open; default 4096. For a further one the
	// oldest on which no request was admitted is closed; where there is none, it is answered
	// 503 overloaded and closed. Of those whose requests wait, a
	// namespace has share.Greed times those that it leaves to all others, at most.
	MaxConns int
	// MaxConnsPerIP is how many connections an address may have open, of IPv6 a /64; default
	// 1048576, the largest MaxConns. Behind a proxy all clients have one address.
	MaxConnsPerIP int
	// ProduceTimeout is how long one flush may take; default 3s. A request waits at
	// most twice as long for its flush to begin, so it is answered within 9s: three
	// times the ProduceTimeout.
	ProduceTimeout time.Duration
	// Tokens are by namespace; default none. A namespace without tokens admits
	// everybody who can reach the port.
	Tokens map[string][]Token
	// Closed are namespaces that admit nobody unless they have tokens; default none.
	Closed []string
	// CORSOrigins lists, by namespace, the origins whose pages browsers let read the
	// answers, such as https://game.example, or AnyOrigin alone; default none. It is no
	// authentication: other programs send what origin they like.
	CORSOrigins map[string][]string
	// SDKs are by namespace: the write keys and partitions of other vendors' SDKs;
	// default none. Events of such SDKs need a write key and no token.
	SDKs map[string]SDK
	// Transforms are by namespace: what is done to its entries before they are buffered; default none.
	Transforms map[string]*transform.Transform
	// NamespaceKeys lets the name of a namespace of SDKs be its write key, as long as
	// none has write keys, and unless the namespace has tokens or is closed; default false.
	NamespaceKeys bool
	// Mounts are the paths that handlers of other packages answer; default none.
	Mounts []Mount
	// Drops keeps samples of the entries that are rejected; default nil, none.
	Drops *drops.Log
	// TLS, when set, makes the port speak TLS; default nil, plain HTTP. A handshake
	// may take ReadTimeout, and the first request after it as long again.
	TLS *tls.Config
}

// DefaultConfig returns the defaults named at the fields.
func DefaultConfig() Config {
	return Config{
		Lanes:            2,
		MaxInflightBytes: 64 << 20,
		MaxBody:          1 << 20,
		MaxDecompressed:  4 << 20,
		MaxEntries:       1000,
		MaxEntry:         32 << 10,
		ReadTimeout:      10 * time.Second,
		WriteTimeout:     10 * time.Second,
		IdleTimeout:      75 * time.Second,
		MaxConns:         4096,
		MaxConnsPerIP:    1 << 20,
		ProduceTimeout:   3 * time.Second,
	}
}

// Validate returns a *partition.FieldError for each unusable setting, joined.
func (c Config) Validate() error {
	var v partition.Validation
	v.Check(c.Lanes >= 1 && c.Lanes <= maxLanes, "lanes", c.Lanes, "1 to 64")
	v.Check(c.MaxBody >= 1 && c.MaxBody <= 1<<30, "max_body", c.MaxBody, "1 B to 1 GiB, in bytes")
	v.Check(c.MaxDecompressed >= min(c.MaxBody, 1<<30) && c.MaxDecompressed <= 1<<30, "max_decompressed",
		c.MaxDecompressed, "max_body to 1 GiB, in bytes")
	// A smaller budget would reject a legal request even on an idle server: the
	// largest body exists twice, in buffers that grow by a quarter.
	v.Check(c.MaxInflightBytes >= int64(min(c.MaxBody, 1<<30))+3*int64(min(c.MaxDecompressed,
		1<<30))+entryOverhead, "max_inflight_bytes",
		c.MaxInflightBytes, "max_body + 3*max_decompressed + 1 MiB or more, in bytes")
	v.Check(c.MaxInflightBytes <= 1<<40, "max_inflight_bytes", c.MaxInflightBytes, "1 TiB at most, in bytes") // MaxMemory adds twice as much
	v.Check(c.MaxEntries >= 1 && c.MaxEntries <= maxGroupEntries, "max_entries", c.MaxEntries,
		"1 to 1000, what one script call takes")
	v.Check(c.MaxEntry >= 1 && c.MaxEntry <= c.MaxDecompressed, "max_entry", c.MaxEntry,
		"1 to max_decompressed, in bytes")
	v.Check(c.ReadTimeout >= minTimeout && c.ReadTimeout <= time.Hour, "read_timeout", c.ReadTimeout,
		"100ms to 1h: a shorter time cuts off slow clients, and a longer one lets silent clients hold their connections")
	v.Check(c.WriteTimeout >= minTimeout && c.WriteTimeout <= time.Hour, "write_timeout", c.WriteTimeout,
		"100ms to 1h")
	v.Check(c.IdleTimeout >= minTimeout && c.IdleTimeout <= time.Hour, "idle_timeout", c.IdleTimeout,
		"100ms to 1h")
	v.Check(c.MaxConns >= 1 && c.MaxConns <= 1<<20, "max_conns", c.MaxConns, "1 to 1048576")
	v.Check(c.MaxConnsPerIP >= 1 && c.MaxConnsPerIP <= 1<<20, "max_conns_per_ip", c.MaxConnsPerIP,
		"1 to 1048576")
	v.Check(c.ProduceTimeout >= 10*time.Millisecond && c.ProduceTimeout <= time.Hour, "produce_timeout",
		c.ProduceTimeout, "10ms to 1h")
	return errors.Join(v.Err(), c.validateSDKs())
}
