package ingest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/partition"
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

// numbered is lines of the given size, each beginning with its number.
func numbered(from, lines, size int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "%08d%s\n", from+i, strings.Repeat("x", size-8))
	}
	return b.String()
}

func largeBodies(c *Config) {
	c.MaxBody, c.MaxDecompressed, c.MaxInflightBytes = 16<<20, 16<<20, 128<<20
	longProduceTimeout(c)
}

func TestPartsAreBoundedAndKeepTheirEntriesInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newRequest()
		r.namespace, r.received = newFake().namespaces["default"], now
		mixed, keyed := rapid.Bool().Draw(t, "mixed"), rapid.Bool().Draw(t, "keyed")
		if keyed {
			r.idempotencyKey = "k"
		}
		if !mixed {
			r.setPartition([]byte("default/p0"))
		}
		want := map[string][]string{}
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(1, maxPart/3), rapid.Just(maxPart-14), rapid.Just(maxPart)), 1, 30)
		for i, size := range sizes.Draw(t, "sizes") {
			e, name := event{data: make([]byte, size)}, "default/p0"
			copy(e.data, fmt.Sprint(i, " "))
			if mixed {
				e.partition = fmt.Sprint("p", rapid.IntRange(0, 2).Draw(t, "partition"))
				name = "default/" + e.partition
			}
			r.add(e, maxPart)
			want[name] = append(want[name], string(e.data))
		}
		r.seal()
		got, last := map[string][]string{}, map[string]*part{}
		for i := range r.parts {
			p := &r.parts[i]
			bytes := 0
			for _, e := range p.entries {
				bytes += len(e)
				got[p.name] = append(got[p.name], string(e[14:]))
			}
			before := last[p.name]
			switch {
			case p.bytes != bytes || p.count != len(p.entries) || p.count == 0:
				t.Fatalf("%d bytes and %d entries, counted %d and %d", bytes, len(p.entries), p.bytes, p.count)
			case keyed && before != nil:
				t.Fatal("a request with a key has two parts for a partition")
			case !keyed && bytes > maxPart && p.count > 1:
				t.Fatalf("a part of %d entries, %d bytes", p.count, bytes)
			case before != nil && before.bytes+len(p.entries[0]) <= maxPart:
				t.Fatal("a part ends although the next entry fits")
			}
			last[p.name] = p
		}
		for _, s := range r.spans {
			if p := &r.parts[s.part]; !slices.ContainsFunc(p.entries, func(e []byte) bool { return &e[len(e)-1] == &r.encoded[s.end-1] }) {
				t.Fatalf("entry %d is not in its part", s.index)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatal("entries are in another order, or lost")
		}
	})
}

// watchedStore shows the groups of a real store after they ran.
type watchedStore struct {
	*partition.Store
	after func(*partition.Group)
}

func (s watchedStore) Produce(ctx context.Context, groups []*partition.Group) {
	s.Store.Produce(ctx, groups)
	for _, g := range groups {
		s.after(g)
	}
}

