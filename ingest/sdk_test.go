package ingest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/partition"
)

// withSDKs gives namespaces write keys: "wk" opens default and "small-key" small.
func withSDKs(c *Config) {
	c.SDKs = map[string]SDK{
		"default": {WriteKeys: []WriteKey{{Key: "wk"}, {Key: "second"}}},
		"small":   {WriteKeys: []WriteKey{{Key: "small-key"}}, PartitionPaths: []string{"a.b", "kind"}},
	}
}

func basic(user string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user))
}

// stored lists what a partition has, as "id@age:payload"; age in ms.
func stored(t *testing.T, store *fakeStore, key string) (list []string) {
	t.Helper()
	for _, raw := range store.entries(key) {
		e, err := partition.ParseEntry([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s@%d:%s", e.ID, now-e.Occurred, e.Payload))
	}
	return list
}

// The fake store's clock is 2025-11-20T09:07:55.100Z.
func TestEventsOfSDKsAreStoredAsTheyWereSent(t *testing.T) {
	t.Parallel()
	const (
		segmentEvent   = `{"messageId":"m1","type":"track","timestamp":"2020-01-01T00:00:10.000Z", "context":{"app":{"name":"Kart Racer"}}}`
		rudderEvent    = `{"messageId":"m2","originalTimestamp":"2020-01-01T00:00:10.000+00:00","sentAt":"2020-01-01T00:00:12.000Z","properties":{"game":7}}`
		posthogEvent   = `{"uuid":"u1","event":"e","timestamp":"2025-11-20T10:07:54.100+01:00","properties":{"$host":"example.com","token":"wk"}}`
		amplitudeEvent = `{"insert_id":"i1","event_type":"e","time":1763629674100,"platform":"iOS 17"}`
	)
	form := "data=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(`{"api_key":"wk",`+posthogEvent[1:])))
	for name, row := range map[string]struct {
		path, body string
		headers    []string
		answer     string
		key        string // of the partition
		want       string
	}{
		"a Segment batch": {"/segment/v1/batch", `{"sentAt":"2020-01-01T00:00:13.000Z","batch":[` + segmentEvent + `]}`, []string{basic("wk:")},
			`{"success":true}`, "default/Kart-Racer", "m1@3000:" + segmentEvent},
		"a key in the body": {"/segment/v1/batch", `{"writeKey":"second","sentAt":"2020-01-01T00:00:13Z","batch":[` + segmentEvent + `]}`, nil,
			`{"success":true}`, "default/Kart-Racer", "m1@3000:" + segmentEvent},
		"a Segment event": {"/segment/v1/track", segmentEvent[:1] + `"writeKey":"wk",` + segmentEvent[1:] + "\n", nil,
			`{"success":true}`, "default/Kart-Racer", "m1@0:" + segmentEvent[:1] + `"writeKey":"wk",` + segmentEvent[1:]},
		"a RudderStack batch": {"/segment/v1/batch", gzipped(t, `{"batch":[`+rudderEvent+`],"sentAt":"2020-01-01T00:00:59Z"}`), []string{basic("wk:"), "Content-Encoding: gzip", "Content-Type: application/x-www-form-urlencoded"},
			`{"success":true}`, "default/7", "m2@2000:" + rudderEvent},
		"a PostHog batch": {"/posthog/batch/", gzipped(t, `{"api_key":"wk","batch":[`+posthogEvent+`],"sent_at":"2025-11-20T09:07:55.000Z"}`), []string{"Content-Encoding: gzip"},
			`{"status":1}`, "default/example.com", "u1@900:" + posthogEvent},
		"gzip-js":            {"/posthog/e/?compression=gzip-js", gzipped(t, `[`+posthogEvent+`]`), []string{asText}, `{"status":1}`, "default/example.com", "u1@1000:" + posthogEvent},
		"without a slash":    {"/posthog/i/v0/e", `[` + posthogEvent + `]`, []string{asText}, `{"status":1}`, "default/example.com", "u1@1000:" + posthogEvent},
		"a form with base64": {"/posthog/capture/", form, nil, `{"status":1}`, "default/example.com", "u1@1000:" + `{"api_key":"wk",` + posthogEvent[1:]},
		"a PostHog event":    {"/posthog/capture/", posthogEvent, nil, `{"status":1}`, "default/example.com", "u1@1000:" + posthogEvent},
		"Amplitude's HTTP V2": {"/amplitude/2/httpapi", `{"api_key":"wk","events":[` + amplitudeEvent + `],"client_upload_time":"2025-11-20T09:07:54.600Z"}`, nil,
			`{"code":200,"events_ingested":1,"payload_size_bytes":152,"server_upload_time":1763629675100}`, "default/iOS-17", "i1@500:" + amplitudeEvent},
		"Amplitude's batch": {"/amplitude/batch", `{"api_key":"small-key","events":[` + amplitudeEvent + `]}`, nil,
			`{"code":200,"events_ingested":1,"payload_size_bytes":111,"server_upload_time":1763629675100}`, "small/default", "i1@1000:" + amplitudeEvent},
		"paths of the namespace": {"/segment/v1/batch", `{"batch":[{"a":{"c":1,"b":"x/y"},"kind":"k"}]}`, []string{basic("small-key")},
			`{"success":true}`, "small/x-y", `@0:{"a":{"c":1,"b":"x/y"},"kind":"k"}`},
		"a path that is no text": {"/segment/v1/batch", `{"batch":[{"a":{"b":{}},"kind":"k"}]}`, []string{basic("small-key")}, `{"success":true}`, "small/k", `@0:{"a":{"b":{}},"kind":"k"}`},
		"an id that is none":     {"/segment/v1/batch", `{"batch":[{"messageId":"a b"}]}`, []string{basic("wk:")}, `{"success":true}`, "default/default", `@0:{"messageId":"a b"}`},
		"a time that is none":    {"/segment/v1/batch", `{"batch":[{"timestamp":"soon"}]}`, []string{basic("wk:")}, `{"success":true}`, "default/default", `@0:{"timestamp":"soon"}`},
		"a name of no letters":   {"/segment/v1/batch", `{"batch":[{"properties":{"game":"日本"}}]}`, []string{basic("wk:")}, `{"success":true}`, "default/default", `@0:{"properties":{"game":"日本"}}`},
	} {
		store := newFake()
		p := listen(t, store, withSDKs)
		r := p.post(row.path, row.body, row.headers...)
		if r.status != http.StatusOK || r.raw != row.answer {
			t.Errorf("%s: got %d %s, want 200 %s", name, r.status, r.raw, row.answer)
		}
		if got := stored(t, store, row.key); !slices.Equal(got, []string{row.want}) {
			t.Errorf("%s: %s holds %q, want %q; all: %v", name, row.key, got, row.want, store.lists)
		}
	}
}

// What the services themselves answer, as far as their SDKs read it.
func TestWhatSDKsAreAnswered(t *testing.T) {
	t.Parallel()
	const (
		segment, posthog, amplitude = "/segment/v1/batch", "/posthog/batch/", "/amplitude/2/httpapi"
		one                         = `{"writeKey":"wk","api_key":"wk","batch":[{}],"events":[{}]}`
	)
	large := strings.Repeat("x", 33<<10)
	for _, row := range []struct {
		name, path, body string
		produce          error
		status           int
		want             string // of the body, its begin
		retryAfter       string
	}{
		{"an unknown key", segment, strings.ReplaceAll(one, "wk", "nobody"), nil, 401, `{"success":false,"code":"unauthorized","message":"no namespace lists this key under write_keys"}`, ""},
		{"an unknown key", posthog, strings.ReplaceAll(one, "wk", "nobody"), nil, 401, `{"type":"authentication_error","code":"invalid_api_key","detail":"Project API key invalid`, ""},
		{"an unknown key", amplitude, strings.ReplaceAll(one, "wk", "nobody"), nil, 400, `{"code":400,"error":"Invalid API key","missing_field":null,`, ""},
		{"no key", segment, `{"batch":[{}]}`, nil, 401, `{"success":false,"code":"unauthorized"`, ""},
		{"a namespace's name", segment, strings.ReplaceAll(one, "wk", "default"), nil, 401, `{"success":false,"code":"unauthorized"`, ""},
		{"no JSON", segment, `{"batch":[}`, nil, 400, `{"success":false,"code":"bad_json"`, ""},
		{"no JSON", posthog, `{"batch":[}`, nil, 400, `{"type":"validation_error","code":"bad_json"`, ""},
		{"no JSON", amplitude, `{"events":[}`, nil, 400, `{"code":400,"error":"the body is not JSON`, ""},
		{"no batch", segment, `{"writeKey":"wk"}`, nil, 400, `{"success":false,"code":"bad_json"`, ""},
		{"no events", amplitude, `{"api_key":"wk"}`, nil, 400, `{"code":400,"error":"the body is not JSON`, ""},
		{"an empty batch", segment, `{"writeKey":"wk","batch":[]}`, nil, 400, `{"success":false,"code":"empty_batch"`, ""},
		{"a broken form", posthog, `data=%zz`, nil, 400, `{"type":"validation_error","code":"bad_json"`, ""},
		{"an empty body", posthog, ``, nil, 400, `{"type":"validation_error","code":"empty_body"`, ""},
		{"too many events", amplitude, `{"api_key":"wk","events":[` + strings.Repeat("{},", 1000) + `{}]}`, nil, 413, `{"code":413,"error":"a request holds at most 1000 entries`, ""},
		{"too large", posthog, strings.Repeat("x", 1<<20+1), nil, 413, `{"type":"validation_error","code":"body_too_large"`, ""},
		{"flags", "/posthog/flags/?v=2", one, nil, 404, `{"type":"validation_error","code":"no_such_route"`, ""},
		{"decide", "/posthog/decide/", one, nil, 404, `{"type":"validation_error","code":"no_such_route"`, ""},
		{"the store is away", segment, one, partition.ErrUnavailable, 503, `{"success":false,"code":"store_unavailable"`, "1"},
		{"the store is away", posthog, one, partition.ErrUnavailable, 503, `{"type":"server_error","code":"store_unavailable"`, "1"},
		{"the store is away", amplitude, one, partition.ErrUnknown, 503, `{"code":503,"error":"the store did not confirm`, "1"},
		{"too many partitions", segment, one, partition.ErrTooManyPartitions, 429, `{"success":false,"code":"too_many_partitions"`, "10"},
		{"too many partitions", posthog, one, partition.ErrTooManyPartitions, 429, `{"type":"throttled_error","code":"too_many_partitions"`, "10"},
		{"too many partitions", amplitude, one, partition.ErrTooManyPartitions, 429, `{"code":429,"error":"the namespace has max_partitions partitions: try again when some are empty, or raise max_partitions","eps_threshold":0,`, "10"},
		{"bad events among good ones", segment, `{"writeKey":"wk","batch":[7,{},{"x":"` + large + `"}]}`, nil, 200, `{"success":true}`, ""},
		{"bad events alone", segment, `{"writeKey":"wk","batch":[7]}`, nil, 200, `{"success":true}`, ""},
		{"bad events among good ones", amplitude, `{"api_key":"wk","events":[7,{},{"x":"` + large + `"}]}`, nil, 200, `{"code":200,"events_ingested":1,`, ""},
		{"bad events alone", amplitude, `{"api_key":"wk","events":[7,{"x":"` + large + `"},{"time":"soon"},{"time":-1},[]]}`, nil, 400,
			`{"code":400,"error":"Invalid events: not JSON objects, too large, too old, or without a time in milliseconds","missing_field":null,` +
				`"events_with_invalid_fields":{"time":[2,3],"event_properties":[1]},"events_with_missing_fields":{"event_type":[0,4]},"silenced_events":[]}`, ""},
	} {
		store := newFake()
		if row.produce != nil {
			store.produce = failWith(row.produce)
		}
		p := listenTCP(t, store, withSDKs) // one in memory may drop the answer to a body that is not read
		r := p.post(row.path, row.body)
		if r.status != row.status || !strings.HasPrefix(r.raw, row.want) || r.header.Get("Retry-After") != row.retryAfter {
			t.Errorf("%s at %s: got %d %s Retry-After %q, want %d %s %q", row.name, row.path, r.status, r.raw, r.header.Get("Retry-After"), row.status, row.want, row.retryAfter)
		}
	}
}

func TestBadEventsOfSDKsAreCounted(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withSDKs)
	body := `{"api_key":"wk","client_upload_time":"2025-11-20T09:07:55Z","events":[{"time":1},7,{"time":"x"},{},{"x":"` + strings.Repeat("x", 33<<10) + `"}]}`
	if r := p.post("/amplitude/batch", body); r.status != http.StatusOK {
		t.Error(r.raw)
	}
	for result, want := range map[string]float64{"accepted": 1, "stale": 1, "bad_item": 1, "bad_ts": 1, "too_large": 1} {
		if got := p.metric("entries_total", "default", result); got != want {
			t.Errorf("%v entries counted as %s, want %v", got, result, want)
		}
	}
	if n := p.metric("requests_total", "200", "amplitude_batch"); n != 1 {
		t.Errorf("%v requests counted, want 1", n)
	}
}

func TestAWriteKeyOpensNoOtherRouteAndNoOtherNamespace(t *testing.T) {
	t.Parallel()
	store := newFake()
	edit := withTokens(store)
	p := listen(t, store, func(c *Config) { edit(c); withSDKs(c); c.NamespaceKeys = true })
	for _, header := range []string{basic("wk:"), "Authorization: Bearer wk"} {
		p.post("/v1/default/p", "1", header).expect(t, 401, "unauthorized")
		p.post("/v1/default", `[{"partition":"p","data":1}]`, asJSON, header).expect(t, 401, "unauthorized")
	}
	for _, header := range []string{bearerHeader("first"), basic("first:"), basic("open:"), basic("nobody:"), basic("")} {
		if r := p.post("/segment/v1/batch", `{"batch":[{}]}`, header); r.status != http.StatusUnauthorized {
			t.Errorf("%s: got %d %s", header, r.status, r.raw)
		}
	}
	// The header's key counts, not the body's.
	if r := p.post("/segment/v1/batch", `{"writeKey":"small-key","batch":[{}]}`, basic("wk:")); r.status != http.StatusOK || len(store.entries("default/default")) != 1 {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}

// Where no key opens anything, the routes of SDKs are no way to memory and decoders.
func TestABodyIsNotReadWhereNoNamespaceTakesEventsOfSDKs(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listenTCP(t, store, withTokens(store))
	for _, tt := range []struct {
		path, headers string
		status        int
	}{
		{"/segment/v1/batch", "", 401},
		{"/segment/v1/batch", basic("wk:") + "\r\n", 401},
		{"/posthog/batch/", "", 401},
		{"/amplitude/2/httpapi", "", 400},
	} {
		for headers, length := range map[string]int{"": memory.Large, "Expect: 100-continue\r\n": 20} {
			r, closed := p.raw(headersOnly(tt.path, tt.headers+headers, length))
			if r.status != tt.status || !closed {
				t.Errorf("%s %q: got %d %s, closed %t, want %d", tt.path, headers, r.status, r.raw, closed, tt.status)
			}
		}
		if r := p.post(tt.path, gzipped(t, `{"batch":`), "Content-Encoding: gzip"); r.status != tt.status || strings.Contains(r.raw, "JSON") {
			t.Errorf("%s: got %d %s, want %d", tt.path, r.status, r.raw, tt.status)
		}
	}
}

func TestALargeBodyUnderAWrongWriteKeyIsNotRead(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), withSDKs)
	r, closed := p.raw(headersOnly("/segment/v1/batch", basic("nobody:")+"\r\n", memory.Large))
	if r.status != http.StatusUnauthorized || !closed {
		t.Errorf("got %d %s, closed %t, want 401", r.status, r.raw, closed)
	}
	taken := p.cfg.MaxInflightBytes - memory.Large
	p.memory.Held.Give(-taken)
	defer p.memory.Held.Give(taken)
	r, closed = p.raw(headersOnly("/segment/v1/batch", basic("wk:")+"\r\n", memory.Large+1))
	if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || !closed {
		t.Errorf("got %d %s, closed %t, want 503", r.status, r.raw, closed)
	}
}

