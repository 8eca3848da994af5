package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

// matches are the inputs of the replay: a made one, and a real match where a
// checkout has it beside it.
func matches(t *testing.T) map[string][]byte {
	var made bytes.Buffer
	for i := range 3000 {
		fmt.Fprintf(&made, `{"partition":"arena.%d.slot-%d","offset_ms":%d,"data":{"type":"hit","n":%d,"pad":%q}}`+"\n",
			i%3, i%11, i*40, i, strings.Repeat("x", i%300))
	}
	inputs := map[string][]byte{"made": made.Bytes()}
	if real, err := os.ReadFile("../../../../shared/data/dota2-match.ndjson"); err == nil {
		inputs["real"] = real
	}
	return inputs
}

func TestReplayedMatchIsDeliveredCompletelyAndInOrder(t *testing.T) {
	t.Parallel()
	for name, input := range matches(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			out := filepath.Join(t.TempDir(), "out.ndjson")
			s := serve(t, "--redis", redis.URL(), "--sink", "file://"+out, "--linger", "100ms").ready(200)

			want := map[string][]string{}
			total := 0
			for raw := range bytes.Lines(input) {
				var in struct {
					Partition string
					Data      json.RawMessage
				}
				if err := json.Unmarshal(raw, &in); err != nil {
					t.Fatal(err)
				}
				want[in.Partition] = append(want[in.Partition], string(in.Data))
				total++
			}
			report := exec.Command(binary, "report", "-", "--server", "http://"+s.data, "--replay-speed", "1000", "-o", "json")
			report.Stdin = bytes.NewReader(input)
			summary, err := report.Output()
			if err != nil {
				t.Fatalf("report: %v %s", err, summary)
			}
			eventually(t, "everything is drained", func() bool { return s.ledger().Buffered == 0 })
			if l := s.ledger(); l.Accepted != int64(total) || l.Delivered != int64(total) {
				t.Errorf("got %+v, want %d accepted and delivered", l, total)
			}
			if code := s.terminate(); code != 0 {
				t.Errorf("exit code %d after SIGTERM", code)
			}

			text, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			got, last, batches := map[string][]string{}, map[string]int64{}, map[string]int{}
			for _, l := range parseLines(t, text) {
				if l.Seq <= last[l.Partition] {
					t.Fatalf("%s: sequence %d after %d", l.Partition, l.Seq, last[l.Partition])
				}
				last[l.Partition] = l.Seq
				got[l.Partition] = append(got[l.Partition], string(l.Data))
				batches[l.Batch]++
			}
			for partition, list := range want {
				if strings.Join(got[partition], "\n") != strings.Join(list, "\n") {
					t.Errorf("%s: got %d entries, want the %d that were sent, in order", partition, len(got[partition]), len(list))
				}
			}
			for id, n := range batches {
				if n > 128 {
					t.Errorf("batch %s has %d entries", id, n)
				}
			}
		})
	}
}

func ndjson(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"n\":%d}\n", i)
	}
	return b.String()
}

func TestFullPartitionEvictsTheOldestAndDeliversTheNewestInOrder(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	in := serve(t, "--redis", redis.URL(), "--role", "ingest", "--capacity", "100").ready(200)
	evicted := 0
	for i := range 5 {
		a := in.post("/v1/default/kart", "application/x-ndjson", ndjson(i*50, i*50+50))
		if a.status != 200 || a.Accepted != 50 {
			t.Fatalf("got %d %s", a.status, a.body)
		}
		evicted += a.Evicted
	}
	if l := in.ledger(); evicted != 150 || l.Evicted != 150 || l.Buffered != 100 {
		t.Errorf("answers say %d evicted, ledger %+v, want 150 and 100 buffered", evicted, l)
	}

	out := filepath.Join(t.TempDir(), "out.ndjson")
	s := serve(t, "--redis", redis.URL(), "--role", "drain", "--capacity", "100", "--sink", "file://"+out).ready(200)
	eventually(t, "everything is drained", func() bool { return s.ledger().Buffered == 0 })
	if l := s.ledger(); l.Delivered != 100 || l.Evicted != 150 {
		t.Errorf("got %+v, want 100 delivered, 150 evicted", l)
	}
	s.terminate()
	text, _ := os.ReadFile(out)
	lines := parseLines(t, text)
	if len(lines) != 100 {
		t.Fatalf("got %d lines, want 100", len(lines))
	}
	for i, l := range lines {
		if want := fmt.Sprintf(`{"n":%d}`, 150+i); string(l.Data) != want {
			t.Fatalf("line %d is %s, want %s", i, l.Data, want)
		}
	}
}

