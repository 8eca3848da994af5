package bench

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestMixedRequestsScatterTheirEntries(t *testing.T) {
	t.Parallel()
	l := load(1, time.Second, 1)
	l.Entries, l.Partitions, l.Mixed = 100, 1000, true
	b := newRequestBuilder(l, "test:80")
	seen, hit := map[string]bool{}, map[string]int{}
	for i := range int64(100) {
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(b.append(nil, i)))))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(req.Body) // as long as the head says, or it fails
		if err != nil {
			t.Fatal(err)
		}
		if req.URL.Path != "/v1/default" || req.Header.Get("Content-Type") != "application/x-ndjson" {
			t.Fatalf("got %s with %v", req.URL.Path, req.Header)
		}
		for line := range strings.Lines(string(body)) {
			var item struct {
				Partition string
				Data      json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &item); err != nil || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%q: %v", line, err)
			}
			if data := string(item.Data); len(data) != l.PayloadBytes || seen[data] {
				t.Fatalf("got %d bytes (seen before: %v): %s", len(data), seen[data], data)
			}
			seen[string(item.Data)] = true
			hit[item.Partition]++
		}
	}
	// 10,000 entries over 1,000 partitions: ten each, more or less.
	if len(seen) != 10_000 || len(hit) < 990 {
		t.Errorf("got %d entries in %d partitions, want 10000 in nearly all of 1000", len(seen), len(hit))
	}
	for name, n := range hit {
		if n > 40 || !strings.HasPrefix(name, "bench-") {
			t.Errorf("%d entries in %s", n, name)
		}
	}
}