func TestLargeBodiesWithoutAKnownKeyShareFewPlaces(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) {
		withSDKs(c)
		c.ProduceTimeout = 50 * time.Millisecond
	})
	hold := make(chan struct{})
	var holders sync.WaitGroup
	places := (min(4, runtime.GOMAXPROCS(0)) + 1) / 2
	for began := make(chan struct{}); places > 0; places-- {
		holders.Go(func() { p.keyless.DoFor("", time.Minute, func() { began <- struct{}{}; <-hold }) })
		<-began
	}
	events := func(n int) string { return `"batch":[` + strings.Repeat(`{"event":"e"},`, n) + `{}]` }
	unseen := gzipped(t, `{`+events(200)+`,"api_key":"wk"}`)
	for _, row := range []struct {
		name, path, body string
		status           int
	}{
		{"none, compressed", "/posthog/batch/", gzipped(t, `{`+events(1)+`}`), 503},
		{"none, 8 KiB", "/posthog/batch/", `{` + events(700) + `}`, 503},
		{"none, small", "/posthog/batch/", `{` + events(1) + `}`, 401},
		{"another's, compressed", "/posthog/batch/", gzipped(t, `{"api_key":"nobody",`+events(1)+`}`), 503},
		{"behind the first KiB", "/posthog/batch/", unseen, 503},
		{"behind much that decompresses to nothing", "/posthog/batch/", strings.Repeat(gzipped(t, ""), 1000) + gzipped(t, `{"api_key":"wk"}`), 503},
		{"in the first KiB", "/posthog/batch/", gzipped(t, `{"api_key" : "wk",`+events(200)+`}`), 200},
		{"at the end of a plain body", "/posthog/batch/", `{` + events(700) + `,"api_key":"wk"}`, 200},
		{"in the query", "/posthog/batch/?api_key=wk", unseen, 200},
		{"in the query alone", "/posthog/batch/?api_key=wk", gzipped(t, `{`+events(200)+`}`), 200},
		{"in the query, and another in the body", "/posthog/batch/?api_key=wk", gzipped(t, `{"api_key":"nobody",`+events(200)+`}`), 401},
		{"another's in the query", "/posthog/batch/?api_key=nobody", `{"api_key":"wk",` + events(1) + `}`, 200},
		{"another's in the query, compressed", "/posthog/batch/?api_key=nobody", gzipped(t, `{"api_key":"wk",`+events(1)+`}`), 200},
	} {
		if r := p.post(row.path, row.body, asText); r.status != row.status {
			t.Errorf("%s: got %d %s, want %d", row.name, r.status, r.raw, row.status)
		}
	}
	close(hold)
	holders.Wait()
	p.post("/posthog/batch/", unseen, asText).expect(t, 200, "")
}

