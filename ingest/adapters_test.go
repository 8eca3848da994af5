package ingest

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/partition"
)

// keyed are requests with one event to each route of a shipper or a further SDK, and what a
// partition holds of it.
var keyed = map[string]struct {
	path, body string
	headers    []string
	status     int
	key, want  string
}{
	"OTLP": {"/otlp/v1/logs", `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1763629674100000000"}]}]}]}`, []string{"Authorization: Bearer wk"},
		200, "default/default", `@1000:{"resource":{},"scope":{},"timeUnixNano":"1763629674100000000"}`},
	"Elasticsearch": {"/elastic/laps/_bulk", `{"index":{"_id":"i"}}` + "\n{}", []string{"Authorization: ApiKey wk"}, 200, "default/laps", "i@0:{}"},
	"Splunk":        {"/services/collector", `{"event":1,"time":"1763629674.1","source":"s"}`, []string{"Authorization: Splunk wk"}, 200, "default/s", `@1000:{"event":1,"time":"1763629674.1","source":"s"}`},
	"Loki in JSON":  {"/loki/api/v1/push", `{"streams":[{"stream":{"job":"j"},"values":[["1763629674100000000","x"]]}]}`, []string{basic("wk:"), asJSON}, 204, "default/j", `@1000:{"stream":{"job":"j"},"ts":"1763629674100000000","line":"x"}`},
	"Loki in snappy": {"/loki/api/v1/push", string(snappy.Encode(nil, []byte("\x0a\x09\x0a\x02{}\x12\x03\x12\x01x"))), []string{basic("wk:")}, 204,
		"default/default", `@0:{"stream":{},"ts":"0","line":"x"}`},
	"Loki that says snappy": {"/loki/api/v1/push", string(snappy.Encode(nil, []byte("\x0a\x09\x0a\x02{}\x12\x03\x12\x01x"))), []string{basic("wk:"), "Content-Encoding: snappy"}, 204,
		"default/default", `@0:{"stream":{},"ts":"0","line":"x"}`},
	"CloudEvents": {"/cloudevents", `{"source":"s","id":"i"}`, []string{"Authorization: Bearer wk", "Content-Type: application/cloudevents+json"}, 204, "default/s", `i@0:{"source":"s","id":"i"}`},
	"CloudEvents with gzip as data": {"/cloudevents", "\x1f\x8b", []string{"Authorization: Bearer wk", "Ce-Specversion: 1.0", "Ce-Source: s", "Content-Type: application/gzip"}, 204, "default/s",
		`@0:{"datacontenttype":"application/gzip","source":"s","specversion":"1.0","data_base64":"H4s="}`},
	"Mixpanel": {"/mixpanel/track/", `{"properties":{"token":"wk","distinct_id":"d"}}`, nil, 200, "default/d", `@0:{"properties":{"token":"wk","distinct_id":"d"}}`},
	"Mixpanel with paths": {"/mixpanel/track", `{"kind":"k","properties":{"token":"small-key","distinct_id":"d"}}`, nil, 200, "small/k",
		`@0:{"kind":"k","properties":{"token":"small-key","distinct_id":"d"}}`},
	"Mixpanel without the paths": {"/mixpanel/track", `{"properties":{"token":"small-key","distinct_id":"d"}}`, nil, 200, "small/d", `@0:{"properties":{"token":"small-key","distinct_id":"d"}}`},
	"Snowplow":                   {"/com.snowplowanalytics.snowplow/tp2", `{"data":[{"aid":"wk"}]}`, nil, 200, "default/wk", `@0:{"aid":"wk"}`},
	"Firehose": {"/firehose", `{"DeliveryStreamName":"s","Record":{"Data":"AA=="}}`, []string{"X-Amz-Target: Firehose_20150804.PutRecord",
		"Authorization: AWS4-HMAC-SHA256 Credential=wk/20251120/eu/firehose/aws4_request, Signature=0"}, 200, "default/s", "@0:\x00"},
	"Firehose's endpoint": {"/firehose/", `{"requestId":"r","records":[{"data":"AA=="}]}`, []string{"X-Amz-Firehose-Access-Key: wk"}, 200, "default/default", "@0:\x00"},
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

func TestEventsOfShippersAreStoredUnderTheirKey(t *testing.T) {
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

func TestTheBodyOfAShipperWithoutAKeyIsNotRead(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), withSDKs)
	for _, path := range []string{"/otlp/v1/logs", "/services/collector/raw", "/cloudevents", "/firehose", "/kinesis"} {
		for _, key := range []string{"", "Authorization: Bearer nobody\r\n"} {
			if r, closed := p.raw(headersOnly(path, key, memory.Large)); r.status != 401 || !closed {
				t.Errorf("%s %q: got %d %s, closed %t, want 401", path, key, r.status, r.raw, closed)
			}
		}
	}
}

