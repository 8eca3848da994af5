package memory

import "testing"

func TestBodyBuffersAreKeptUpToABound(t *testing.T) {
	t.Parallel()
	b := newBuffers()
	for _, n := range []int{0, 1, 16 << 10, 16<<10 + 1, 100_000, 1 << 20, 1<<20 + 1, 5 << 20} {
		buffer := b.get(n)
		if cap(buffer) < n || cap(buffer) != bufferSize(n) {
			t.Errorf("for %d bytes: got a buffer of %d bytes, bufferSize says %d", n, cap(buffer), bufferSize(n))
		}
	}
	for range 1000 {
		for i := range b {
			b.put(make([]byte, 0, minBuffer<<i))
		}
		b.put(make([]byte, 0, 1<<20+1))
		b.put(nil)
	}
	kept := int64(0)
	for i := range b {
		kept += int64(len(b[i])) * minBuffer << i
	}
	if kept != buffersMemory {
		t.Errorf("%d bytes are kept, want %d", kept, buffersMemory)
	}
	if buffer := b.get(20_000); len(buffer) != 0 || cap(buffer) != 32<<10 {
		t.Errorf("got a buffer of length %d, capacity %d", len(buffer), cap(buffer))
	}
}
