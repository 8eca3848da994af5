package ingest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestTheFormOfABodyFollowsItsContentType(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	stamp := func(payloads ...string) (entries []string) {
		for _, payload := range payloads {
			entries = append(entries, strconv.FormatInt(now, 10)+" "+payload)
		}
		return entries
	}
	for i, c := range []struct {
		contentType, body string
		want              []string
	}{
		{"application/x-ndjson", "{\"a\":1}\n\nnot json\r\n \n[2]", stamp(`{"a":1}`, "not json\r", "[2]")},
		{"Application/X-NDJSON; charset=utf-8", "1\n2\n", stamp("1", "2")},
		{"application/json", ` [ {"a": 1}, "b,]" , null,1e400] `, stamp(`{"a": 1}`, `"b,]"`, "null", "1e400")},
		{"application/json ; charset=utf-8", "[1,[2,3]]", stamp("1", "[2,3]")},
		{"application/json", ` {"batch":7}`, stamp(` {"batch":7}`)},
		{"application/json", `"text"`, stamp(`"text"`)},
		{"text/plain", "[1,2]\n[3]", stamp("[1,2]\n[3]")},
		{"", "\x00\xff", stamp("\x00\xff")},
		{"multipart/form-data; boundary=x", "bogus", stamp("bogus")},
		{"application/x-www-form-urlencoded", "a=b", stamp("a=b")},
		{
			"application/json", `{"batch":[{"data":{"k":1},"id":"i-1","ts":1763629675000},{"ts":1763629675200,"data":"x"},{"data":null,"other":1}]}`,
			[]string{`1763629675000#i-1 {"k":1}`, `1763629675100 "x"`, `1763629675100 null`},
		},
		{
			"application/json", `{"sent_at":9000,"batch":[{"data":1,"ts":4000},{"data":2,"ts":9500},{"data":3}]}`,
			[]string{"1763629670100 1", "1763629675100 2", "1763629675100 3"},
		},
	} {
		name := fmt.Sprintf("p%d", i)
		r := p.post("/v1/default/"+name, c.body, "Content-Type: "+c.contentType)
		if r.status != 200 || r.body.Accepted != len(c.want) || r.body.Rejected != 0 || *r.body.Depth != len(c.want) || *r.body.Capacity != 10_000 {
			t.Errorf("%s %q: got %d %s", c.contentType, c.body, r.status, r.raw)
		}
		if got := p.store.entries("default/" + name); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: stored %q, want %q", c.contentType, c.body, got, c.want)
		}
	}
}

func TestInvalidBodiesAreRejectedWhole(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for _, c := range []struct{ contentType, body, code string }{
		{asNDJSON, "", "empty_body"}, {asJSON, "", "empty_body"}, {"X: y", "", "empty_body"},
		{asNDJSON, "\n \r\n\t\n", "empty_batch"}, {asJSON, " [ ] ", "empty_batch"}, {asJSON, `{"batch":[]}`, "empty_batch"},
		{asJSON, " ", "bad_json"}, {asJSON, "[1", "bad_json"}, {asJSON, "{}{}", "bad_json"}, {asJSON, "\ufeff[1]", "bad_json"},
		{asJSON, "[NaN]", "bad_json"}, {asJSON, deep, "bad_json"}, {asJSON, `{"batch":` + deep + "}", "bad_json"},
		{asJSON, `{"batch":[1],"sent_at":"now"}`, "bad_time"}, {asJSON, `{"sent_at":1.5,"batch":[1]}`, "bad_time"},
	} {
		r := p.post("/v1/default/p", c.body, c.contentType)
		if r.status != 400 || r.body.Error != c.code {
			t.Errorf("%s %.30q: got %d %s, want 400 %s", c.contentType, c.body, r.status, r.raw, c.code)
		}
		if got := p.metric("refusals_total", c.code); got == 0 {
			t.Errorf("%s is not counted", c.code)
		}
	}
	if got := p.store.entries("default/p"); len(got) != 0 {
		t.Errorf("stored %q", got)
	}
}

func TestLimitsAreExact(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) { c.MaxEntries, c.MaxEntry = 3, 10 })
	fits, over := "\"12345678\"", "\"123456789\""
	for _, c := range []struct {
		contentType, body string
		status            int
		code, results     string
	}{
		{"X: y", fits, 200, "", ""},
		{"X: y", over, 413, "entry_too_large", ""},
		{asJSON, over, 413, "entry_too_large", ""},
		{asNDJSON, fits + "\n" + over, 200, "", "1:drop/too_large"},
		{asJSON, "[" + over + "," + fits + "]", 200, "", "0:drop/too_large"},
		{asJSON, `{"batch":[{"data":` + over + `},{"data":` + fits + `}]}`, 200, "", "0:drop/too_large"},
		{asNDJSON, "1\n2\n3\n\n", 200, "", ""},
		{asNDJSON, "1\n2\n3\n4", 413, "too_many_entries", ""},
		{asJSON, "[1,2,3]", 200, "", ""},
		{asJSON, "[1,2,3,4]", 413, "too_many_entries", ""},
		{asJSON, `{"batch":[1,2,3,4]}`, 413, "too_many_entries", ""},
	} {
		r := p.post("/v1/default/p", c.body, c.contentType)
		if r.status != c.status || r.body.Error != c.code || r.results() != c.results {
			t.Errorf("%s %s: got %d %s, want %d %s %s", c.contentType, c.body, r.status, r.raw, c.status, c.code, c.results)
		}
	}
}

