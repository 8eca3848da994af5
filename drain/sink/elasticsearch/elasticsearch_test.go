package elasticsearch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

var batch = sinktest.Batch

func TestAWriteIsOneBulk(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var header http.Header
	var target, text string
	c.set(func(w http.ResponseWriter, r *http.Request) {
		header, target = r.Header, r.RequestURI
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Error(err)
		}
		text = string(plain)
		r.Body = io.NopCloser(bytes.NewReader(body))
		c.serve(w, r)
	})
	a, b := batch("a", 7, `{"n":1.0}`, "[1]"), batch("b", 1, "\xff")
	a.Entries[0].ID = []byte(`"id`)
	if err := c.sink(t).Write(t.Context(), []*sink.Batch{a, b}); err != nil {
		t.Fatal(err)
	}
	const want = `{"create":{"_id":"kart/a/7"}}
{"@timestamp":"2025-11-20T09:07:55.100Z","namespace":"kart","partition":"a","seq":7,"id":"\"id","data":{"n":1.0}}
{"create":{"_id":"kart/a/8"}}
{"@timestamp":"2025-11-20T09:07:55.100Z","namespace":"kart","partition":"a","seq":8,"text":"[1]"}
{"create":{"_id":"kart/b/1"}}
{"@timestamp":"2025-11-20T09:07:55.100Z","namespace":"kart","partition":"b","seq":1,"base64":"/w=="}
`
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if target != "/events/_bulk?filter_path=errors,error.type,error.reason,items.*.status,items.*.error.type,items.*.error.reason" {
		t.Errorf("got %s", target)
	}
	for name, want := range map[string]string{"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip", "Authorization": "", "User-Agent": "spillway"} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestAnIndexForEachNamespaceAndDay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b := batch("a", 1, "{}", "{}")
	b.Namespace = "Kart"
	b.Entries[1].Occurred += 24 * 3600 * 1000
	if err := sinkOn(t, c.Listener.Addr().String()+"/events-{namespace}-{date}").Write(t.Context(), []*sink.Batch{b}); err != nil {
		t.Fatal(err)
	}
	got := c.taken()
	if len(got) != 2 || got[0].index != "events-kart-2025.11.20" || got[1].index != "events-kart-2025.11.21" {
		t.Errorf("got %v", got)
	}
}

func TestOneBadRecordCostsOneRecord(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	deep := strings.Repeat(`{"d":`, 30) + "1" + strings.Repeat("}", 30)
	err := c.sink(t).Write(t.Context(), []*sink.Batch{
		batch("a", 1, `{"n":1}`, `{"n":"a string"}`, `{"n":2}`, `{"":1}`),
		batch("b", 1, `{"n":{"an":"object"}}`, "text", deep, `{"x":1e400}`, `{"n":3}`),
	})
	if got, want := sinktest.Kind(err), "0.1 permanent, 0.3 permanent, 1.0 permanent, 1.2 permanent, 1.3 permanent"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var named *sink.BatchError
	if errors.As(err, &named) && named.Failed[0].Err.Error() != "create answered 400 (document_parsing_exception)" {
		t.Errorf("got %v", named.Failed[0].Err)
	}
	if got := c.taken(); len(got) != 4 {
		t.Errorf("got %d documents, want the 4 others", len(got))
	}
}

