package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/lua/redistest"
)

// hook is a webhook that says what becomes of each job.
type hook struct {
	t        testing.TB
	mu       sync.Mutex
	attempts map[string]int // by the job's n
	headers  map[string]http.Header
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var results []string
	lines := bufio.NewScanner(r.Body)
	for i := 0; lines.Scan(); i++ {
		var line struct {
			ID      string
			Attempt int
			Data    struct{ N int }
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			h.t.Errorf("%s: %v", lines.Bytes(), err)
		}
		n := fmt.Sprint(r.Header.Get("X-Spillway-Queue"), " ", line.Data.N)
		h.attempts[n]++
		h.headers[n] = r.Header
		switch {
		case line.Data.N%10 == 3:
			results = append(results, fmt.Sprintf(`{"i":%d,"result":"drop","reason":"no_such_user"}`, i))
		case line.Data.N%10 == 5 && line.Attempt == 1:
			results = append(results, fmt.Sprintf(`{"i":%d,"result":"retry"}`, i))
		}
	}
	fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
}

// Jobs of queues that appear while serve runs reach a webhook, one by one or in batches. Its
// answer decides about each; a stop and a start lose nothing.
func TestQueuesArePushedToAWebhook(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	h := &hook{t: t, attempts: map[string]int{}, headers: map[string]http.Header{}}
	receiver := httptest.NewServer(h)
	defer receiver.Close()
	config := `redis: ` + redis.URL() + `
pools:
  default: {volatile: true}
sinks:
  crm: "` + receiver.URL + `/in"
namespaces:
  mail:
    kind: queue
    push:
      - {match: "bulk-*", sink: crm, batch: 10, backoff: 1ms..10ms}
      - {match: "mail-*", sink: crm, backoff: 1ms..10ms}
`
	s := serveFile(t, config)
	s.ready(200)
	jobs, err := sdk.NewJobs("http://"+s.data, sdk.JobsConfig{Namespace: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	var payloads [][]byte
	for n := range 100 {
		payloads = append(payloads, fmt.Appendf(nil, `{"n":%d}`, n))
	}
	for _, queue := range []string{"bulk-1", "mail-eu", "mail-us"} {
		if _, err := jobs.PublishMany(t.Context(), queue, payloads, sdk.PublishOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := jobs.Publish(t.Context(), "mail-sharded", []byte(`{"n":1}`), sdk.PublishOptions{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Publish(t.Context(), "other", []byte(`{"n":1}`), sdk.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	ended := func(queue string, dead int64) {
		t.Helper()
		eventually(t, "the jobs of "+queue+" end", func() bool {
			n, err := jobs.Counts(t.Context(), queue)
			return err == nil && n.Ready+n.Pending == 0 && n.Dead == dead
		})
	}
	for _, queue := range []string{"bulk-1", "mail-eu", "mail-us"} {
		ended(queue, 10)
	}
	ended("mail-sharded", 0)
	if n, err := jobs.Counts(t.Context(), "other"); err != nil || n.Ready != 1 {
		t.Errorf("a queue that no rule matches has %+v, %v", n, err)
	}
	h.mu.Lock()
	for n, header := range map[string]http.Header{"mail-eu 7": h.headers["mail-eu 7"], "mail-sharded 1": h.headers["mail-sharded 1"]} {
		if header.Get("X-Spillway-Job-Id") == "" || header.Get("X-Spillway-Attempt") != "1" || (header.Get("X-Spillway-Shard-Total") == "2") != (n == "mail-sharded 1") {
			t.Errorf("%s: %v", n, header)
		}
	}
	for n, attempts := range h.attempts {
		if want := 1 + map[bool]int{true: 1}[strings.HasSuffix(n, "5")]; attempts != want && n != "mail-sharded 1" {
			t.Errorf("%s: %d deliveries, want %d", n, attempts, want)
		}
	}
	h.mu.Unlock()
	if got := s.metric(`spillway_push_jobs_total{namespace="mail",outcome="acked",pool="default",sink="crm"}`); got != 272 {
		t.Errorf("%d acked, want 3 × 90 and 2", got)
	}
	if code := s.terminate(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