func TestBadItemsAreDroppedAndTheRestIsStored(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	id64 := strings.Repeat("i", 64)
	r := p.post("/v1/default/p", `{"batch":[
		{"data":"first"}, 7, {"ts":1}, {"data":1,"id":"has space"}, {"data":1,"id":""}, {"data":1,"id":9},
		{"data":1,"id":"`+id64+`"}, {"data":1,"id":"`+id64+`x"}, {"data":1,"ts":"x"}, {"data":1,"ts":1.5},
		{"data":1,"ts":1000}, {"data":"last","id":"\u0069"}]}`, asJSON)
	want := "1:drop/bad_item 2:drop/bad_item 3:drop/bad_id 4:drop/bad_id 5:drop/bad_id 7:drop/bad_id 8:drop/bad_ts 9:drop/bad_ts 10:warning/unskewed"
	if r.status != 200 || r.results() != want || r.body.Accepted != 4 || r.body.Rejected != 8 {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	if got, want := p.store.entries("default/p"), []string{
		`1763629675100 "first"`, "1763629675100#" + id64 + " 1", "1763629675100 1", `1763629675100#i "last"`,
	}; !slices.Equal(got, want) {
		t.Errorf("stored %q", got)
	}
	for result, want := range map[string]float64{"accepted": 4, "bad_item": 2, "bad_id": 4, "bad_ts": 2, "stale": 0} {
		if got := p.metric("entries_total", "default", result); got != want {
			t.Errorf("entries_total of %s: got %v, want %v", result, got, want)
		}
	}
	if got := p.metric("unskewed_total", "default"); got != 1 {
		t.Errorf("unskewed_total: got %v", got)
	}
}

func TestStaleEntriesAreDropped(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for _, c := range []struct {
		body     string
		headers  []string
		accepted int
		results  string
	}{
		{`{"batch":[{"data":1,"ts":100},{"data":2,"ts":199000}],"sent_at":200000}`, []string{asJSON}, 1, "0:drop/stale"},
		// The sent_at of an envelope replaces the header.
		{`{"batch":[{"data":1,"ts":100}],"sent_at":200}`, []string{asJSON, "X-Sent-At: 999999999"}, 1, ""},
		{`{"batch":[{"data":1,"ts":100}]}`, []string{asJSON, "X-Sent-At: 180101"}, 0, "0:drop/stale"},
		{"opaque", []string{"X-Sent-At: 180100", "X-Event-Ts: 100"}, 1, ""},
		{"opaque", []string{"X-Sent-At: 180101", "X-Event-Ts: 100"}, 0, "0:drop/stale"},
		{"opaque", []string{"X-Event-Ts: 100"}, 1, "0:warning/unskewed"},
		{"opaque", []string{"X-Sent-At: 100"}, 1, ""},
		// X-Event-Ts is the time of a single opaque entry only.
		{"1\n2", []string{asNDJSON, "X-Event-Ts: 100", "X-Sent-At: 999999999"}, 2, ""},
	} {
		r := p.post("/v1/default/p", c.body, c.headers...)
		if r.status != 200 || r.body.Accepted != c.accepted || r.results() != c.results {
			t.Errorf("%s %v: got %d %s", c.body, c.headers, r.status, r.raw)
		}
		if c.accepted == 0 && r.body.Depth != nil {
			t.Errorf("a depth, although the store was not asked: %s", r.raw)
		}
	}
	if got := p.metric("entries_total", "default", "stale"); got != 3 {
		t.Errorf("counted %v stale entries, want 3", got)
	}
}

func TestMinimalAnswersAreEmptyWhenThereIsNothingToReport(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	const minimal = "Prefer: return=minimal"
	if r := p.post("/v1/small/p", "1\n2\n3\n4\n5", asNDJSON, minimal); r.status != 204 || r.raw != "" {
		t.Errorf("got %d %q", r.status, r.raw)
	}
	if r := p.post("/v1/small/p", "6", minimal); r.status != 200 || r.body.Evicted != 1 || *r.body.Depth != 5 || *r.body.Capacity != 5 {
		t.Errorf("an eviction is not reported: %d %s", r.status, r.raw)
	}
	if r := p.post("/v1/default/p", "x", minimal, "X-Event-Ts: 1"); r.status != 200 || r.results() != "0:warning/unskewed" {
		t.Errorf("a warning is not reported: %d %s", r.status, r.raw)
	}
	if r := p.post("/v1/default", `{"partition":"-","data":1}`, asNDJSON, minimal); r.status != 200 || r.body.Rejected != 1 {
		t.Errorf("a drop is not reported: %d %s", r.status, r.raw)
	}
}

func TestClientDiscardsAreCountedUnlessTheRequestIsRejected(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, nil)
	const header = "X-Client-Discards: queue_overflow=23,stale=5,invented=2"
	p.post("/v1/default/p", "", header).expect(t, 400, "empty_body")
	store.now = func() (int64, bool) { return 0, false }
	p.post("/v1/default/p", "x", header).expect(t, 503, "store_unavailable")
	store.now = func() (int64, bool) { return now, true }
	p.post("/v1/default/p", "x", header).expect(t, 200, "")
	p.post("/v1/default/p?ack=none", "x", header)
	for reason, want := range map[string]float64{"queue_overflow": 46, "stale": 10, "other": 4} {
		if got := p.metric("client_discards_total", "default", reason); got != want {
			t.Errorf("%s: got %v, want %v", reason, got, want)
		}
	}
}

func TestAStoreWithoutAClockIsUnavailable(t *testing.T) {
	t.Parallel()
	store := newFake()
	store.now = func() (int64, bool) { return 0, false }
	p := listen(t, store, nil)
	p.post("/v1/default/p", "x").expect(t, 503, "store_unavailable")
	p.post("/v1/default", `{"partition":"a","data":1}`, asNDJSON).expect(t, 503, "store_unavailable")
}
