package ingest

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// keyed are requests with one event to each route of OpenTelemetry and the further SDKs, and what a
// partition holds of it.
var keyed = map[string]struct {
	path, body string
	headers    []string
	status     int
	key, want  string
}{
	"OTLP": {"/otlp/v1/logs", `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1763629674100000000"}]}]}]}`, []string{"Authorization: Bearer wk"},
		200, "default/default", `@1000:{"resource":{},"scope":{},"timeUnixNano":"1763629674100000000"}`},
	"CloudEvents": {"/cloudevents", `{"source":"s","id":"i"}`, []string{"Authorization: Bearer wk", "Content-Type: application/cloudevents+json"}, 204, "default/s", `i@0:{"source":"s","id":"i"}`},
	"CloudEvents with gzip as data": {"/cloudevents", "\x1f\x8b", []string{"Authorization: Bearer wk", "Ce-Specversion: 1.0", "Ce-Source: s", "Content-Type: application/gzip"}, 204, "default/s",
		`@0:{"datacontenttype":"application/gzip","source":"s","specversion":"1.0","data_base64":"H4s="}`},
	"Mixpanel": {"/mixpanel/track/", `{"properties":{"token":"wk","distinct_id":"d"}}`, nil, 200, "default/d", `@0:{"properties":{"token":"wk","distinct_id":"d"}}`},
	"Mixpanel with paths": {"/mixpanel/track", `{"kind":"k","properties":{"token":"small-key","distinct_id":"d"}}`, nil, 200, "small/k",
		`@0:{"kind":"k","properties":{"token":"small-key","distinct_id":"d"}}`},
	"Mixpanel without the paths": {"/mixpanel/track", `{"properties":{"token":"small-key","distinct_id":"d"}}`, nil, 200, "small/d", `@0:{"properties":{"token":"small-key","distinct_id":"d"}}`},
	"Snowplow":                   {"/com.snowplowanalytics.snowplow/tp2", `{"data":[{"aid":"wk"}]}`, nil, 200, "default/wk", `@0:{"aid":"wk"}`},
}

// ask is do for an answer that need not be JSON.
func (p *port) ask(method, path, body string, headers ...string) *reply {
	p.t.Helper()
	resp := p.send(method, path, body, headers...)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return &reply{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
}

func TestEventsOfFurtherSDKsAreStoredUnderTheirKey(t *testing.T) {
	t.Parallel()
	for name, row := range keyed {
		store := newFake()
		p := listen(t, store, withSDKs)
		if r := p.ask("POST", row.path, row.body, row.headers...); r.status != row.status {
			t.Errorf("%s: got %d %s, want %d", name, r.status, r.raw, row.status)
		}
		if got := stored(t, store, row.key); !slices.Equal(got, []string{row.want}) {
			t.Errorf("%s: %s holds %q, want %q; all: %v", name, row.key, got, row.want, store.lists)
		}
		store.produce = failWith(partition.ErrUnavailable)
		if r := p.ask("POST", row.path, row.body, row.headers...); r.status != 503 || r.header.Get("Retry-After") == "" {
			t.Errorf("%s while the store is away: got %d %s", name, r.status, r.raw)
		}
	}
}

// Adapters make statuses of their own out of those of ours.
func TestEveryAdapterAnswersEveryRejection(t *testing.T) {
	t.Parallel()
	for i := range sdkProtocols {
		at := &sdkProtocols[i]
		p := listen(t, newFake(), withSDKs)
		for _, path := range []string{at.prefix, at.prefix + "nowhere", at.prefix + "no/where/"} {
			for _, method := range []string{"GET", "POST", "OPTIONS", "DELETE"} {
				if r := p.ask(method, path, "x"); r.status < 200 || r.status >= 500 {
					t.Errorf("%s %s: %d %s", method, path, r.status, r.raw)
				}
			}
		}
		rows := []*route{{name: noRoute.name, door: at}}
		for j := range routes {
			if routes[j].door == at {
				rows = append(rows, &routes[j])
			}
		}
		for _, row := range rows {
			for code := range wire.Responses {
				ctx := contextFor(at.prefix+"nowhere", "", nil)
				to := &target{call: "nowhere"}
				to.take(row)
				p.Server.conclude(ctx, to, reject(code))
				if ctx.Response.StatusCode() == 200 {
					t.Errorf("%s %s: 200", at.prefix, code)
				}
			}
		}
		if n := testutil.ToFloat64(p.Server.metrics.panics); n != 0 {
			t.Errorf("%s: %v panics", at.prefix, n)
		}
	}
}

func TestTheBodyOfALogRequestWithoutAKeyIsNotRead(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), withSDKs)
	for _, path := range []string{"/otlp/v1/logs", "/cloudevents"} {
		for _, key := range []string{"", "Authorization: Bearer nobody\r\n"} {
			if r, closed := p.raw(headersOnly(path, key, memory.Large)); r.status != 401 || !closed {
				t.Errorf("%s %q: got %d %s, closed %t, want 401", path, key, r.status, r.raw, closed)
			}
		}
	}
}

// Exporters that flush send such requests, and would send them again, or tell of a loss.
func TestARequestWithoutEventsIsStoredWhereItsServiceSaysSo(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withSDKs)
	inProtobuf := "Content-Type: application/x-protobuf"
	for _, row := range []struct {
		path, body, header, coding string
		status                     int
		want                       string
	}{
		{"/otlp/v1/logs", "", inProtobuf, "identity", 200, ""},
		{"/otlp/v1/logs", gzipped(t, ""), inProtobuf, "gzip", 200, ""},
		{"/otlp/v1/logs", `{"resourceLogs":[]}`, asJSON, "identity", 200, "{}"},
		{"/otlp/v1/logs", "", asJSON, "identity", 400, `{"code":3,`},
		{"/cloudevents", "[]", "Content-Type: application/cloudevents-batch+json", "identity", 204, ""},
		{"/cloudevents", "", "Ce-Specversion: 1.0", "identity", 204, ""},
	} {
		r := p.ask("POST", row.path, row.body, row.header, "Authorization: Bearer wk", "Content-Encoding: "+row.coding)
		if r.status != row.status || !strings.HasPrefix(r.raw, row.want) || row.want == "" && r.raw != "" {
			t.Errorf("%s %s %q: got %d %s, want %d %s", row.path, row.header, row.body, r.status, r.raw, row.status, row.want)
		}
	}
}

func TestWhatAnAdapterMakesCountsByItsSize(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withSDKs)
	records := `{"resourceLogs":[{"resource":{"a":"` + strings.Repeat("x", 20<<10) + `"},"scopeLogs":[{"logRecords":[` + strings.Repeat("{},", 300) + `{}]}]}]}`
	if r := p.ask("POST", "/otlp/v1/logs", records, "Authorization: Bearer wk"); r.status != 413 || !strings.Contains(r.raw, "send fewer a request") {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	if held := p.memory.Held.Used(); held != 0 {
		t.Errorf("%d bytes are still reserved", held)
	}
}

func TestAnEventInAQueryIsAnsweredAsItsSDKExpects(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withSDKs)
	for path, want := range map[string]string{
		"/snowplow/i?aid=wk&e=pv": "GIF89a", "/mixpanel/track?data=eyJwcm9wZXJ0aWVzIjp7InRva2VuIjoid2sifX0=": "1",
	} {
		if r := p.ask("GET", path, ""); r.status != 200 || !strings.Contains(r.raw, want) {
			t.Errorf("%s: got %d %s, want %s", path, r.status, r.raw, want)
		}
	}
}
