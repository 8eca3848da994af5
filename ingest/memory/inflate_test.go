package memory

import (
	"bytes"
	stdgzip "compress/gzip"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// FuzzInflate checks the limit of decompression, and compares gzip with the standard
// library. The standard library accepts reserved flags, which are rejected here.
func FuzzInflate(f *testing.F) {
	const limit = 4 << 10
	in, err := newInflater(Config{MaxInflightBytes: 64 << 20, MaxDecompressed: limit, Wait: time.Second})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(gzipOf(f, "x")))
	f.Add([]byte(compressed(f, "x")))
	f.Add([]byte(gzipOf(f, strings.Repeat("x", limit)) + gzipOf(f, "y")))
	f.Add([]byte(compressed(f, strings.Repeat("x", limit+1))))
	// A second member that is cut off in its header.
	f.Add([]byte("\x1f\x8b\b\x00000000\xec\xc0\x01\r\x00\x00\x00\u00a0\xdaƷ\xc7\a\x03\x00\x00\x00\xf2>\x00\xc1w\x10>\x00\x10\x00\x00\x1f\x8b\b0000000"))
	for _, seed := range inflateSeeds {
		f.Add([]byte(seed))
	}
	var reserved int
	reserve := func(n int) error {
		reserved = n
		return nil
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := in.unzstd(nil, body, reserve)
		if err == nil && len(got) > limit {
			t.Fatalf("zstd: %d bytes", len(got))
		}
		got, err = in.gunzip(nil, body, reserve)
		if len(got) > limit+1 || cap(got) > reserved {
			t.Fatalf("gzip: %d bytes in a buffer of %d, %d are reserved", len(got), cap(got), reserved)
		}
		if err != nil {
			return
		}
		if want, err := stdGunzip(body, limit); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q: got %q, the standard library says %q, %v", body, got, want, err)
		}
	})
}

func compressed(f *testing.F, text string) string {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}

func gzipOf(f *testing.F, text string) string {
	var b bytes.Buffer
	w := stdgzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		f.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	return b.String()
}

func stdGunzip(body []byte, limit int64) ([]byte, error) {
	z, err := stdgzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, limit+1))
	if int64(len(out)) > limit {
		return nil, errTooLarge
	}
	return out, err
}

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