func TestTheNameOfANamespaceIsItsKeyWhereNoneIsListed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		edit   func(*Config)
		key    string
		status int
	}{
		{func(*Config) {}, "small", 200},
		{func(*Config) {}, "nobody", 401},
		{func(c *Config) { c.NamespaceKeys = false }, "small", 401},
		{func(c *Config) { c.SDKs["default"] = SDK{WriteKeys: []WriteKey{{Key: "wk"}}} }, "small", 401},
		{func(c *Config) { c.Tokens = map[string][]Token{"small": {{Hash: hashOf("x"), Name: "x"}}} }, "small", 401},
		{func(c *Config) { c.Tokens = map[string][]Token{"default": {{Hash: hashOf("x"), Name: "x"}}} }, "small", 200},
		{func(c *Config) { c.Closed = []string{"small"} }, "small", 401},
		{func(c *Config) { c.Closed = []string{"small"} }, "default", 200},
	} {
		p := listen(t, newFake(), func(c *Config) {
			c.SDKs, c.NamespaceKeys = map[string]SDK{"default": {}, "small": {}}, true
			row.edit(c)
		})
		if r := p.post("/segment/v1/batch", `{"batch":[{}]}`, basic(row.key+":")); r.status != row.status {
			t.Errorf("%s: got %d %s, want %d", row.key, r.status, r.raw, row.status)
		}
	}
}

