package ingest

import "math/bits"

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
