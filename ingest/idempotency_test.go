package ingest

import (
	"context"
	"fmt"
	"testing"

	"github.com/spillway-io/spillway/partition"
)

func TestARepeatWithAnIdempotencyKeyStoresNothing(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	const key = "Idempotency-Key: order 81"
	first := p.post("/v1/default/p", "1\n2", asNDJSON, key)
	p.post("/v1/default/p", "3")
	again := p.post("/v1/default/p", "1\n2", asNDJSON, key)
	if first.status != 200 || again.status != 200 || again.raw != first.raw {
		t.Errorf("got %s, then %s", first.raw, again.raw)
	}
	if got := p.store.entries("default/p"); len(got) != 3 {
		t.Errorf("stored %q", got)
	}
	if accepted, repeated := p.metric("entries_total", "default", "accepted"), p.metric("entries_total", "default", "repeated"); accepted != 3 || repeated != 2 {
		t.Errorf("counted %v accepted, %v repeated", accepted, repeated)
	}
}

func TestARepeatGetsTheStoredResultHoweverOldItsEntriesAre(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, nil)
	const key = "Idempotency-Key: k"
	body := func(sentAt int) string {
		return fmt.Sprintf(`{"batch":[{"data":1,"ts":1000},{"data":2,"ts":90000}],"sent_at":%d}`, sentAt)
	}
	keep := store.produce
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		keep(ctx, groups)
		failWith(partition.ErrUnknown)(ctx, groups)
	}
	if r := p.post("/v1/default/p", body(100_000), asJSON, key); r.body.Outcome != "unknown" {
		t.Fatalf("got %d %s", r.status, r.raw)
	}
	store.produce = keep
	for _, sentAt := range []int{200_000, 9_000_000} { // one is stale, then both
		r := p.post("/v1/default/p", body(sentAt), asJSON, key)
		if want := `{"accepted":2,"evicted":0,"rejected":0,"depth":2,"capacity":10000,"results":[]}`; r.status != 200 || r.raw != want {
			t.Errorf("sent at %d: got %d %s, want %s", sentAt, r.status, r.raw, want)
		}
	}
	if stored := p.store.entries("default/p"); len(stored) != 2 || p.metric("entries_total", "default", "repeated") != 4 {
		t.Errorf("stored %q", stored)
	}
	// Entries that were not stored before keep their true time, so that a claim expires
	// them.
	p.post("/v1/default/q", body(9_000_000), asJSON, "Idempotency-Key: l").expect(t, 200, "")
	want := fmt.Sprintf("[%d 1 %d 2]", now-8_999_000, now-8_910_000)
	if got := fmt.Sprint(p.store.entries("default/q")); got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}

func TestAnIdempotencyKeyAppliesToEachPartitionOfAMixedRequest(t *testing.T) {
	t.Parallel()
	store := newFake()
	errs := map[string]error{"b": partition.ErrUnavailable}
	store.failPartitions(errs)
	p := listen(t, store, nil)
	body := "{\"partition\":\"a\",\"data\":1}\n{\"partition\":\"b\",\"data\":2}"
	const key = "Idempotency-Key: k"
	if r := p.post("/v1/default", body, asNDJSON, key); r.status != 200 || r.results() != "1:retry/store_unavailable" {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	delete(errs, "b")
	if r := p.post("/v1/default", body, asNDJSON, key); r.status != 200 || r.body.Accepted != 2 {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	if a, b := p.store.entries("default/a"), p.store.entries("default/b"); len(a) != 1 || len(b) != 1 {
		t.Errorf("stored %q and %q", a, b)
	}
}
