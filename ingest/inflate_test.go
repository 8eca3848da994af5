package ingest

import (
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func newGzipWriter(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }

func newZstdWriter(w io.Writer) io.WriteCloser {
	// Never fails with valid options. A small window makes it cheap.
	z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<10))
	return z
}

func TestTheLargestWindowThatTheStandardAllowsIsAccepted(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	body := strings.Repeat(strings.Repeat("x", 30_000)+"\n", 20)
	for window, status := range map[int]int{8 << 20: 200, 16 << 20: 400} {
		compressed := deflate(t, body, func(w io.Writer) io.WriteCloser {
			z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
			return z
		})
		if r := p.post("/v1/default/p", compressed, asNDJSON, "Content-Encoding: zstd"); r.status != status {
			t.Errorf("a window of %d MiB: got %d %s", window>>20, r.status, r.raw)
		}
	}
}

func TestCompressedBodiesAreStoredLikePlainOnes(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	body := strings.Repeat("{\"a\":1}\n", 1000)
	for encoding, compressed := range map[string]string{
		"gzip": gzipped(t, body), "GZIP": gzipped(t, body[:4000]) + gzipped(t, body[4000:]),
		"zstd": zstded(t, body), "Zstd": zstded(t, body[:4000]) + zstded(t, body[4000:]), "identity": body,
	} {
		r := p.post("/v1/default/"+encoding, compressed, asNDJSON, "Content-Encoding: "+encoding)
		if r.status != 200 || r.body.Accepted != 1000 {
			t.Errorf("%s: got %d %s", encoding, r.status, r.raw)
		}
		if got := p.store.entries("default/" + encoding); len(got) != 1000 || got[999] != "1763629675100 {\"a\":1}" {
			t.Errorf("%s: stored %d entries", encoding, len(got))
		}
	}
}

func TestTheDecompressedLimitIsExactAndBombsAreRejected(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) {
		c.MaxBody, c.MaxDecompressed, c.MaxEntry = 10_000, 100_000, 100_000
	})
	for encoding, compress := range map[string]func(testing.TB, string) string{"gzip": gzipped, "zstd": zstded} {
		header := "Content-Encoding: " + encoding
		r := p.post("/v1/default/p", compress(t, strings.Repeat("x", 100_000)), header)
		r.expect(t, 200, "")
		r = p.post("/v1/default/p", compress(t, strings.Repeat("x", 100_001)), header)
		r.expect(t, 413, "body_too_large")
		// The limit is for all frames together.
		half := compress(t, strings.Repeat("x", 50_001))
		p.post("/v1/default/p", half+half, header).expect(t, 413, "body_too_large")
		p.post("/v1/default/p", compress(t, strings.Repeat("x", 9<<20)), header).expect(t, 413, "body_too_large")
	}
}

func TestBodiesThatDoNotMatchTheirEncodingAreRejected(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	gz, zs := gzipped(t, "some text that is long enough"), zstded(t, strings.Repeat("some text", 100))
	hugeWindow := "\x28\xb5\x2f\xfd\x00\xa0" + zs[6:] // a frame with a window of 1 GiB
	for _, c := range []struct {
		encoding, body string
		status         int
		code           string
	}{
		{"gzip", gz[:len(gz)-1], 400, "bad_encoding"},
		{"gzip", gz[:12], 400, "bad_encoding"},
		{"gzip", gz[:3], 400, "bad_encoding"},
		{"gzip", gz + "junk", 400, "bad_encoding"},
		{"gzip", gz + "a longer tail of junk", 400, "bad_encoding"},
		{"gzip", "plain text", 400, "bad_encoding"},
		{"gzip", zs, 400, "bad_encoding"},
		{"gzip", gz[:20] + "\xff" + gz[21:], 400, "bad_encoding"},
		{"zstd", zs[:len(zs)-1], 400, "bad_encoding"},
		{"zstd", zs[:3], 400, "bad_encoding"},
		{"zstd", zs + "junk", 400, "bad_encoding"},
		{"zstd", gz, 400, "bad_encoding"},
		{"zstd", hugeWindow, 400, "bad_encoding"},
		{"gzip", gzipped(t, ""), 400, "empty_body"},
		{"gzip, gzip", gzipped(t, gz), 415, "unsupported_encoding"},
		{"gzip,zstd", gz, 415, "unsupported_encoding"},
		{"br", "x", 415, "unsupported_encoding"},
		{"deflate", "x", 415, "unsupported_encoding"},
		{"x-gzip", gz, 415, "unsupported_encoding"},
	} {
		r := p.post("/v1/default/p", c.body, "Content-Encoding: "+c.encoding)
		if r.status != c.status || r.body.Error != c.code {
			t.Errorf("%s %.20q: got %d %s, want %d %s", c.encoding, c.body, r.status, r.raw, c.status, c.code)
		}
		if accepts := r.header.Get("Accept-Encoding"); (accepts == "gzip, zstd") != (c.status == 415) {
			t.Errorf("%s: Accept-Encoding %q on %d", c.encoding, accepts, c.status)
		}
	}
	if got := p.store.entries("default/p"); len(got) != 0 {
		t.Errorf("stored %q", got)
	}
}

func TestAGzipMemberWithATruncatedHeaderIsRejected(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	whole := gzipped(t, "a\n")
	named := "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03name"
	for rest, want := range map[string]int{"": 200, whole: 200, whole[:3]: 400, whole[:10]: 400, named: 400, "\x00": 400} {
		if r := p.post("/v1/default/p", whole+rest, asNDJSON, "Content-Encoding: gzip"); r.status != want {
			t.Errorf("followed by %q: got %d %s, want %d", rest, r.status, r.raw, want)
		}
	}
}