// SDKs repeat whole requests. So what a repeat can save is worth duplicates, and what
// it cannot is not.
func TestAnSDKRepeatsARequestOfWhichAPartFailed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err    error
		status int
	}{
		{partition.ErrUnavailable, 503},
		{partition.ErrFull, 503},
		{errors.New("anything else"), 503},
		{partition.ErrTooManyPartitions, 200},
	} {
		store := newFake()
		keep := store.produce
		store.produce = func(ctx context.Context, groups []*partition.Group) {
			for _, g := range groups {
				if g.Partition == "b" {
					g.Err = row.err
				} else {
					keep(ctx, []*partition.Group{g})
				}
			}
		}
		p := listen(t, store, withSDKs)
		r := p.post("/segment/v1/batch", `{"batch":[{"properties":{"game":"a"}},{"properties":{"game":"b"}}]}`, basic("wk:"))
		if r.status != row.status || row.status == 503 && r.header.Get("Retry-After") == "" {
			t.Errorf("%v: got %d %s", row.err, r.status, r.raw)
		}
		if n := p.metric("entries_total", "default", "accepted"); n != 1 {
			t.Errorf("%v: %v entries counted as accepted, want 1", row.err, n)
		}
	}
}

func TestACompressedBodyOfAnSDKIsBounded(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withSDKs)
	bomb := gzipped(t, `{"api_key":"wk","batch":[{"x":"`+strings.Repeat("x", 4<<20)+`"}]}`)
	for _, headers := range [][]string{nil, {"Content-Encoding: gzip"}} {
		if r := p.post("/posthog/batch/", bomb, headers...); r.status != 413 {
			t.Errorf("got %d %s", r.status, r.raw)
		}
	}
	twice := gzipped(t, gzipped(t, `{"api_key":"wk","batch":[{}]}`))
	if r := p.post("/posthog/batch/", twice, "Content-Encoding: gzip"); r.status != 400 {
		t.Errorf("gzip in gzip: got %d %s", r.status, r.raw)
	}
	if r := p.post("/posthog/batch/", twice[:20]); r.status != 400 {
		t.Errorf("gzip cut short: got %d %s", r.status, r.raw)
	}
}

