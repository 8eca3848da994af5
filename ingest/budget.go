package ingest

import (
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/share"
)

// memory is the budget of all bodies, and what they share.
type memory struct {
	held     *share.Account // bytes reserved
	arriving *share.Account // those of bodies that are still arriving
	tenants  sync.Map       // by namespace: *tenant
	unknown  *tenant
	buffers  *buffers
	inflater *inflater
	pool     sync.Pool // of bodies
}

// memoryConfig bounds the bodies of a server.
type memoryConfig struct {
	maxInflightBytes int64
	maxDecompressed  int           // bytes, of one body
	wait             time.Duration // how long a body waits for its turn to be decompressed
}

// maxMemory is what bodies may hold in the worst case, in bytes: twice what is reserved, the
// buffers that are kept for the next bodies, and what each zstd decoder may take beyond its
// reservation.
func (c memoryConfig) maxMemory() int64 {
	const growth = 3 // while a buffer grows, it exists twice, and the new one is larger by a quarter
	return 2*c.maxInflightBytes + buffersMemory + int64(c.zstdDecoders())*growth*int64(max(c.maxDecompressed, zstdWindow))
}

func newMemory(cfg memoryConfig) (*memory, error) {
	inflater, err := newInflater(cfg)
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	m := &memory{
		held:     share.NewBudget(cfg.maxInflightBytes),
		arriving: share.NewBudget(cfg.maxInflightBytes / 2),
		buffers:  newBuffers(),
		inflater: inflater,
	}
	m.unknown = m.newTenant("")
	m.pool.New = func() any {
		b := m.newBody()
		return &b
	}
	return m, nil
}

func (m *memory) newBody() body { return body{memory: m, payer: m.unknown} }

// tenant is who pays for the memory of a request: a namespace, one of its tokens, or all
// requests together whose namespace is not known yet.
type tenant struct {
	namespace string         // empty: not known
	held      *share.Account // of memory.held
	arriving  *share.Account // of memory.arriving; the tokens of a namespace have one together
}

func (m *memory) newTenant(namespace string) *tenant {
	return &tenant{namespace, m.held.Tenant(), m.arriving.Tenant()}
}

// tenant is the one of a namespace that exists.
func (m *memory) tenant(namespace string) *tenant {
	if t, known := m.tenants.Load(namespace); known {
		return t.(*tenant)
	}
	t, _ := m.tenants.LoadOrStore(namespace, m.newTenant(namespace))
	return t.(*tenant)
}

// divide says whether the tokens of a namespace share what it may hold.
func (t *tenant) divide(parts bool) { t.held.Divide(parts) }

// token makes a tenant of one of a namespace's tokens.
func (t *tenant) token() *tenant { return &tenant{t.namespace, t.held.Tenant(), t.arriving} }

// noRoomFor reports whether there is no memory for a body of n bytes.
func (m *memory) noRoomFor(n int64) bool {
	return m.held.Used()+n > m.held.Limit() || m.arriving.Used()+n > m.arriving.Limit()
}

// get returns a body that payer pays for; nil: not known yet.
func (m *memory) get(payer *tenant) *body {
	b := m.pool.Get().(*body)
	if payer != nil {
		b.payer = payer
	}
	return b
}

// put releases a body that get returned.
func (m *memory) put(b *body) {
	if b.release() {
		m.pool.Put(b)
	}
}

// body is the body of a request, and what the request has reserved of the budget.
type body struct {
	memory   *memory
	small    []byte // what arrived with the headers
	large    []byte // what arrived later; from memory.buffers
	inflated []byte // decompressed

	payer      *tenant
	reserved   int64 // bytes
	incomplete int64 // the part of reserved that is for a body still arriving
}

// maxKept is up to how many bytes a buffer is kept for the next body, so that one large body
// does not keep its memory for ever.
const maxKept = 256 << 10

// charge makes t pay, also for what is reserved.
func (b *body) charge(t *tenant) *rejection {
	if b.payer == t {
		return nil
	}
	if !t.held.Take(b.reserved, 0) {
		return reject(wire.CodeOverloaded)
	}
	b.payer.held.Give(b.reserved)
	b.payer = t
	return nil
}

// reserve reserves n more bytes of the budget. Memory is reserved before it is
// allocated, and given back by release.
func (b *body) reserve(n int) *rejection { return b.reserveInAll(int(b.reserved) + n) }

// reserveInAll raises what is reserved to total bytes.
func (b *body) reserveInAll(total int) *rejection {
	more := int64(total) - b.reserved
	if !b.payer.held.Take(more, b.reserved) {
		return reject(wire.CodeOverloaded)
	}
	b.reserved += more
	return nil
}

// reserveIncomplete is reserveInAll for a body that is still arriving. All of those
// together may have half of the budget: clients that send slowly, or never
// finish, leave the other half to complete requests.
func (b *body) reserveIncomplete(total int) *rejection {
	more := int64(total) - b.incomplete
	if !b.payer.arriving.Take(more, b.incomplete) {
		return reject(wire.CodeOverloaded)
	}
	b.incomplete += more
	return b.reserveInAll(total)
}

// complete ends what reserveIncomplete began, also after an error. Nobody else may pay
// before.
func (b *body) complete() {
	if b.incomplete != 0 {
		b.payer.arriving.Give(b.incomplete)
		b.incomplete = 0
	}
}

// release gives back what is reserved. Past half of the budget its owner must not keep the
// buffers in a pool: the next request would be charged for what it does not need.
func (b *body) release() (keep bool) {
	b.releaseLarge()
	b.complete()
	b.payer.held.Give(b.reserved)
	m := b.memory
	*b = body{memory: m, payer: m.unknown, small: b.small[:0], inflated: b.inflated[:0]}
	if cap(b.inflated) > maxKept {
		b.inflated = nil
	}
	return m.held.Used() <= m.held.Limit()/2
}

// releaseLarge gives the buffer of a large body back, once its entries are encoded.
func (b *body) releaseLarge() {
	b.memory.buffers.put(b.large)
	b.large = nil
}

// account is who pays for what is reserved; nil for no body.
func (b *body) account() *share.Account {
	if b == nil {
		return nil
	}
	return b.payer.held
}

// size is the memory of the buffers, in bytes.
func (b *body) size() int { return cap(b.small) + cap(b.large) + cap(b.inflated) }

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
