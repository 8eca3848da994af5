package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/lua/redistest"
)

// flaky loses the answer of every third request that the server has answered.
type flaky struct{ calls, lost atomic.Int64 }

func (f *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && f.calls.Add(1)%3 == 0 {
		f.lost.Add(1)
		_, _ = io.Copy(io.Discard, resp.Body)
		return nil, errors.Join(errors.New("the answer is lost"), resp.Body.Close())
	}
	return resp, err
}

func TestTheGoClientCountsAsTheServerDoesThoughAnswersAreLost(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out.ndjson")
	redis := redistest.Start(t)
	s := serve(t, "--redis", redis.URL(), "--sink", "file://"+out, "--linger", "10ms").ready(200)
	network := &flaky{}
	c, err := sdk.NewReporter("http://"+s.data, sdk.ReporterConfig{
		Transport: network, Linger: 10 * time.Millisecond, Batch: 64, BackoffBase: time.Millisecond, BackoffMax: 20 * time.Millisecond, Attempts: 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	const entries, partitions = 3000, 17
	for i := range entries {
		name := fmt.Sprint("p", i%partitions)
		if err := c.ReportEvent(sdk.Event{Partition: name, Payload: fmt.Appendf(nil, `{"n":%d}`, i), ID: fmt.Sprint("id-", i)}); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 { // bytes that are no JSON travel alone
			if err := c.Report(name, []byte("plain text")); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	const all = entries + entries/100
	if n := c.Stats(); n.Acked != all || n.Reported != all {
		t.Errorf("the client counts %+v, want %d acked", n, all)
	}
	if network.lost.Load() == 0 {
		t.Error("no answer was lost: this proves nothing")
	}
	eventually(t, "all are delivered", func() bool { return s.ledger().Buffered == 0 })
	if l := s.ledger(); l.Accepted != all || l.Delivered != all {
		t.Errorf("the ledger is %+v, want %d delivered", l, all)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 1, entries / 2, entries - 1} {
		if n := strings.Count(string(text), fmt.Sprintf(`"id":"id-%d",`, i)); n != 1 {
			t.Errorf("entry %d is in the sink's file %d times", i, n)
		}
	}
	if n := strings.Count(string(text), `"text":"plain text"`); n != entries/100 {
		t.Errorf("%d plain texts in the sink's file", n)
	}
}