func TestAWriteKeyMaySendAsManyEventsAsItsRate(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, func(c *Config) {
		c.MaxEntries = 2
		c.SDKs = map[string]SDK{"default": {WriteKeys: []WriteKey{{Key: "bounded", Rate: Quota{3, time.Hour}}, {Key: "free"}}}}
	})
	send := func(key, events string) *reply {
		return p.post("/segment/v1/batch", `{"writeKey":"`+key+`","batch":[`+events+`]}`)
	}
	for i, row := range []struct {
		key, events string
		status      int
	}{{"bounded", "{},{}", 200}, {"bounded", "{},{}", 429}, {"bounded", "7", 200}, {"bounded", "{}", 429}, {"free", "{},{}", 200}} {
		r := send(row.key, row.events)
		if r.status != row.status {
			t.Errorf("request %d: got %d %s, want %d", i, r.status, r.raw, row.status)
		}
	}
	r := p.post("/segment/v1/batch", "not JSON", basic("bounded:")) // before its body is read
	after, _ := strconv.Atoi(r.header.Get("Retry-After"))
	if r.status != 429 || !strings.HasPrefix(r.raw, `{"success":false,"code":"rate_limited"`) || after < 1100 || after > 1200 {
		t.Errorf("got %d %s, Retry-After %d, want 429 after 1200 s", r.status, r.raw, after)
	}
	for path, want := range map[string]string{
		"/posthog/batch/":      `{"type":"throttled_error","code":"rate_limited"`,
		"/amplitude/2/httpapi": `{"code":429,"error":"the write key has used its rate`,
	} {
		r := p.post(path, `{"api_key":"bounded","batch":[{}],"events":[{}]}`)
		if r.status != 429 || !strings.HasPrefix(r.raw, want) || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: got %d %s, Retry-After %q", path, r.status, r.raw, r.header.Get("Retry-After"))
		}
	}
	if got := p.metric("token_limited_total", "rate_limited", "default", keyLabel("bounded")); got != 5 {
		t.Errorf("%v requests are counted as limited, want 5", got)
	}
}

