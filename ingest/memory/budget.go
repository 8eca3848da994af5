// Package memory reads the bodies of requests, and decompresses them, within a budget. Memory
// is reserved before it is allocated, for what has arrived, and who pays for it leaves some to
// all others.
package memory

import (
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition/share"
)

// Budget is the memory of all bodies, and what they share.
type Budget struct {
	Held     *share.Account // bytes reserved
	Arriving *share.Account // those of bodies that are still arriving
	Conns    *share.Account // connections that wait for what may come: a tenant leaves some to the requests of others
	tenants  sync.Map       // by namespace: *Tenant
	unknown  *Tenant
	buffers  *buffers
	inflater *inflater
	pool     sync.Pool // of bodies
}

// Config bounds the bodies of a server.
type Config struct {
	MaxInflightBytes int64
	MaxDecompressed  int // bytes, of one body
	MaxConns         int
	Wait             time.Duration // how long a body waits for its turn to be decompressed
}

// Max is what bodies may hold in the worst case, in bytes: twice what is reserved, the
// buffers that are kept for the next bodies, and what each zstd decoder may take beyond its
// reservation.
func (c Config) Max() int64 {
	const growth = 3 // while a buffer grows, it exists twice, and the new one is larger by a quarter
	return 2*c.MaxInflightBytes + buffersMemory + int64(c.zstdDecoders())*growth*int64(max(c.MaxDecompressed, zstdWindow))
}

// New makes a Budget of which all is left.
func New(cfg Config) (*Budget, error) {
	inflater, err := newInflater(cfg)
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	m := &Budget{
		Held:     share.NewBudget(cfg.MaxInflightBytes),
		Arriving: share.NewBudget(cfg.MaxInflightBytes / 2),
		Conns:    share.NewBudget(int64(cfg.MaxConns)),
		buffers:  newBuffers(),
		inflater: inflater,
	}
	m.unknown = m.newTenant("")
	m.pool.New = func() any {
		b := m.NewBody()
		return &b
	}
	return m, nil
}

// NewBody is for a request that keeps its body. It does not go to Put.
func (m *Budget) NewBody() Body { return Body{budget: m, payer: m.unknown} }

// Tenant is who pays for the memory of a request: a namespace, one of its tokens, or all
// requests together whose namespace is not known yet.
type Tenant struct {
	namespace string         // empty: not known
	held      *share.Account // of Budget.Held
	arriving  *share.Account // of Budget.Arriving; the tokens of a namespace have one together
	conns     *share.Account // of Budget.Conns, likewise
}

func (m *Budget) newTenant(namespace string) *Tenant {
	return &Tenant{namespace, m.Held.Tenant(), m.Arriving.Tenant(), m.Conns.Tenant()}
}

// Tenant is the one of a namespace that exists.
func (m *Budget) Tenant(namespace string) *Tenant {
	if t, known := m.tenants.Load(namespace); known {
		return t.(*Tenant)
	}
	t, _ := m.tenants.LoadOrStore(namespace, m.newTenant(namespace))
	return t.(*Tenant)
}

// Divide says whether the tokens of a namespace share what it may hold.
func (t *Tenant) Divide(parts bool) { t.held.Divide(parts) }

// Token makes a tenant of one of a namespace's tokens.
func (t *Tenant) Token() *Tenant {
	return &Tenant{t.namespace, t.held.Tenant(), t.arriving, t.conns}
}

// NoRoomFor reports whether there is no memory for a body of n bytes.
func (m *Budget) NoRoomFor(n int64) bool {
	return m.Held.Used()+n > m.Held.Limit() || m.Arriving.Used()+n > m.Arriving.Limit()
}

// Get returns a body that payer pays for; nil: not known yet.
func (m *Budget) Get(payer *Tenant) *Body {
	b := m.pool.Get().(*Body)
	if payer != nil {
		b.payer = payer
	}
	return b
}

// Put releases a body that Get returned.
func (m *Budget) Put(b *Body) {
	if b.Release() {
		m.pool.Put(b)
	}
}

// buffers keeps body buffers for the next large bodies, by size. What it keeps
// is bounded. A body gets a buffer of at most twice the bytes that have arrived.
type buffers [7]chan []byte // of 16 KiB, 32 KiB … 1 MiB

const (
	minBuffer   = 16 << 10
	keptPerSize = 1 << 20 // bytes
	// buffersMemory is all that it keeps, in bytes.
	buffersMemory = int64(len(buffers{})) * keptPerSize
)

func newBuffers() *buffers {
	var b buffers
	for i := range b {
		b[i] = make(chan []byte, keptPerSize/(minBuffer<<i))
	}
	return &b
}

// sizeClass is the index of the smallest size that holds n bytes.
func sizeClass(n int) int { return bits.Len(uint(max(n, 1)-1) / minBuffer) }

// bufferSize is the capacity of the buffer that get returns for n bytes.
func bufferSize(n int) int {
	if i := sizeClass(n); i < len(buffers{}) {
		return minBuffer << i
	}
	return n
}

func (b *buffers) get(n int) []byte {
	if i := sizeClass(n); i < len(b) {
		select {
		case buffer := <-b[i]:
			return buffer
		default:
		}
	}
	return make([]byte, 0, bufferSize(n))
}

// put takes a buffer that get returned, or none.
func (b *buffers) put(buffer []byte) {
	i := sizeClass(cap(buffer))
	if cap(buffer) == 0 || i >= len(b) {
		return
	}
	select {
	case b[i] <- buffer[:0]:
	default:
	}
}
