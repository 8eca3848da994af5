package ingest

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/transform"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// request is one produce request. Everything a lane reads lives in the request's
// own buffers, because fasthttp reuses its memory as soon as the handler returns.
// Requests are pooled with their buffers.
type request struct {
	memory.Body
	options
	namespace *partition.Namespace
	key       *key  // limits new partitions of a mixed request; nil: none
	received  int64 // Unix ms on the store's clock
	count     int   // entries added or dropped so far: the index of the next

	encoded  []byte   // entries in the store's form, back to back
	spans    []span   // where each of them is
	entries  [][]byte // the same as slices, grouped by part
	parts    []part
	byName   map[string]int32 // partition → index in parts, for mixed bodies
	maxNames int              // the largest size byName ever had: maps do not shrink
	name     []byte           // "namespace/partition" of an unmixed request

	drops   *drops.Namespace // of the namespace; nil: none are kept
	dropped []drops.Drop     // samples of entries that were dropped

	transform *transform.Transform // of the namespace; nil: none
	changed   transform.Buffers
	opaque    int // entries that it passed as they are

	answer wire.Answer
	out    []byte // encoded answer

	pending atomic.Int32  // parts without a result
	done    chan struct{} // receives one value when pending is 0
}

// span is one encoded entry: encoded[previous end:end].
type span struct {
	end   int
	part  int32
	index int32 // in the request
}

// part is the entries of one request for one partition, or up to maxPart bytes of them. Lanes
// handle parts.
type part struct {
	request *request
	name    string // "namespace/partition"; the request's memory
	lane    *lane
	home    *lane // it came from this one to the lane for large parts; nil: it did not
	count   int
	entries [][]byte
	bytes   int
	queued  time.Time
	next    *part // in its group

	idempotencyKey string // empty: none

	accepted, evicted, depth int
	repeated                 bool
	err                      error
}

// maxPart is how many bytes of entries a part holds at most, unless it is one entry or its
// request has an idempotency key. A partition of more has several parts, one after the other:
// Redis serves others between their script calls, of less than 1 ms each. It also pays a third
// for them: one call of 16 MiB took 98 ms of its processor, and kept others waiting for 300 ms.
const maxPart = 256 << 10

// Larger buffers do not go back to the pool, so that one large request does not
// keep its memory for ever.
const (
	maxPooledBytes   = 256 << 10
	maxPooledEntries = 1024
)

func newRequest() *request {
	return &request{byName: make(map[string]int32), done: make(chan struct{}, 1)}
}

// release gives back what a request has reserved, and puts the request into the pool.
func (s *Server) release(r *request) {
	keep := r.Body.Release()
	r.reset()
	if keep {
		s.requests.Put(r)
	}
}

// reset clears everything but the buffers.
func (r *request) reset() {
	clear(r.entries)
	clear(r.parts)
	clear(r.byName)
	*r = request{
		Body:     r.Body,
		encoded:  reuse(r.encoded, maxPooledBytes),
		spans:    reuse(r.spans, maxPooledEntries),
		entries:  reuse(r.entries, maxPooledEntries),
		parts:    reuse(r.parts, maxPooledEntries),
		byName:   r.byName,
		maxNames: r.maxNames,
		name:     r.name[:0],
		changed:  transform.Buffers{reuse(r.changed[0], maxPooledBytes), reuse(r.changed[1], maxPooledBytes)},
		answer:   wire.Answer{Results: reuse(r.answer.Results, maxPooledEntries)},
		out:      reuse(r.out, maxPooledBytes),
		done:     r.done,
	}
}

func reuse[T any](buffer []T, maxCap int) []T {
	if cap(buffer) > maxCap {
		return nil
	}
	return buffer[:0]
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
		r.Body.Size() + cap(r.encoded) + cap(r.name) + cap(r.out) +
		size(r.spans) + size(r.entries) + size(r.parts) + size(r.answer.Results) + size(r.discards) +
		cap(r.changed[0]) + cap(r.changed[1])
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