func TestSettingsOfSDKsAreChecked(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*Config){
		"namespaces.small.write_keys":        func(c *Config) { c.SDKs["small"] = SDK{WriteKeys: []WriteKey{{Key: "wk"}}} },
		"namespaces.default.write_keys":      func(c *Config) { c.SDKs["default"] = SDK{WriteKeys: []WriteKey{{Key: "a b"}}} },
		"namespaces.default.partition_paths": func(c *Config) { c.SDKs["default"] = SDK{PartitionPaths: []string{"a..b"}} },
	} {
		c := DefaultConfig()
		withSDKs(&c)
		edit(&c)
		var field *partition.FieldError
		if err := c.Validate(); !errors.As(err, &field) || field.Field != name {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAWriteKeyIsShownNowhere(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-of-an-exporter"
	limited := WriteKey{Key: secret, Rate: Quota{1, time.Hour}, NewPartitions: Quota{1, time.Hour}}
	p := listen(t, newFake(), func(c *Config) { c.MaxEntries, c.SDKs = 1, map[string]SDK{"default": {WriteKeys: []WriteKey{limited}}} })
	for range 2 {
		p.post("/cloudevents", `{}`, "Content-Type: application/cloudevents+json", "Authorization: Bearer "+secret)
	}
	families, err := p.reg.Gather()
	if err != nil || p.metric("token_limited_total", "rate_limited", "default", keyLabel(secret)) != 1 {
		t.Errorf("the rejection is not counted: %v", err)
	}
	if shown := fmt.Sprint(families); strings.Contains(shown, "s3cr3t") {
		t.Error("metrics show a write key")
	}
	for _, key := range []string{secret, secret + " and more"} {
		c := DefaultConfig()
		c.SDKs = map[string]SDK{"default": {WriteKeys: []WriteKey{{Key: secret}}}, "small": {WriteKeys: []WriteKey{{Key: key}}}}
		if err := c.Validate(); err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), keyLabel(key)) {
			t.Errorf("got %v", err)
		}
	}
}

