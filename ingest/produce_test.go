package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/ingest/transform"
	"github.com/spillway-io/spillway/partition"
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
		if got := p.metric("rejections_total", c.code); got == 0 {
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
	p.post("/beacon/default/p", "x", header)
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

func TestEventTimeFollowsTheTimeRules(t *testing.T) {
	t.Parallel()
	const maxAge = 3 * time.Minute
	const age = int64(180_000)
	for name, c := range map[string]struct {
		s    eventTimes
		at   int64
		want timeCheck
	}{
		"no ts":                             {eventTimes{}, now, timely},
		"no ts, sent_at says nothing":       {eventTimes{sent: 5, hasSent: true}, now, timely},
		"plausible":                         {eventTimes{ts: now - 1000, hasTS: true}, now - 1000, timely},
		"plausible up to max_age":           {eventTimes{ts: now - age, hasTS: true}, now - age, timely},
		"older than max_age":                {eventTimes{ts: now - age - 1, hasTS: true}, now, unskewed},
		"a little ahead":                    {eventTimes{ts: now + 5000, hasTS: true}, now, timely},
		"further ahead":                     {eventTimes{ts: now + 5001, hasTS: true}, now, unskewed},
		"year 1970":                         {eventTimes{ts: 0, hasTS: true}, now, unskewed},
		"skew cancels":                      {eventTimes{sent: 10_000, ts: 4000, hasSent: true, hasTS: true}, now - 6000, timely},
		"skew cancels in the future":        {eventTimes{sent: now * 2, ts: now*2 - 7, hasSent: true, hasTS: true}, now - 7, timely},
		"ts after sent_at clamps":           {eventTimes{sent: 1000, ts: 9000, hasSent: true, hasTS: true}, now, timely},
		"exactly max_age before sent_at":    {eventTimes{sent: age, ts: 0, hasSent: true, hasTS: true}, now - age, timely},
		"longer than max_age before":        {eventTimes{sent: age + 1, ts: 0, hasSent: true, hasTS: true}, now - age - 1, stale},
		"wrong device clock but sent_at ok": {eventTimes{sent: 2, ts: 1, hasSent: true, hasTS: true}, now - 1, timely},
	} {
		c.s.received = now
		if at, check := c.s.eventTime(maxAge); at != c.at || check != c.want {
			t.Errorf("%s: got %d, %v; want %d, %v", name, at-now, check, c.at-now, c.want)
		}
	}
}

func TestEventTimeIsNeverLaterThanReceivedNorOlderThanMaxAgeUnlessStale(t *testing.T) {
	t.Parallel()
	ms := rapid.Int64Range(0, 9_999_999_999_999)
	rapid.Check(t, func(t *rapid.T) {
		s := eventTimes{
			received: now, sent: ms.Draw(t, "sent"), ts: ms.Draw(t, "ts"),
			hasSent: rapid.Bool().Draw(t, "hasSent"), hasTS: rapid.Bool().Draw(t, "hasTS"),
		}
		maxAge := time.Duration(rapid.Int64Range(1, 43_200_000).Draw(t, "maxAge")) * time.Millisecond
		at, check := s.eventTime(maxAge)
		if at > now || (at < now-maxAge.Milliseconds()) != (check == stale) {
			t.Fatalf("%+v: got %d, %v", s, at-now, check)
		}
		if check == stale && !s.hasSent {
			t.Fatalf("%+v is stale without a sent_at", s)
		}
	})
}

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

func TestATransformChangesEntriesOfEveryRouteBeforeTheyAreStored(t *testing.T) {
	t.Parallel()
	steps, err := transform.New("default", []transform.Step{
		{DropIf: &transform.Condition{Path: "event", Equals: "ping"}},
		{Remove: []string{"mail"}},
		{PartitionPaths: []string{"game"}},
		{Keep: []string{"event", "game", "properties"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := listen(t, newFake(), func(c *Config) {
		c.Transforms = map[string]*transform.Transform{"default": steps}
		c.SDKs, c.NamespaceKeys, c.MaxEntry = map[string]SDK{"default": {}}, true, 100
	})
	for _, tt := range []struct{ path, body, contentType, want string }{
		{"/v1/default/a", "{\"event\":\"lap\",\"mail\":1,\"game\":\"b\"}\n{\"event\":\"ping\"}\n[7]\n{\"mail\":1}\nno json", asNDJSON,
			`{"accepted":2,"evicted":0,"rejected":3,"depth":2,"capacity":10000,"results":[{"i":1,"result":"drop","reason":"filtered"},{"i":3,"result":"drop","reason":"emptied"},{"i":4,"result":"drop","reason":"unreadable"}]}`},
		{"/v1/default/raw", " \ufeff\n{\"event\":\"x\",\"mail\":1}", "Content-Type: application/octet-stream", `"accepted":0`},
		{"/v1/default/raw", "\ufeff \n{\"event\":\"x\",\"mail\":1}\n", "Content-Type: application/octet-stream", `"accepted":1`},
		{"/v1/default/raw", " {\"event\":\"y\",\"mail\":1}", asJSON, `"accepted":1`},
		{"/v1/default/raw", "\t{\"event\":\"z\",\"mail\":1} \n", asNDJSON, `"accepted":1`},
		{"/v1/default", `[{"partition":"a","data":{"event":"two","game":"c d"}},{"partition":"a","data":{"event":"three","x":1}}]`, asJSON,
			`{"accepted":2,"evicted":0,"rejected":0,"results":[]}`},
		{"/v1/default/a", `{"event":"` + strings.Repeat("x", 90) + `"}`, asJSON, "entry_too_large"},
		{"/segment/v1/track?writeKey=default", `{"writeKey":"default","event":"ping","userId":"u"}`, asJSON, `"success":true`},
	} {
		if r := p.post(tt.path, tt.body, tt.contentType); !strings.Contains(r.raw, tt.want) {
			t.Errorf("%s: got %d %s", tt.path, r.status, r.raw)
		}
	}
	for key, want := range map[string][]string{
		"default/a":   {`1763629675100 {"event":"lap","game":"b"}`, "1763629675100 [7]", `1763629675100 {"event":"three"}`},
		"default/c-d": {`1763629675100 {"event":"two","game":"c d"}`},
		"default/b":   nil,
		"default/raw": {`1763629675100 {"event":"x"}`, `1763629675100 {"event":"y"}`, `1763629675100 {"event":"z"}`},
	} {
		if got := p.store.entries(key); !slices.Equal(got, want) {
			t.Errorf("%s: stored %q, want %q", key, got, want)
		}
	}
	for result, want := range map[string]float64{"accepted": 7, "filtered": 2, "emptied": 1, "unreadable": 2} {
		if got := p.metric("entries_total", "default", result); got != want {
			t.Errorf("%s: counted %v, want %v", result, got, want)
		}
	}
	if got := p.metric("untransformed_entries_total", "default"); got != 1 {
		t.Errorf("%v passed as they are", got)
	}
}
