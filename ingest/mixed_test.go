package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/partition"
)

func TestMixedItemsGoToTheirPartitionsInOrder(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]func([]string) (string, string){
		"ndjson":   func(items []string) (string, string) { return strings.Join(items, "\n\n"), asNDJSON },
		"array":    func(items []string) (string, string) { return "[" + strings.Join(items, ",") + "]", asJSON },
		"envelope": func(items []string) (string, string) { return `{"batch":[` + strings.Join(items, ",") + `]}`, asJSON },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := listen(t, newFake(), nil)
			body, contentType := form([]string{
				`{"partition":"a","data":1}`, `{"partition":"b","data":2,"id":"i"}`, `{"data":3,"partition":"\u0061"}`,
				`{"partition":"c","data":4,"ts":1763629675000}`, `{"partition":"b","data":5}`,
			})
			r := p.post("/v1/default", body, contentType)
			if r.raw != `{"accepted":5,"evicted":0,"rejected":0,"results":[]}` {
				t.Errorf("got %d %s", r.status, r.raw)
			}
			for key, want := range map[string][]string{
				"default/a": {"1763629675100 1", "1763629675100 3"},
				"default/b": {"1763629675100#i 2", "1763629675100 5"},
				"default/c": {"1763629675000 4"},
			} {
				if got := p.store.entries(key); !slices.Equal(got, want) {
					t.Errorf("%s: stored %q, want %q", key, got, want)
				}
			}
		})
	}
}

func TestBadMixedItemsAreDroppedOneByOne(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) { c.MaxEntry = 8 })
	r := p.post("/v1/default", strings.Join([]string{
		`7`, `{"partition":"a"}`, `{"data":1}`, `{"partition":"a}{b","data":1}`, `{"partition":9,"data":1}`,
		`{"partition":"a","data":1,"id":"a b"}`, `{"partition":"a","data":1,"ts":"x"}`, `{"partition":"a","data":"12345678"}`,
		`{"partition":"a","data":1,"ts":5}`, `{"partition":"only-bad","data":1,"ts":""}`,
	}, "\n"), asNDJSON, "X-Sent-At: 200000")
	want := "0:drop/bad_item 1:drop/bad_item 2:drop/bad_partition 3:drop/bad_partition 4:drop/bad_partition " +
		"5:drop/bad_id 6:drop/bad_ts 7:drop/too_large 8:drop/stale 9:drop/bad_ts"
	if r.status != 200 || r.results() != want || r.body.Accepted != 0 || r.body.Rejected != 10 {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	if p.store.calls != 0 {
		t.Error("the store was called without entries")
	}
}

func TestInvalidMixedBodiesAreRejectedWhole(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) { c.MaxEntries = 2 })
	item := `{"partition":"a","data":1}`
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for _, c := range []struct {
		contentType, body string
		status            int
		code, says        string
	}{
		{asNDJSON, item + "\n\n{\"partition\":\n" + item, 400, "bad_ndjson", "line 3 "},
		{asNDJSON, item + "\n" + `{"partition":"a","data":` + deep + "}", 400, "bad_ndjson", "line 2 "},
		{asNDJSON, item + item, 400, "bad_ndjson", "line 1 "},
		{asNDJSON, "\n", 400, "empty_batch", ""},
		{asNDJSON, "", 400, "empty_body", ""},
		{asJSON, item, 400, "bad_json", "array"},
		{asJSON, "7", 400, "bad_json", "array"},
		{asJSON, "[" + item, 400, "bad_json", ""},
		{asJSON, "[]", 400, "empty_batch", ""},
		{asJSON, `{"sent_at":true,"batch":[` + item + `]}`, 400, "bad_time", "sent_at"},
		{asNDJSON, item + "\n" + item + "\n" + item, 413, "too_many_entries", "2"},
		{asJSON, "[" + item + "," + item + "," + item + "]", 413, "too_many_entries", "2"},
		{"Content-Type: text/plain", item, 415, "unsupported_type", ""},
		{"Content-Type: application/jsonx", item, 415, "unsupported_type", ""},
		{"Content-Type: ", item, 415, "unsupported_type", ""},
	} {
		r := p.post("/v1/default", c.body, c.contentType)
		if r.status != c.status || r.body.Error != c.code || !strings.Contains(r.body.Message, c.says) {
			t.Errorf("%s %.40q: got %d %s, want %d %s", c.contentType, c.body, r.status, r.raw, c.status, c.code)
		}
	}
	if p.store.calls != 0 {
		t.Error("something was stored")
	}
}

