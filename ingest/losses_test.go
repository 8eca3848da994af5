package ingest

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

func TestRequestsWithAckNoneAre202AndTheirLossesAreCounted(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, nil)
	if r := p.post("/v1/default/p?ack=none", "1\n2", asNDJSON); r.status != 202 || r.raw != "" {
		t.Errorf("got %d %q", r.status, r.raw)
	}
	p.post("/v1/default/p?ack=none", "[1", asJSON).expect(t, 400, "bad_json")
	// A lane keeps the order of a partition, so this entry is stored last.
	p.post("/v1/default/p", "3")
	if got := p.store.entries("default/p"); len(got) != 3 || !strings.HasSuffix(got[2], " 3") {
		t.Errorf("stored %q", got)
	}
	for err, reason := range map[error]string{
		partition.ErrFull: "store_full", partition.ErrUnknown: "unknown",
		partition.ErrUnavailable: "store_unavailable", partition.ErrTooManyPartitions: "too_many_partitions",
	} {
		failed := newFake()
		failed.produce = failWith(err)
		p := listen(t, failed, nil)
		for range 2 {
			if r := p.post("/v1/default?ack=none", `{"partition":"a","data":1}`+"\n"+`{"partition":"b","data":1}`+"\n7", asNDJSON); r.status != 202 {
				t.Errorf("got %d %s", r.status, r.raw)
			}
		}
		// Stop flushes the lanes, so afterwards everything is counted.
		if err := p.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lost, bad := p.metric("unacked_losses_total", "default", reason), p.metric("unacked_losses_total", "default", "bad_item"); lost != 4 || bad != 2 {
			t.Errorf("%s: counted %v lost and %v dropped, want 4 and 2", reason, lost, bad)
		}
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	p.post("/v1/default/p", "x")
	problems, err := testutil.GatherAndLint(p.reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestTwoServersOnOneRegistryAreAnErrorNotAPanic(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	if _, err := New(DefaultConfig(), newFake(), reg, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	_, err := New(DefaultConfig(), newFake(), reg, zap.NewNop())
	var already prometheus.AlreadyRegisteredError
	if !errors.As(err, &already) {
		t.Errorf("got %v", err)
	}
}

func TestOneRequestInEightHasItsLatencyObserved(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for range 80 {
		p.post("/v1/default/p", "x").expect(t, 200, "")
	}
	p.client.CloseIdleConnections()
	for range 80 {
		p.post("/v1/default/p", "x", "Connection: close").expect(t, 200, "")
	}
	if got := p.metric("request_seconds"); got < 10 || got > 40 {
		t.Errorf("%v of 160 requests were observed", got)
	}
}
