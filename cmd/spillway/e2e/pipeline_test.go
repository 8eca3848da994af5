package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

func ndjson(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"n\":%d}\n", i)
	}
	return b.String()
}

// Without a drain, the janitor of the ingest role counts stale entries as expired.
func TestEntriesThatNobodyDrainsExpire(t *testing.T) {
	t.Parallel()
	redis := redistest.StartWithClock(t)
	in := serve(t, "--redis", redis.URL(), "--role", "ingest").ready(200)
	if a := in.post("/v1/default/kart", "application/x-ndjson", ndjson(0, 300)); a.Accepted != 300 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	redis.Advance(time.Hour)
	eventually(t, "all are counted expired", func() bool { return in.ledger().Expired == 300 })
}

func TestRangeOfADrainerKilledBeforeCommitIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	redis := redistest.StartWithClock(t)
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
			// The sink has the batch, but the drainer never gets the answer.
			victim.kill()
			victim = nil
		}
	}))
	defer sink.Close()

	in := serve(t, "--redis", redis.URL(), "--role", "ingest").ready(200)
	mu.Lock()
	victim = serve(t, "--redis", redis.URL(), "--role", "drain", "--sink", sink.URL)
	mu.Unlock()
	victim.ready(200)
	if a := in.post("/v1/default/kart", "application/x-ndjson", ndjson(0, 128)); a.Accepted != 128 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	eventually(t, "the drainer is dead", func() bool { mu.Lock(); defer mu.Unlock(); return len(ids) == 1 && victim == nil })
	if l := in.ledger(); l.Buffered != 128 || l.Delivered != 0 {
		t.Errorf("after the crash: %+v, want all 128 still buffered", l)
	}

	redis.Advance(time.Minute) // the lease ends
	s := serve(t, "--redis", redis.URL(), "--role", "drain", "--sink", sink.URL).ready(200)
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

func TestSIGTERMUnderLoadAnswersEveryAcceptedRequest(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, "--redis", redis.URL(), "--role", "ingest", "--shutdown-delay", "50ms").ready(200)
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
		t.Errorf("the store accepted %d, clients got %d acknowledged", l.Accepted, acked)
	}
}
