package ingest

import "unsafe"

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
