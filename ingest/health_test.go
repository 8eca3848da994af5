package ingest

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestLivezAndReadyz(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	var down atomic.Bool
	for _, path := range []string{"/livez", "/readyz"} {
		p.do("GET", path, "").expect(t, 200, "")
		p.do("HEAD", path, "").expect(t, 200, "")
	}
	p.SetReady(func() error {
		if down.Load() {
			return errors.New("the store does not answer")
		}
		return nil
	})
	p.do("GET", "/readyz", "").expect(t, 200, "")
	down.Store(true)
	r := p.do("GET", "/readyz", "")
	if r.expect(t, 503, "not_ready"); r.header.Get("Retry-After") == "" || r.body.Message != "not ready: the store does not answer" {
		t.Errorf("got %v %s", r.header, r.raw)
	}
	p.do("GET", "/livez", "").expect(t, 200, "")
	p.post("/v1/default/p", "x").expect(t, 200, "")
}

func TestHealthRoutesNeedNoToken(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, withTokens(store))
	for _, path := range []string{"/livez", "/readyz"} {
		p.do("GET", path, "").expect(t, 200, "")
	}
}
