package ingest

import (
	"math/bits"
	"unsafe"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/share"
)

// tenant is who pays for the memory of a request: a namespace, one of its tokens, or all
// requests together whose namespace is not known yet.
type tenant struct {
	namespace string         // empty: not known
	memory    *share.Account // of Server.memory
	arriving  *share.Account // of Server.arriving; the tokens of a namespace have one together
}

func (s *Server) newTenant(namespace string) *tenant {
	return &tenant{namespace, s.memory.Tenant(), s.arriving.Tenant()}
}

// tenantOf finds who pays for a request of a namespace that exists. k may be nil.
func (s *Server) tenantOf(namespace string, k *key) *tenant {
	if k != nil && k.tenant != nil {
		return k.tenant
	}
	if t, known := s.tenants.Load(namespace); known {
		return t.(*tenant)
	}
	t, _ := s.tenants.LoadOrStore(namespace, s.newTenant(namespace))
	return t.(*tenant)
}

// charge makes t pay for a request, also for what that has reserved.
func (s *Server) charge(r *request, t *tenant) *rejection {
	before := s.payer(r.tenant)
	if before == t {
		return nil
	}
	if !t.memory.Take(r.reserved, 0) {
		return reject(wire.CodeOverloaded)
	}
	before.memory.Give(r.reserved)
	r.tenant = t
	return nil
}

func (s *Server) payer(t *tenant) *tenant {
	if t == nil {
		return s.unknown
	}
	return t
}

// reserve raises what a request has reserved of MaxInflightBytes to total
// bytes. Memory is reserved before it is allocated, and given back by release.
func (s *Server) reserve(r *request, total int) *rejection {
	more := int64(total) - r.reserved
	if !s.payer(r.tenant).memory.Take(more, r.reserved) {
		return reject(wire.CodeOverloaded)
	}
	r.reserved += more
	return nil
}

// reserveIncomplete is reserve for a body that is still arriving. All of those
// together may have half of the budget: clients that send slowly, or never
// finish, leave the other half to complete requests.
func (s *Server) reserveIncomplete(r *request, total int) *rejection {
	more := int64(total) - r.incomplete
	if !s.payer(r.tenant).arriving.Take(more, r.incomplete) {
		return reject(wire.CodeOverloaded)
	}
	r.incomplete += more
	return s.reserve(r, total)
}

// bodyComplete ends what reserveIncomplete began, also after an error. Nobody else may pay
// for the request before.
func (s *Server) bodyComplete(r *request) {
	if r.incomplete != 0 {
		s.payer(r.tenant).arriving.Give(r.incomplete)
		r.incomplete = 0
	}
}

// noRoomFor reports whether there is no memory for a body of n bytes.
func (s *Server) noRoomFor(n int64) bool {
	return s.memory.Used()+n > s.memory.Limit() || s.arriving.Used()+n > s.arriving.Limit()
}

// release gives back what a request has reserved, and puts the request into the
// pool. Past half of the budget it leaves the request to the garbage collector
// instead: the next request would be charged for buffers it does not need.
func (s *Server) release(r *request) {
	s.releaseBody(r)
	s.bodyComplete(r)
	s.payer(r.tenant).memory.Give(r.reserved)
	r.reset()
	if s.memory.Used() <= s.memory.Limit()/2 {
		s.requests.Put(r)
	}
}

// releaseBody gives the buffer of a large body back, once its entries are encoded.
func (s *Server) releaseBody(r *request) {
	s.buffers.put(r.large)
	r.large = nil
}

// What a request holds beside its buffers, in bytes. A test compares it with the
// heap.
const (
	// requestCost is the request itself, its channel and map, its slots in the
	// queues of a lane, and what the allocator rounds up.
	requestCost = int(unsafe.Sizeof(request{})) + 512
	// nameCost is what a partition of a mixed request takes beside the bytes of its
	// name: its share of a map that has just doubled.
	nameCost = 80
)

// footprint is the memory that a sealed request holds, in bytes. Buffers count by
// capacity: a pooled request that once was large stays large.
func (r *request) footprint() int {
	n := requestCost + r.maxNames*nameCost + len(r.idempotencyKey) +
		cap(r.small) + cap(r.large) + cap(r.inflated) + cap(r.encoded) + cap(r.name) + cap(r.out) +
		size(r.spans) + size(r.entries) + size(r.parts) + size(r.answer.Results) + size(r.discards)
	for i := range r.parts {
		n += len(r.parts[i].name)
	}
	return n
}

// size is the memory of a buffer, in bytes.
func size[T any](buffer []T) int {
	var element T
	return cap(buffer) * int(unsafe.Sizeof(element))
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