func TestWhenSomePartitionsAreStoredTheOthersAreToBeRetried(t *testing.T) {
	t.Parallel()
	store := newFake()
	store.failPartitions(map[string]error{
		"down": partition.ErrUnavailable, "lost": fmt.Errorf("read: %w", partition.ErrUnknown), "full": partition.ErrFull,
		"many": partition.ErrTooManyPartitions, "broken": partition.ErrBroken, "odd": errors.New("?"),
	})
	p := listen(t, store, nil)
	var lines []string
	for _, name := range []string{"down", "ok", "lost", "-", "full", "ok", "many", "down", "broken", "odd"} {
		lines = append(lines, `{"partition":"`+name+`","data":1,"ts":5}`)
	}
	r := p.post("/v1/default", strings.Join(lines, "\n"), asNDJSON)
	want := "0:retry/store_unavailable 1:warning/unskewed 2:retry/unknown 3:drop/bad_partition 4:retry/store_full " +
		"5:warning/unskewed 6:retry/too_many_partitions 7:retry/store_unavailable 8:retry/store_unavailable 9:retry/unknown"
	if r.status != 200 || r.results() != want || r.body.Accepted != 2 || r.body.Rejected != 8 {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}

func TestWhenNoPartitionIsStoredTheRequestFails(t *testing.T) {
	t.Parallel()
	body := "{\"partition\":\"a\",\"data\":1}\n{\"partition\":\"b\",\"data\":1}\n7"
	for _, c := range []struct {
		a, b          error
		status        int
		code, outcome string
	}{
		{partition.ErrUnavailable, partition.ErrUnavailable, 503, "store_unavailable", ""},
		{partition.ErrUnavailable, partition.ErrUnknown, 503, "store_unavailable", "unknown"},
		{partition.ErrTooManyPartitions, partition.ErrUnknown, 503, "store_unavailable", "unknown"},
		{partition.ErrFull, partition.ErrFull, 503, "store_full", ""},
		{partition.ErrFull, partition.ErrUnavailable, 503, "store_unavailable", ""},
		{partition.ErrTooManyPartitions, partition.ErrTooManyPartitions, 429, "too_many_partitions", ""},
		{partition.ErrTooManyPartitions, partition.ErrFull, 503, "store_unavailable", ""},
		{partition.ErrBroken, partition.ErrBroken, 503, "store_unavailable", ""},
	} {
		store := newFake()
		store.failPartitions(map[string]error{"a": c.a, "b": c.b})
		r := listen(t, store, nil).post("/v1/default", body, asNDJSON)
		if r.status != c.status || r.body.Error != c.code || r.body.Outcome != c.outcome || r.header.Get("Retry-After") == "" {
			t.Errorf("%v and %v: got %d %s", c.a, c.b, r.status, r.raw)
		}
	}
}

func TestAMixedRequestSpreadsOverManyPartitionsAndLanes(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) { c.Lanes = 8 })
	for round := range 3 {
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, `{"partition":"p%d","data":%d}`+"\n", i%400, i)
		}
		if r := p.post("/v1/default", b.String(), asNDJSON); r.status != 200 || r.body.Accepted != 1000 {
			t.Fatalf("round %d: got %d %s", round, r.status, r.raw)
		}
	}
	if got := p.store.entries("default/p7"); len(got) != 9 || !strings.HasSuffix(got[4], " 407") {
		t.Errorf("stored %q", got)
	}
}