func TestExpiredEntriesAreNotDelivered(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	in := serve(t, "--redis", redis.URL(), "--role", "ingest", "--max-age", "2s").ready(200)
	if a := in.post("/v1/default/kart", "application/x-ndjson", ndjson(0, 300)); a.Accepted != 300 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	// Nobody drains; the janitor of the ingest role counts them in time.
	eventually(t, "all are counted expired", func() bool { return in.ledger().Expired == 300 })

	out := filepath.Join(t.TempDir(), "out.ndjson")
	s := serve(t, "--redis", redis.URL(), "--role", "drain", "--max-age", "2s", "--sink", "file://"+out).ready(200)
	if l := s.ledger(); l.Delivered != 0 || l.Expired != 300 || l.Buffered != 0 {
		t.Errorf("got %+v, want 300 expired, nothing delivered or left", l)
	}
	s.terminate()
	if text, err := os.ReadFile(out); err == nil && len(text) > 0 {
		t.Errorf("stale entries reached the sink: %.200s", text)
	}
}

func TestRangeOfADrainerKilledBeforeCommitIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var (
		mu     sync.Mutex
		bodies = map[string][]string{} // by batch id
		ids    []string
		victim *server
	)
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("Idempotency-Key")
		ids = append(ids, id)
		bodies[id] = append(bodies[id], string(body))
		if victim != nil {
			// The sink has the batch; its answer finds nobody.
			victim.kill()
			victim = nil
		}
	}))
	defer sink.Close()

	in := serve(t, "--redis", redis.URL(), "--role", "ingest").ready(200)
	mu.Lock()
	victim = serve(t, "--redis", redis.URL(), "--role", "drain", "--sink", sink.URL, "--lease", "3s", "--sink-timeout", "1s")
	mu.Unlock()
	victim.ready(200)
	if a := in.post("/v1/default/kart", "application/x-ndjson", ndjson(0, 128)); a.Accepted != 128 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	eventually(t, "the drainer is dead", func() bool { mu.Lock(); defer mu.Unlock(); return len(ids) == 1 && victim == nil })
	if l := in.ledger(); l.Buffered != 128 || l.Delivered != 0 {
		t.Errorf("after the crash: %+v, want all 128 still buffered", l)
	}

	s := serve(t, "--redis", redis.URL(), "--role", "drain", "--sink", sink.URL, "--lease", "3s", "--sink-timeout", "1s").ready(200)
	eventually(t, "the range is committed", func() bool { return s.ledger().Buffered == 0 })
	if l := s.ledger(); l.Delivered != 128 || l.Accepted != 128 {
		t.Errorf("got %+v, want 128 delivered once", l)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ids) != 2 || ids[0] != ids[1] {
		t.Fatalf("batches %v, want the same one twice", ids)
	}
	first, second := parseLines(t, []byte(bodies[ids[0]][0])), parseLines(t, []byte(bodies[ids[0]][1]))
	if len(first) != 128 || len(second) != 128 {
		t.Fatalf("%d and %d entries, want 128 twice", len(first), len(second))
	}
	for i := range first {
		if first[i].Seq != second[i].Seq || string(first[i].Data) != string(second[i].Data) {
			t.Fatalf("entry %d: %+v, then %+v", i, first[i], second[i])
		}
	}
	if first[0].Attempt != 1 || second[0].Attempt != 2 {
		t.Errorf("attempts %d and %d, want 1 and 2", first[0].Attempt, second[0].Attempt)
	}
}

func TestStoreOutageMakesTheServiceNotReady(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	redis.Kill()
	out := filepath.Join(t.TempDir(), "out.ndjson")
	s := serve(t, "--redis", redis.URL(), "--sink", "file://"+out, "--linger", "10ms").ready(503)
	refused := func() {
		t.Helper()
		a := s.post("/v1/default/kart", "application/json", `{"n":1}`)
		if a.status != 503 || a.retryAfter == "" || a.Error != "store_unavailable" {
			t.Errorf("store down: got %d, Retry-After %q, %s", a.status, a.retryAfter, a.body)
		}
	}
	refused()
	redis.Launch()
	s.ready(200)
	if a := s.post("/v1/default/kart", "application/json", `{"n":2}`); a.status != 200 || a.Accepted != 1 {
		t.Errorf("store up: got %d %s", a.status, a.body)
	}
	eventually(t, "it is delivered", func() bool { return s.ledger().Delivered == 1 })

	redis.Kill()
	s.ready(503)
	refused()
	redis.Launch()
	s.ready(200)
	if a := s.post("/v1/default/kart", "application/json", `{"n":3}`); a.status != 200 {
		t.Errorf("store up again: got %d %s", a.status, a.body)
	}
	eventually(t, "it is delivered", func() bool { return s.ledger().Delivered == 2 })
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestSIGTERMUnderLoadAnswersEveryAcceptedRequest(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, "--redis", redis.URL(), "--role", "ingest").ready(200)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		acked int64
		began = make(chan struct{}, 8)
	)
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				resp, err := http.Post(fmt.Sprintf("http://%s/v1/default/p%d", s.data, i), "application/json", strings.NewReader(`{"n":1}`))
				if err != nil {
					return // the port is closed
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode == 200 {
					mu.Lock()
					acked++
					mu.Unlock()
				}
				if n == 20 {
					began <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		<-began
	}
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	wg.Wait()
	other := serve(t, "--redis", redis.URL(), "--role", "ingest").ready(200)
	if l := other.ledger(); l.Accepted != acked {
		t.Errorf("the store accepted %d, clients were told of %d", l.Accepted, acked)
	}
}