func TestALargeBatchIsStoredInSeveralCallsInOrderAndAccountedFor(t *testing.T) {
	t.Parallel()
	policy := partition.DefaultPolicy()
	policy.Capacity = 250
	_, store, redis := onRedis(t, policy, nil)
	var mu sync.Mutex
	groups := map[string]int{} // by idempotency key
	p := listenTCP(t, watchedStore{store, func(g *partition.Group) {
		mu.Lock()
		defer mu.Unlock()
		groups[g.IdempotencyKey]++
		size := 0
		for _, e := range g.Entries {
			size += len(e)
		}
		if g.IdempotencyKey == "" && size > maxPart {
			t.Errorf("a script call with %d bytes", size)
		}
	}}, largeBodies)

	r := p.post("/v1/default/p", numbered(0, 200, 20_000), asNDJSON)
	if r.status != 200 || r.body.Accepted != 200 || r.body.Evicted != 0 || *r.body.Depth != 200 {
		t.Errorf("got %d %.200s", r.status, r.raw)
	}
	r = p.post("/v1/default/p", numbered(200, 200, 20_000), asNDJSON)
	if r.status != 200 || r.body.Accepted != 200 || r.body.Evicted != 150 || *r.body.Depth != 250 || r.body.Rejected != 0 {
		t.Errorf("got %d %.200s", r.status, r.raw)
	}
	if want := 2 * ((200 + 12) / 13); groups[""] != want {
		t.Errorf("2 × 200 entries of 20 KB were stored in %d groups, want %d, of 13 each at most", groups[""], want)
	}
	// A result under a key is that of one call, so such a batch stays whole.
	r = p.post("/v1/default/keyed", numbered(0, 200, 20_000), asNDJSON, "Idempotency-Key: k")
	again := p.post("/v1/default/keyed", numbered(0, 200, 20_000), asNDJSON, "Idempotency-Key: k")
	if r.body.Accepted != 200 || again.raw != r.raw || groups["k"] != 2 {
		t.Errorf("got %.200s, then %.200s, in %d groups", r.raw, again.raw, groups["k"])
	}

	entries, err := redis.Client().LRange(t.Context(), redis.Client().Keys(t.Context(), "*:q:p").Val()[0], 0, -1).Result()
	for i, e := range entries {
		if !strings.HasPrefix(e[14:], fmt.Sprintf("%08d", 150+i)) {
			t.Fatalf("entry %d is %.30q", i, e)
		}
	}
	o, overviewErr := store.Overview(t.Context(), store.Namespace("default"))
	if l := o.Ledger; len(entries) != 250 || l.Accepted != 600 || l.Evicted != 150 || l.Buffered != 450 {
		t.Errorf("%d entries (%v), ledger %+v (%v)", len(entries), err, l, overviewErr)
	}
	if got := p.metric("entries_total", "default", "accepted"); got != 600 {
		t.Errorf("counted %v accepted, want 600", got)
	}
}

func TestLargeBatchesOfManyClientsStayWholeAndInOrder(t *testing.T) {
	t.Parallel()
	_, store, redis := onRedis(t, partition.DefaultPolicy(), nil)
	p := listenTCP(t, store, largeBodies)
	const writers, requests = 4, 6
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			sent := 0
			for range requests {
				lines, size := 1+rand.N(3), 100
				if rand.N(2) == 0 {
					lines, size = 60, 30_000
				}
				if r := p.post("/v1/default/p", numbered(w*1_000_000+sent, lines, size), asNDJSON); r.status != 200 || r.body.Accepted != lines {
					t.Errorf("got %d %.200s", r.status, r.raw)
				}
				sent += lines
			}
		})
	}
	wg.Wait()
	entries := redis.Client().LRange(t.Context(), redis.Client().Keys(t.Context(), "*:q:p").Val()[0], 0, -1).Val()
	var next [writers]int
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e[14:22], "%d", &n); err != nil {
			t.Fatal(err)
		}
		if w := n / 1_000_000; n%1_000_000 != next[w] {
			t.Fatalf("entry %d of writer %d, want %d", n%1_000_000, w, next[w])
		} else {
			next[w]++
		}
	}
	if got := p.metric("entries_total", "default", "accepted"); int(got) != len(entries) {
		t.Errorf("stored %d, counted %v", len(entries), got)
	}
}

