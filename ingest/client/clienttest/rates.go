package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
)

// stub takes every event, and has a job for each claim.
func stub(b *testing.B) string {
	var jobs atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var answer []byte
		switch {
		case strings.HasSuffix(r.URL.Path, "/claim"):
			count, _ := strconv.Atoi(r.URL.Query().Get("count"))
			answer = []byte(`{"jobs":[`)
			for range max(count, 1) {
				answer = fmt.Appendf(answer, `{"queue":"welcome","id":"0ATN8Z2M3QF6Y%013d","attempt":1,"tries":25,"data":"eyJ0byI6ImFkYSJ9"},`, jobs.Add(1))
			}
			answer = append(answer[:len(answer)-1], "]}"...)
		case strings.HasSuffix(r.URL.Path, "/settle"):
			var results []map[string]any
			for i := range strings.Count(string(body), "\n") {
				results = append(results, map[string]any{"i": i, "state": "acked"})
			}
			answer, _ = json.Marshal(map[string]any{"results": results})
		default:
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write(answer)
	}))
	b.Cleanup(web.Close)
	return web.URL
}

// MeasureEvents reports the rate of n events against a service that does nothing, in this process, and then that of
// the Go client. The program is told "bench events URL N", and says events a second and its own µs of CPU an event.
func MeasureEvents(b *testing.B, n int, program string, args ...string) {
	ours := rate(b, "events", n, program, args)
	r, err := spillway.NewReporter(stub(b), spillway.ReporterConfig{Queue: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	payload, began := []byte(`{"event":"lap","kart":7,"ms":63210}`), time.Now()
	for i := range n {
		_ = r.Report("kart"+strconv.Itoa(i&63), payload)
		for i&1023 == 0 && r.Stats().Pending > 20_000 {
			time.Sleep(time.Millisecond) // a benchmark's own pace
		}
	}
	if err := r.Close(b.Context()); err != nil || r.Stats().Acked != int64(n) {
		b.Fatalf("%v: %+v", err, r.Stats())
	}
	compare(b, ours, float64(n)/time.Since(began).Seconds())
}

// MeasureJobs is MeasureEvents of a worker's jobs: "bench jobs URL N".
func MeasureJobs(b *testing.B, n int, program string, args ...string) {
	ours := rate(b, "jobs", n, program, args)
	q, err := spillway.NewQueues(stub(b), spillway.QueuesConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	ctx, stop := context.WithCancel(b.Context())
	var done atomic.Int64
	began := time.Now()
	err = q.Work(ctx, []string{"welcome"}, func(context.Context, spillway.Job) error {
		if done.Add(1) == int64(n) {
			stop()
		}
		return nil
	}, spillway.WorkerConfig{Concurrency: 256})
	if err != nil {
		b.Fatal(err)
	}
	compare(b, ours, float64(n)/time.Since(began).Seconds())
}

// rate is what the program measures.
func rate(b *testing.B, what string, n int, program string, args []string) (perSecond float64) {
	b.Helper()
	said, err := exec.Command(program, append(args, "bench", what, stub(b), strconv.Itoa(n))...).CombinedOutput()
	var cpu float64
	if _, scan := fmt.Sscan(string(said), &perSecond, &cpu); err != nil || scan != nil {
		b.Fatalf("%v: %s", err, said)
	}
	b.ReportMetric(cpu, "cpu-µs")
	return perSecond
}

func compare(b *testing.B, ours, goes float64) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours, "ours/s")
	b.ReportMetric(goes, "go/s")
	b.ReportMetric(ours/goes, "ratio")
}
