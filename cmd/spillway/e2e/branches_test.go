package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// ledgerOf reads the ledger of a namespace; Dead letters and the rest must add up.
func (s *server) ledgerOf(name string) (l ledger) {
	s.t.Helper()
	eventually(s.t, "the ledger of "+name+" is answered", func() bool {
		resp, err := http.Get("http://" + s.admin + "/api/v1/namespaces/" + name)
		if err != nil {
			s.t.Fatal(err)
		}
		defer resp.Body.Close()
		var body struct{ Ledger ledger }
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			s.t.Fatal(err)
		}
		l = body.Ledger
		return resp.StatusCode == 200
	})
	if sum := l.Delivered + l.Evicted + l.Expired + l.Dead + l.Lost + l.Buffered; sum != l.Accepted {
		s.t.Fatalf("the ledger of %s does not add up: %+v", name, l)
	}
	return l
}

// The process is killed again and again while entries go to two branches, one of which has a
// dead sink. The working branch delivers each entry, the other keeps the newest, and
// neither has accepted one twice.
func TestBranchesOfAKilledProcessGetEachEntryOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.StartWithClock(t)
	dir := t.TempDir()
	out, config := filepath.Join(dir, "out.ndjson"), filepath.Join(dir, "spillway.yaml")
	text := fmt.Sprintf(`redis: %s
linger: 50ms
namespaces:
  default: {sink: "namespaces://good,dead"}
  good: {sink: "file://%s"}
  dead: {sink: "http://%s/in", capacity: 100}
`, redis.URL(), out, redistest.FreeAddr(t))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const rounds, partitions, each = 4, 10, 200
	for round := range rounds {
		s := serve(t, "--config", config).ready(200)
		for p := range partitions {
			if a := s.post(fmt.Sprintf("/v1/default/kart-%d", p), "application/x-ndjson", ndjson(round*each, round*each+each)); a.Accepted != each {
				t.Fatalf("got %d %s", a.status, a.body)
			}
		}
		want := int64(round * partitions * each)
		eventually(t, "some entries are delivered", func() bool { return s.ledgerOf("good").Delivered > want })
		s.kill()
		redis.Advance(20 * time.Second) // its leases end
	}
	s := serve(t, "--config", config).ready(200)
	const total = rounds * partitions * each
	eventually(t, "the parent is drained", func() bool { return s.ledgerOf("default").Buffered == 0 })
	eventually(t, "the working branch is drained", func() bool { return s.ledgerOf("good").Buffered == 0 })
	if l := s.ledgerOf("default"); l.Accepted != total || l.Delivered != total {
		t.Errorf("parent: got %+v, want %d delivered", l, total)
	}
	if l := s.ledgerOf("good"); l.Accepted != total || l.Delivered != total {
		t.Errorf("working branch: got %+v, want %d accepted and delivered", l, total)
	}
	if l := s.ledgerOf("dead"); l.Accepted != total || l.Delivered != 0 || l.Evicted != total-partitions*100 {
		t.Errorf("dead branch: got %+v, want %d accepted and the newest 100 of each partition kept", l, total)
	}
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	delivered, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		partition string
		seq       int64
	}
	seen := map[entry]string{}
	values := map[string]bool{}
	for _, l := range parseLines(t, withoutTorn(delivered, rounds)) {
		if l.Namespace != "good" {
			t.Fatalf("a line of namespace %s", l.Namespace)
		}
		e := entry{l.Partition, l.Seq}
		if before, again := seen[e]; again && before != string(l.Data) {
			t.Errorf("%v is %s and %s", e, before, l.Data)
		} else if !again && values[l.Partition+string(l.Data)] {
			t.Errorf("%s %s has two sequences", l.Partition, l.Data)
		}
		seen[e], values[l.Partition+string(l.Data)] = string(l.Data), true
	}
	if len(seen) != total {
		t.Errorf("the file has %d entries, want %d", len(seen), total)
	}
}

// withoutTorn leaves out lines that are no JSON, as readers of a file do, but for no more
// than kills of the process: each tears at most the line that it writes, which the next
// Open ends.
func withoutTorn(text []byte, kills int) []byte {
	var whole []byte
	for raw := range bytes.Lines(text) {
		if !json.Valid(raw) && kills > 0 {
			kills--
			continue
		}
		whole = append(whole, raw...)
	}
	return whole
}