func TestEntriesOfALargeBatchWhoseCallFailedAreToBeSentAgain(t *testing.T) {
	t.Parallel()
	_, store, _ := onRedis(t, partition.DefaultPolicy(), nil)
	calls := 0
	p := listenTCP(t, watchedStore{store, func(g *partition.Group) {
		if calls++; calls == 2 { // it ran, and its reply is lost
			*g = partition.Group{Namespace: g.Namespace, Partition: g.Partition, Entries: g.Entries, Err: partition.ErrUnknown}
		}
	}}, largeBodies)
	const entries, perPart = 120, maxPart / 30_015
	r := p.post("/v1/default/p", numbered(0, entries, 30_000), asNDJSON)
	if r.status != 200 || r.body.Accepted != entries-perPart || r.body.Rejected != perPart || *r.body.Depth != entries {
		t.Errorf("got %d %.200s", r.status, r.raw)
	}
	var want []string
	for i := range perPart {
		want = append(want, fmt.Sprint(perPart+i, ":retry/unknown"))
	}
	if got := r.results(); got != strings.Join(want, " ") {
		t.Errorf("results %s", got)
	}
	accepted, unknown := p.metric("entries_total", "default", "accepted"), p.metric("entries_total", "default", "unknown")
	if o, err := store.Overview(t.Context(), store.Namespace("default")); o.Ledger.Accepted != entries || accepted != entries-perPart || unknown != perPart {
		t.Errorf("ledger %+v (%v), counted %v accepted and %v unknown", o.Ledger, err, accepted, unknown)
	}
}

func TestEveryRequestReleasesWhatItReserved(t *testing.T) {
	t.Parallel()
	p, late := listenTCP(t, newFake(), nil), listenTCP(t, newFake(), hasty)
	body := strings.Repeat(strings.Repeat("x", 999)+"\n", 200)
	length := fmt.Sprintf("Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n", len(body))
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"accepted":        {request11("POST /v1/default/p", length, body), 200},
		"rejected":        {request11("POST /v1/default/p", "Content-Length: 40000\r\n", body[:40_000]), 413},
		"corrupt":         {request11("POST /v1/default/p", "Content-Encoding: gzip\r\nContent-Length: 40000\r\n", body[:40_000]), 400},
		"too slow":        {request11("POST /v1/default/p", length, body[:100_000]), 408},
		"a broken chunk":  {request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "9c40\r\n"+body[:40_000]+"xx"), 400},
		"a stalled chunk": {request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "9c40\r\n"+body[:40_000]+"\r\n1"), 408},
		"too large":       {request11("POST /v1/default/p", "Transfer-Encoding: chunked\r\n", "200000\r\n"+strings.Repeat("x", 2<<20)), 413},
	} {
		to := p
		if c.want == 408 {
			to = late
		}
		for range 3 {
			if got := status(t, to.sends(c.text)); got != c.want {
				t.Errorf("%s: got %d, want %d", name, got, c.want)
			}
		}
		eventually(t, func() bool { return to.memory.Held.Used() == 0 && to.memory.Arriving.Used() == 0 })
	}

	ctx := contextFor("/v1/default/p", ndjsonType, nil)
	ctx.Request.SetBodyStream(readerFunc(func([]byte) (int, error) {
		if p.memory.Held.Used() == 0 {
			t.Error("nothing is reserved before the panic")
		}
		panic("a bug")
	}), len(body))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		p.produce(ctx, &target{namespace: p.store.namespaces["default"]})
	}()
	if got := p.memory.Held.Used(); got != 0 {
		t.Errorf("a panic leaves %d bytes reserved", got)
	}
}

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestIncompleteBodiesLeaveMemoryForCompleteRequests(t *testing.T) {
	t.Parallel()
	const half = 10 << 20
	p := listenTCP(t, newFake(), func(c *Config) { c.MaxInflightBytes, c.ReadTimeout = 2*half, time.Minute })
	for range 30 {
		p.sends(request11("POST /v1/default/p", "Content-Length: 1048576\r\n", strings.Repeat("x", 600<<10)))
	}
	// Each of them holds 1 MiB, or is rejected.
	eventually(t, func() bool {
		if got := p.memory.Held.Used(); got > half {
			t.Errorf("%d bytes are reserved by incomplete bodies, want at most half of %d", got, 2*half)
		}
		return p.metric("rejections_total", "overloaded") >= 20
	})
	p.post("/v1/default/q", strings.Repeat("x", memory.Prefetched)).expect(t, 200, "")
	p.post("/v1/default", `{"partition":"q","data":1}`, asNDJSON).expect(t, 200, "")
	p.post("/v1/default/q", gzipped(t, strings.Repeat("y\n", 900)), asNDJSON, "Content-Encoding: gzip").expect(t, 200, "")
}
