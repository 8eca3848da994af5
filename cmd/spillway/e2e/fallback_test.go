package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

// The receiver is not there at first: entries whose life ends go to the file. When it comes
// it gets what follows, and what it rejects is in the file, too.
func TestFallbackTakesWhatADeadSinkCannotAndWhatALiveOneRejects(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir, address := t.TempDir(), redistest.FreeAddr(t)
	out := filepath.Join(dir, "fallback.ndjson")
	s := serve(t, "--redis", redis.URL(), "--sink", "http://"+address+"/in", "--fallback", "file://"+out,
		"--max-age", "8s", "--linger", "50ms", "--sink-timeout", "1s", "--lease", "3s").ready(200)
	const partitions, each = 20, 50
	send := func(from int) {
		for p := range partitions {
			if a := s.post(fmt.Sprintf("/v1/default/kart-%d", p), "application/x-ndjson", ndjson(from, from+each)); a.Accepted != each {
				t.Fatalf("got %d %s", a.status, a.body)
			}
		}
	}
	taken := func() int64 {
		return s.metric(`spillway_drain_fallback_entries_total{fallback="1",namespace="default"}`)
	}
	send(0)
	eventually(t, "everything is delivered without the receiver", func() bool { return s.ledger().Buffered == 0 })
	if l := s.ledger(); l.Delivered != partitions*each || taken() != partitions*each {
		t.Errorf("got %+v and %d by the fallback, want all %d", l, taken(), partitions*each)
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10_000)
	receiver := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"n":77}`) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for range strings.Count(string(body), "\n") {
			got <- r.Header.Get("X-Partition")
		}
	})}
	go func() { _ = receiver.Serve(listener) }()
	defer receiver.Close()
	// The first Writes may find the receiver down for up to a second more.
	eventually(t, "the receiver gets entries", func() bool {
		if a := s.post("/v1/default/first", "application/json", `{"n":-1}`); a.Accepted != 1 {
			t.Fatalf("got %d %s", a.status, a.body)
		}
		eventually(t, "it is delivered", func() bool { return s.ledger().Buffered == 0 })
		return len(got) > 0
	})
	before, first := taken(), len(got)
	send(each)
	eventually(t, "everything is delivered with the receiver", func() bool { return s.ledger().Buffered == 0 })
	if n := taken() - before; n != partitions {
		t.Errorf("the fallback took %d entries, want the %d that the receiver rejects", n, partitions)
	}
	if n := len(got) - first; n != partitions*(each-1) {
		t.Errorf("the receiver got %d entries, want %d", n, partitions*(each-1))
	}
	if l := s.ledger(); l.Dead+l.Expired != 0 || l.Delivered != l.Accepted {
		t.Errorf("got %+v, want everything delivered", l)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	rejected := 0
	for _, l := range parseLines(t, text) {
		if string(l.Data) == `{"n":77}` {
			rejected++
		}
	}
	if rejected != partitions {
		t.Errorf("the file has %d of the entries that the receiver rejects, want %d", rejected, partitions)
	}
}