func TestWhatAFieldCannotHoldIsTextAndLosesNothing(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"a":{"b":[1,{"c":"d"}]}}`:       `,"data":{"a":{"b":[1,{"c":"d"}]}}`,
		` {"a" : 1}`:                      `,"data": {"a" : 1}`,
		"{\r\n\"a\":\t\"x  y\"\n}":        `,"data":{"a":"x  y"}`,
		`{"a":1,"b":{"a":1},"A":1}`:       `,"data":{"a":1,"b":{"a":1},"A":1}`,
		`{"a":1,"a":2}`:                   `,"text":"{\"a\":1,\"a\":2}"`,
		`{"a":[{"b":1,"\u0062":2}]}`:      `,"text":"{\"a\":[{\"b\":1,\"\\u0062\":2}]}"`,
		`[1]`:                             `,"text":"[1]"`,
		"1\n":                             `,"text":"1\n"`,
		"":                                `,"text":""`,
		"\xfe":                            `,"base64":"/g=="`,
		"{\"a\":\"\xfe\"}":                `,"base64":"eyJhIjoi/iJ9"`,
		`{"a":` + many(40, "") + `}`:      `,"data":{"a":` + many(40, "") + `}`,
		`{"a":` + many(40, "n20") + `}`:   `,"text":` + quoted(`{"a":`+many(40, "n20")+`}`),
		`{"a":` + many(40, "n3") + `}`:    `,"text":` + quoted(`{"a":`+many(40, "n3")+`}`),
		`{"a":1}` + "\x00":                `,"text":"{\"a\":1}\u0000"`,
		`{"a":"` + "\u2028" + `<b>&"}`:    `,"data":{"a":"` + "\u2028" + `<b>&"}`,
		"{\"not one\":\n1}{\"line\":\n1}": `,"text":"{\"not one\":\n1}{\"line\":\n1}"`,
	} {
		if got := string(appendPayload(nil, []byte(payload))); got != want {
			t.Errorf("%q:\ngot  %s\nwant %s", payload, got, want)
		}
	}
}

// many is an object of n names, and once more the given one.
func many(n int, again string) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf(`"n%d":1`, i))
	}
	if again != "" {
		names = append(names, `"`+again+`":2`)
	}
	return "{" + strings.Join(names, ",") + "}"
}

func quoted(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }

func TestEveryVerdictOfAnItem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int64
		kind   string
		want   string
	}{
		{200, "", "accepted"}, {201, "", "accepted"}, {409, "version_conflict_engine_exception", "accepted"},
		{400, "mapper_parsing_exception", "permanent"}, {400, "document_parsing_exception", "permanent"}, {400, "strict_dynamic_mapping_exception", "permanent"},
		{400, "illegal_argument_exception", "permanent"}, {400, "", "permanent"}, {413, "", "permanent"}, {422, "", "permanent"},
		{400, "index_closed_exception", "retry"}, {400, "validation_exception", "retry"}, {400, "invalid_index_name_exception", "retry"},
		{403, "cluster_block_exception", "retry"}, {403, "security_exception", "retry"}, {404, "index_not_found_exception", "retry"}, {401, "", "retry"}, {408, "", "retry"},
		{429, "es_rejected_execution_exception", "throttle 1s"}, {429, "cluster_block_exception", "throttle 1s"},
		{500, "", "retry"}, {503, "unavailable_shards_exception", "retry"}, {0, "", "retry"}, {302, "", "retry"}, {-1, "", "retry"},
	} {
		if got := sinktest.Kind(verdict(c.status, c.kind, "c4n4ry")); got != c.want {
			t.Errorf("%d %s: got %s, want %s", c.status, c.kind, got, c.want)
		}
	}
}

func TestTheLimitOfShardsIsNoEntrysFault(t *testing.T) {
	t.Parallel()
	const reason = "Validation Failed: 1: this action would add [2] total shards, but this cluster currently has [3000]/[3000] maximum shards open;"
	if err := verdict(400, "illegal_argument_exception", reason); sink.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

// What the cluster says of an entry is in its dead letter, and not in the log.
func TestTheReasonIsADetail(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	err := c.sink(t).Write(t.Context(), []*sink.Batch{batch("a", 1, `{"n":1}`, `{"n":"c4n4ry"}`)})
	var named *sink.BatchError
	if !errors.As(err, &named) || len(named.Failed) != 1 {
		t.Fatalf("got %v", err)
	}
	if one := named.Failed[0].Err; !strings.HasPrefix(sink.Detail(one), "failed to parse field [.data.n] of type [number]") || strings.Contains(one.Error(), "c4n4ry") {
		t.Errorf("got %v, detail %q", one, sink.Detail(one))
	}
	c.set(answering(400, `{"error":{"type":"a_kind","reason":"c4n4ry"},"status":400}`))
	if err := c.sink(t).Write(t.Context(), []*sink.Batch{batch("a", 1, "{}")}); sink.Detail(err) != "c4n4ry" || strings.Contains(err.Error(), "c4n4ry") {
		t.Errorf("got %v, detail %q", err, sink.Detail(err))
	}
}

// A tenant whose long names come back in the reasons does not make the answer too long.
func TestReasonsAsLongAsThePayloadsAreRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	payloads := []string{`{"n":1}`}
	for range 99 {
		payloads = append(payloads, `{"n":"`+strings.Repeat("x", 32<<10)+`"}`)
	}
	if got := sinktest.Kind(c.sink(t).Write(t.Context(), []*sink.Batch{batch("a", 1, payloads...)})); strings.Count(got, "permanent") != 99 {
		t.Errorf("got %.100s", got)
	}
}

func TestOpenFindsWhatOnlyAnOperatorCanMend(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.sink(t)
	for status := 200; status < 600; status++ {
		c.set(answering(status, aKind))
		if err := s.Open(t.Context()); (err != nil) != (outcomeOf(status) == "not connected") {
			t.Errorf("%d: got %v", status, err)
		}
	}
}

func TestAnswersThatCannotBeReadAreRetried(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.sink(t)
	for name, text := range map[string]string{
		"nothing": "", "a page": "<html>c4n4ry", "another form": `{"c4n4ry":1}`, "errors as text": `{"errors":"false"}`, "no items": `{"errors":true}`,
		"items as an object": `{"errors":true,"items":{"create":{"status":201}}}`, "too many": `{"errors":true,"items":[{},{}]}`, "cut": `{"errors":false,"items":[`,
		"deep": strings.Repeat("[", 60<<10), "long": `{"errors":false,"x":"` + strings.Repeat("c4n4ry", 20_000) + `"}`, "twice": `{"errors":false}{"errors":false}`,
		"not text": "{\"errors\":false,\"x\":\"\xff\"}", "another action": `{"errors":true,"items":[{"index":{"status":201}}]}`,
	} {
		c.set(answering(200, text))
		err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, "{}")})
		if got := sinktest.Kind(err); got != "retry" && got != "0.0 retry" || strings.Contains(err.Error(), "c4n4ry") {
			t.Errorf("%s: got %s: %v", name, got, err)
		}
	}
	for name, text := range map[string]string{"errors: false alone": `{"errors":false}`, "repeats": `{"took":1,"errors":true,"items":[{"create":{"_id":"x","status":409}}]}`} {
		c.set(answering(200, text))
		if err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, "{}")}); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A node ends in the middle of a _bulk: a part of it is there, and nobody answers.
func TestKilledInTheMiddleEachEntryIsThereOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := sinktest.Killed(t, c.sink(t), 5, `{"n":1}`, func() {
		c.rejecting(func(n int, _ string) *fail {
			if n < 40 {
				return nil
			}
			return &fail{503, "node_closed_exception", ""}
		})
		c.set(c.unanswered)
	}, func() {
		c.set(nil)
		c.rejecting(nil)
	})
	got := map[string]int{}
	for _, d := range c.taken() {
		got[d.id]++
	}
	if len(got) != n || len(c.taken()) != n || c.conflict == 0 {
		t.Errorf("got %d documents of %d ids, want %d; %d came again", len(c.taken()), len(got), n, c.conflict)
	}
}

func TestWhoeverLogsInIsToldApart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	host := c.Listener.Addr().String()
	for auth, rest := range map[string]string{
		"Basic dXM6ZXI6cDovdw==": "us%3Aer:p%3A%2Fw@" + host + "/events",
		"ApiKey ab+c/d==":        host + "/events?api_key=ab+c/d==",
		"ApiKey ab+c/d=":         host + "/events?api_key=ab%2Bc%2Fd%3D",
	} {
		wants := func(auth string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.auth = auth
		}
		wants(auth)
		s := sinkOn(t, rest)
		if err := s.Open(t.Context()); err != nil {
			t.Errorf("%s: %v", auth, err)
		}
		if err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, "{}")}); err != nil {
			t.Errorf("%s: %v", auth, err)
		}
		wants("another")
		if err := s.Open(t.Context()); err == nil || err.Error() != "bulk to "+host+": answered 401" {
			t.Errorf("got %v", err)
		}
		if err := s.Write(t.Context(), []*sink.Batch{batch("p", 2, "{}")}); err == nil || err.Error() != "sink is not connected: bulk to "+host+": answered 401 (security_exception)" {
			t.Errorf("got %v", err)
		}
	}
}

func TestTheEndpointIsThatOfTheURL(t *testing.T) {
	t.Parallel()
	for rest, want := range map[string]string{
		"h/events/":                 "http://h:9200/events/_bulk",
		"[::1]/events?tls=1":        "https://[::1]:9200/events/_bulk",
		"h:443/e-{namespace}?tls=1": "https://h:443/_bulk",
	} {
		if got := sinkOn(t, rest).endpoint; got != want+"?filter_path=errors,error.type,error.reason,items.*.status,items.*.error.type,items.*.error.reason" {
			t.Errorf("%s: got %s, want %s", rest, got, want)
		}
	}
}

func TestTheFakeRejectsWhatAClusterRejects(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.maxBody = 1000
	const action = `{"create":{"_id":"1"}}` + "\n"
	for name, r := range map[string]struct {
		method, path, contentType, body string
		want                            int
	}{
		"fine":           {"POST", "/i/_bulk", "application/x-ndjson", action + "{}\n", 200},
		"no body":        {"POST", "/i/_bulk", "application/x-ndjson", "", 400},
		"no newline":     {"POST", "/i/_bulk", "application/x-ndjson", action + "{}", 400},
		"no document":    {"POST", "/i/_bulk", "application/x-ndjson", action, 400},
		"unknown action": {"POST", "/i/_bulk", "application/x-ndjson", `{"add":{}}` + "\n{}\n", 400},
		"no action":      {"POST", "/i/_bulk", "application/x-ndjson", "{\n{}\n", 400},
		"a long id":      {"POST", "/i/_bulk", "application/x-ndjson", `{"create":{"_id":"` + strings.Repeat("i", 513) + `"}}` + "\n{}\n", 400},
		"another type":   {"POST", "/i/_bulk", "text/plain", action + "{}\n", 406},
		"too large":      {"POST", "/i/_bulk", "application/x-ndjson", action + "{}" + strings.Repeat(" ", 1000) + "\n", 413},
		"another method": {"GET", "/i/_bulk", "application/x-ndjson", action + "{}\n", 405},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, c.URL+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", r.contentType)
		resp, err := c.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != r.want {
			t.Errorf("%s: got %d, want %d", name, resp.StatusCode, r.want)
		}
	}
	s := c.sink(t)
	if err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, `{"x":"`+strings.Repeat("y", 1000)+`"}`)}); sinktest.Kind(err) != "permanent" {
		t.Errorf("got %v", err)
	}
}

// write is a coalesced Write of 5,000 entries of some 230 bytes in 500 partitions.
func write(from int64) []*sink.Batch {
	var w []*sink.Batch
	for p := range 500 {
		var payloads []string
		for i := range 10 {
			x := uint64(from*1_000_003+int64(p*10+i)) * 0x9e3779b97f4a7c15 // as good as random
			payloads = append(payloads, fmt.Sprintf(
				`{"event":"race_finished","player":"%016x","session":"%016x","level":%d,"score":%d,"platform":"android","version":"4.12.%d","country":"DE","duration_ms":%d,"vehicle":"kart-%d","items":["shell","banana","star"],"online":true}`,
				x, x*0xbf58476d1ce4e5b9, x>>8%40, x>>16%10007, x>>24%7, x>>32%200003, x>>40%12))
		}
		w = append(w, batch(fmt.Sprintf("com.acme.game-%d", p), from, payloads...))
	}
	return w
}
