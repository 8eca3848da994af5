package ingest

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
)

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