// Of a batch whose answer has an item for each event, a part may be sent again.
func TestABatchWithItemsSaysWhichToSendAgain(t *testing.T) {
	t.Parallel()
	store := newFake()
	store.failPartitions(map[string]error{"b": partition.ErrUnavailable})
	p := listen(t, store, withSDKs)
	r := p.ask("POST", "/elastic/_bulk", `{"index":{"_index":"a"}}`+"\n{}\n"+`{"create":{"_index":"b"}}`+"\n{}\n", "Authorization: Bearer wk")
	want := `{"took":0,"errors":true,"items":[{"index":{"status":201}},` +
		`{"create":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"store_unavailable"}}}]}`
	if r.status != 200 || r.raw != want || r.header.Get("X-Elastic-Product") != "Elasticsearch" {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	r = p.ask("POST", "/kinesis", `{"Records":[{"PartitionKey":"a","Data":"AA=="},{"PartitionKey":"b","Data":"AA=="}]}`, "Authorization: Bearer wk", "X-Amz-Target: Kinesis_20131202.PutRecords")
	if r.status != 200 || !strings.HasPrefix(r.raw, `{"FailedRecordCount":1,`) {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	r = p.ask("POST", "/elastic/_bulk", `{"index":{"_index":"b"}}`+"\n{}\n", "Authorization: Bearer wk")
	if r.status != 503 {
		t.Errorf("nothing was stored: got %d %s", r.status, r.raw)
	}
}

func TestRecordsAtTheRootAreToldFromRequestsOfAMountByTheirTarget(t *testing.T) {
	t.Parallel()
	for _, mounts := range [][]Mount{nil, {{Name: "sqs", Prefix: "/sqs/", Root: true, Handler: echo}}} {
		store := newFake()
		p := listen(t, store, func(c *Config) {
			withSDKs(c)
			c.Mounts = mounts
		})
		signed := "Authorization: AWS4-HMAC-SHA256 Credential=wk/20251120/eu/any/aws4_request, Signature=0"
		for _, row := range []struct{ target, body, key string }{
			{"Firehose_20150804.PutRecord", `{"DeliveryStreamName":"s","Record":{"Data":"AA=="}}`, "default/s"},
			{"Kinesis_20131202.PutRecords", `{"Records":[{"PartitionKey":"k","Data":"AA=="}]}`, "default/k"},
		} {
			if r := p.ask("POST", "/", row.body, signed, "X-Amz-Target: "+row.target); r.status != 200 {
				t.Errorf("%s: got %d %s", row.target, r.status, r.raw)
			}
			if got := stored(t, store, row.key); !slices.Equal(got, []string{"@0:\x00"}) {
				t.Errorf("%s: %s holds %q", row.target, row.key, got)
			}
		}
		if r := p.ask("POST", "/", "{}", "X-Amz-Target: Kinesis_20131202.PutRecords"); r.status != 400 || !strings.Contains(r.raw, "UnrecognizedClientException") {
			t.Errorf("without a key: got %d %s", r.status, r.raw)
		}
		want := 405
		if len(mounts) > 0 {
			want = 201
		}
		for _, target := range []string{"AmazonSQS.SendMessage", "Kinesis_2013", ""} {
			if r := p.ask("POST", "/", "{}", signed, "X-Amz-Target: "+target); r.status != want {
				t.Errorf("%q with %d mounts: got %d %s, want %d", target, len(mounts), r.status, r.raw, want)
			}
		}
		if r := p.ask("GET", "/", "", "X-Amz-Target: Kinesis_20131202.PutRecords"); r.status != 200 {
			t.Errorf("GET: got %d %s", r.status, r.raw)
		}
	}
}

// A partition beyond max_partitions may last: who sends its event again doubles nothing, but waits for ever.
func TestABatchWithItemsDropsWhatHasNoPartition(t *testing.T) {
	t.Parallel()
	store := newFake()
	store.failPartitions(map[string]error{"b": partition.ErrTooManyPartitions})
	p := listen(t, store, withSDKs)
	r := p.ask("POST", "/elastic/_bulk", `{"index":{"_index":"a"}}`+"\n{}\n"+`{"create":{"_index":"b"}}`+"\n{}\n", "Authorization: Bearer wk")
	if !strings.Contains(r.raw, `{"create":{"status":400,"error":{"type":"document_parsing_exception","reason":"too_many_partitions"}}}`) {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	r = p.ask("POST", "/kinesis", `{"Records":[{"PartitionKey":"a","Data":"AA=="},{"PartitionKey":"b","Data":"AA=="}]}`, "Authorization: Bearer wk", "X-Amz-Target: Kinesis_20131202.PutRecords")
	if r.status != 200 || !strings.HasPrefix(r.raw, `{"FailedRecordCount":0,`) {
		t.Errorf("got %d %s", r.status, r.raw)
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
		{"/elastic/_bulk", "", asJSON, "identity", 400, `{"error":`},
		{"/services/collector", "", asJSON, "identity", 400, `{"text":`},
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

func TestQuestionsBeforeTheFirstEventAreAnswered(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withSDKs)
	for path, want := range map[string]string{
		"/elastic": `"tagline":"You Know, for Search"`, "/elastic/": `"number":"9.`, "/elastic/_license": `"status":"active"`, "/services/collector/health": "healthy",
		"/snowplow/i?aid=wk&e=pv": "GIF89a", "/mixpanel/track?data=eyJwcm9wZXJ0aWVzIjp7InRva2VuIjoid2sifX0=": "1",
	} {
		if r := p.ask("GET", path, ""); r.status != 200 || !strings.Contains(r.raw, want) {
			t.Errorf("%s: got %d %s, want %s", path, r.status, r.raw, want)
		}
	}
}

// BenchmarkAdapters compares a request of 100 events with lines of the mixed route that store the
// same.
func BenchmarkAdapters(b *testing.B) {
	text := strings.Repeat("lap done ", 25)
	attribute := func(number protowire.Number, key, value string) []byte {
		pair := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
		inner := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), value)
		pair = protowire.AppendBytes(protowire.AppendTag(pair, 2, protowire.BytesType), inner)
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), pair)
	}
	value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text)
	record := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), 1763629675000e6)
	record = protowire.AppendBytes(protowire.AppendTag(record, 5, protowire.BytesType), value)
	record = append(record, attribute(6, "game", "kart-7")...)
	scoped := []byte{}
	for range 100 {
		scoped = protowire.AppendBytes(protowire.AppendTag(scoped, 2, protowire.BytesType), record)
	}
	logs := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), attribute(1, "service.name", "kart-7"))
	logs = protowire.AppendBytes(protowire.AppendTag(logs, 2, protowire.BytesType), scoped)
	jsonRecord := `{"timeUnixNano":"1763629675000000000","body":{"stringValue":"` + text + `"},"attributes":[{"key":"game","value":{"stringValue":"kart-7"}}]}`
	resource := `{"attributes":[{"key":"service.name","value":{"stringValue":"kart-7"}}]}`
	entry := `{"n":1763629675000,"text":"` + text + `"}`
	stream := `{"stream":{"app":"kart-7"},"ts":"1763629675000000000","line":"` + text + `"}`
	for name, row := range map[string]struct{ path, kind, body, stores string }{
		"OTLP in protobuf": {"/otlp/v1/logs", "application/x-protobuf", string(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), logs)),
			`{"resource":` + resource + `,"scope":{},` + jsonRecord[1:]},
		"OTLP in JSON": {"/otlp/v1/logs", "application/json", `{"resourceLogs":[{"resource":` + resource + `,"scopeLogs":[{"logRecords":[` + strings.TrimSuffix(strings.Repeat(jsonRecord+",", 100), ",") + `]}]}]}`,
			`{"resource":` + resource + `,"scope":{},` + jsonRecord[1:]},
		"Elasticsearch": {"/elastic/_bulk", "application/x-ndjson", strings.Repeat(`{"index":{"_index":"kart-7"}}`+"\n"+entry+"\n", 100), entry},
		"Splunk":        {"/services/collector", "application/json", strings.Repeat(`{"source":"kart-7","event":`+entry+`}`, 100), `{"source":"kart-7","event":` + entry + `}`},
		"Loki in JSON": {"/loki/api/v1/push", "application/json", `{"streams":[{"stream":{"app":"kart-7"},"values":[` +
			strings.TrimSuffix(strings.Repeat(`["1763629675000000000","`+text+`"],`, 100), ",") + `]}]}`, stream},
	} {
		mixed := strings.Repeat(`{"partition":"kart-7","ts":1763629675000,"data":`+row.stores+"}\n", 100)
		for side, request := range map[string][3]string{"itself": {row.path, row.kind, row.body}, "mixed": {"/v1/default", "application/x-ndjson", mixed}} {
			b.Run(name+"/"+side, func(b *testing.B) {
				ctx := contextFor(request[0], request[1], []byte(request[2]))
				ctx.Request.Header.Set("Authorization", "Bearer wk")
				call := handlerWith(b, withSDKs, instantStore(), ctx)
				b.ReportAllocs()
				for b.Loop() {
					if status := call(); status/100 != 2 {
						b.Fatal(status)
					}
				}
			})
		}
	}
}
