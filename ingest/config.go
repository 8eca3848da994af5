package ingest

import (
	"crypto/tls"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// entryOverhead is room for what 1000 entries take beside their bytes, each for
// a partition of its own with a long name: 0.7 MB, and room for pooled buffers.
const entryOverhead = 1 << 20

// What a connection holds beside its share of MaxInflightBytes, in bytes: head
// and headers, the first 8 KiB of a body, buffers, stack. A test measures it.
const (
	connMemory = 64 << 10
	tlsMemory  = 32 << 10 // more with TLS
)

// minTimeout is the least that a client may be given: a round trip to another
// continent takes longer than a few milliseconds.
const minTimeout = 100 * time.Millisecond

// MaxMemory is what a server may hold in the worst case, in bytes:
// MaxConns·(64 KiB, 96 KiB with TLS) + 2·MaxInflightBytes (what is reserved,
// and as much again that pools keep or the collector has not seen yet), and what
// is kept for the next bodies: 7 MiB of buffers, and for each zstd decoder what
// one may exceed its reservation by before it notices.
func (c Config) MaxMemory() int64 {
	perConn := int64(connMemory)
	if c.TLS != nil {
		perConn += tlsMemory
	}
	const growth = 3 // a buffer that grows is there twice, and by a quarter larger
	decoders := int64(zstdDecoders(c)) * growth * int64(max(c.MaxDecompressed, zstdWindow))
	return int64(c.MaxConns)*perConn + 2*c.MaxInflightBytes + buffersMemory + decoders
}

// maxLanes bounds Config.Lanes; maxTotalLanes is how many lanes that makes.
const (
	maxLanes      = 64
	maxTotalLanes = maxLanes + partition.MaxZones
)

// Config bounds what a server takes on; MaxMemory says what that comes to.
type Config struct {
	// Lanes is how many flushes may be on the wire at once; 2. A partition
	// always takes the same lane. On a Redis Cluster they are shared out among the
	// zones (see partition.Namespace.ZoneOf), one for each at least.
	Lanes int
	// MaxInflightBytes bounds the memory of requests from the first bytes of
	// their body to their answer, all that they keep alive: body, decompressed
	// body, encoded entries and about 1 KiB a request beside; 64 MiB. It is
	// reserved before it is allocated, for a body as it arrives; bodies that are
	// still arriving may have half of it. Past it requests are rejected with 503
	// overloaded.
	MaxInflightBytes int64
	// MaxBody is the size of a body on the wire, in bytes; 1 MiB.
	MaxBody int
	// MaxDecompressed is the size of a body after decompression, in bytes;
	// 4 MiB. At least MaxBody.
	MaxDecompressed int
	// MaxEntries in one request; 1000.
	MaxEntries int
	// MaxEntry is the size of one payload, in bytes; 32 KiB.
	MaxEntry int
	// ReadTimeout is for a whole request, first byte to last; 10s. It must
	// suit the slowest honest client.
	ReadTimeout time.Duration
	// WriteTimeout is for an answer; 10s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may stay silent between requests; 75s.
	IdleTimeout time.Duration
	// MaxConns is how many connections may be open; 4096. Further ones are
	// answered 503 overloaded and closed.
	MaxConns int
	// ProduceTimeout is the budget of one flush; 3s. A request waits at most
	// twice as long for its flush to begin, so it is answered within thrice.
	ProduceTimeout time.Duration
	// Tokens by namespace. A namespace without any is open to everybody who can
	// reach the port; none by default.
	Tokens map[string][]Token
	// TLS, when set, is what connections must speak; nil is plain HTTP, the
	// default. A handshake may take ReadTimeout, as the first request then may.
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
		ProduceTimeout:   3 * time.Second,
	}
}

// Validate returns a *partition.FieldError for the first unusable setting.
func (c Config) Validate() error {
	wrong := func(field string, value any, want string) error {
		return &partition.FieldError{Field: field, Value: value, Want: want}
	}
	switch {
	case c.Lanes < 1 || c.Lanes > maxLanes:
		return wrong("lanes", c.Lanes, "1 to 64")
	case c.MaxBody < 1 || c.MaxBody > 1<<30:
		return wrong("max_body", c.MaxBody, "1 B to 1 GiB, in bytes")
	case c.MaxDecompressed < c.MaxBody || c.MaxDecompressed > 1<<30:
		return wrong("max_decompressed", c.MaxDecompressed, "max_body to 1 GiB, in bytes")
	case c.MaxInflightBytes < int64(c.MaxBody)+3*int64(c.MaxDecompressed)+entryOverhead:
		// Less would reject a legal request even on an idle server: the largest
		// is there twice, in buffers that grew by steps of a quarter.
		return wrong("max_inflight_bytes", c.MaxInflightBytes, "max_body + 3*max_decompressed + 1 MiB or more, in bytes")
	case c.MaxInflightBytes > 1<<40: // twice as much is a sum of MaxMemory
		return wrong("max_inflight_bytes", c.MaxInflightBytes, "1 TiB at most, in bytes")
	case c.MaxEntries < 1 || c.MaxEntries > maxGroupEntries:
		return wrong("max_entries", c.MaxEntries, "1 to 1000, what one script call takes")
	case c.MaxEntry < 1 || c.MaxEntry > c.MaxDecompressed:
		return wrong("max_entry", c.MaxEntry, "1 to max_decompressed, in bytes")
	case c.ReadTimeout < minTimeout || c.ReadTimeout > time.Hour:
		return wrong("read_timeout", c.ReadTimeout, "100ms to 1h: less cuts off honest clients, and for so long a silent one holds its connection")
	case c.WriteTimeout < minTimeout || c.WriteTimeout > time.Hour:
		return wrong("write_timeout", c.WriteTimeout, "100ms to 1h")
	case c.IdleTimeout < minTimeout || c.IdleTimeout > time.Hour:
		return wrong("idle_timeout", c.IdleTimeout, "100ms to 1h")
	case c.MaxConns < 1 || c.MaxConns > 1<<20:
		return wrong("max_conns", c.MaxConns, "1 to 1048576")
	case c.ProduceTimeout < 10*time.Millisecond || c.ProduceTimeout > time.Hour:
		return wrong("produce_timeout", c.ProduceTimeout, "10ms to 1h")
	}
	return nil
}
