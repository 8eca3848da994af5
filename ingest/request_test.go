package ingest

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// checksummed is a payload with its checksum.
func checksummed(rng *rand.Rand, size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte('a' + rng.IntN(26))
	}
	return fmt.Sprintf("%08x%s", crc32.ChecksumIEEE(b), b)
}

func intact(entry string) bool {
	_, payload, _ := strings.Cut(entry, " ")
	sum, err := strconv.ParseUint(payload[:8], 16, 32)
	return err == nil && crc32.ChecksumIEEE([]byte(payload[8:])) == uint32(sum)
}

func TestARequestKeepsNothingInMemoryOfFasthttp(t *testing.T) {
	t.Parallel()
	const writers, requests = 16, 24
	store := newFake()
	entered, open := store.blockProduce()
	p := listenTCP(t, store, longProduceTimeout)
	defer open()
	// Handlers return at once. The next requests use the buffers of the connections
	// before any entry has reached the store.
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for i := range requests {
				payload := checksummed(rng, 1+rng.IntN(2000))
				body, headers := payload+"\n"+checksummed(rng, 30), []string{asNDJSON}
				path := fmt.Sprintf("/v1/default/w%d", w)
				switch i % 4 {
				case 1:
					body = gzipped(t, body)
					headers = append(headers, "Content-Encoding: gzip")
				case 2:
					body = zstded(t, body)
					headers = append(headers, "Content-Encoding: zstd")
				case 3:
					path = "/v1/default"
					var b strings.Builder
					for _, line := range strings.Split(body, "\n") {
						fmt.Fprintf(&b, `{"partition":"w%d","id":"i%d","data":%q}`+"\n", w, i, "-")
						fmt.Fprintf(&b, `{"partition":"w%d","data":"%s"}`+"\n", w, line)
					}
					body = b.String()
				}
				if r := p.post(path+"?ack=none", body, headers...); r.status != 202 {
					t.Errorf("got %d %s", r.status, r.raw)
				}
			}
		})
	}
	wg.Wait()
	<-entered
	open()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for w := range writers {
		for _, e := range store.entries(fmt.Sprintf("default/w%d", w)) {
			head, payload, _ := strings.Cut(e, " ")
			if payload == `"-"` {
				if !strings.HasPrefix(head, "1763629675100#i") {
					t.Fatalf("entry %q is damaged", e)
				}
				continue
			}
			if n++; !intact(strings.ReplaceAll(e, `"`, "")) {
				t.Fatalf("entry %.60q is damaged", e)
			}
		}
	}
	if want := writers * requests * 2; n != want {
		t.Errorf("stored %d entries, want %d", n, want)
	}
}