func FuzzPartitionNameIsAName(f *testing.F) {
	for _, text := range []string{"", "a", "-a", "a b", "日本", "x" + strings.Repeat("é", 200), strings.Repeat("a", 300), "\x00", "a\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name := protocol.PartitionName(text)
		if name != "" && !partition.ValidPartition(name) {
			t.Errorf("%q became %q", text, name)
		}
		if partition.ValidPartition(text) && name != text {
			t.Errorf("%q is a name and became %q", text, name)
		}
	})
}

func TestAWriteKeyUsesNewPartitionsWithinItsQuota(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, func(c *Config) {
		c.SDKs = map[string]SDK{"default": {WriteKeys: []WriteKey{{Key: "wk", NewPartitions: Quota{2, time.Hour}}}, PartitionPaths: []string{"event"}}}
	})
	event := func(name string) string { return `{"api_key":"wk","event":"` + name + `","distinct_id":"x"}` }
	for i, name := range []string{"a", "b", "c", "a"} {
		want := 200
		if name == "c" {
			want = 429
		}
		if r := p.post("/posthog/e/", event(name)); r.status != want {
			t.Errorf("%d, partition %s: got %d %s, want %d", i, name, r.status, r.raw, want)
		}
	}
	batch := `{"api_key":"wk","batch":[` + event("d") + "," + event("b") + `]}`
	if r := p.post("/posthog/batch/", batch); r.status != 200 || len(store.entries("default/d")) != 0 || len(store.entries("default/b")) != 2 {
		t.Errorf("a known one beside a new one: got %d %s", r.status, r.raw)
	}
	if got := p.metric("token_limited_total", "too_many_partitions", "default", keyLabel("wk")); got != 2 {
		t.Errorf("%v are counted, want 2", got)
	}
}
