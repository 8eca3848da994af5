package main

import (
	"encoding/base64"
	"strings"
)

// Routes of other vendors' protocols, of which the key is in a header or in an event.
const (
	otlp        = "/otlp/v1/logs"
	elastic     = "/elastic/_bulk"
	loki        = "/loki/api/v1/push"
	splunk      = "/services/collector/event"
	cloudEvents = "/cloudevents"
	mixpanel    = "/mixpanel/track?verbose=1"
	snowplow    = "/com.snowplowanalytics.snowplow/tp2"

	asProtobuf = "Content-Type: application/x-protobuf\r\n"
	toKinesis  = "X-Amz-Target: Kinesis_20131202.PutRecords\r\n"
	good       = "200 accepted=1"
	status400  = "400"
	asText     = "400 text"
)

var (
	byKey = bears("default")
	// A record without fields, and 901 of them after 30 KB of a resource.
	emptyRecord   = "\x0a\x04\x12\x02\x12\x00"
	largeResource = `{"resourceLogs":[{"resource":{"attributes":[{"key":"` + x(30<<10) + `"}]},"scopeLogs":[{"logRecords":[` +
		strings.Repeat("{},", 900) + `{}]}]}]}`
	index = `{"index":{"_index":"p"}}` + "\n"
)

func otlpJSON(records string) string {
	return `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + records + `]}]}]}`
}

// adapters are bodies and keys on the routes of shippers and of further SDKs.
var adapters = []row{
	{"a log record", post(otlp, byKey, otlpJSON(`{}`)), good, kept},
	{"a log record in protobuf", post(otlp, byKey+asProtobuf, emptyRecord), good, kept},
	{"a scope without records, and half a varint", post(otlp, byKey+asProtobuf, "\x0a\x02\x12\x00\xff"), asText, kept},
	{"a good record among bad ones", post(otlp, byKey, otlpJSON(`7,null,[],{"a":"`+x(33<<10)+`"},{}`)), good, kept},
	{"30 KB of a resource before each of 901 records", post(otlp, byKey, largeResource), "413", kept},
	{"an endless varint", post(otlp, byKey+asProtobuf, strings.Repeat("\xff", 1000)), asText, kept},
	{"a length of 4 GiB", post(otlp, byKey+asProtobuf, "\x0a\xff\xff\xff\xff\x0f"), asText, kept},
	{"100,000 groups", post(otlp, byKey+asProtobuf, strings.Repeat("\x0b", 100_000)), asText, kept},
	{"a million empty resources, and half a varint", post(otlp, byKey+asProtobuf+asGzip, gzipped(strings.Repeat("\x0a\x00", 1_000_000)+"\xff")), asText, kept},
	{"a million empty records", post(otlp, byKey+asProtobuf+asGzip, gzipped(strings.Repeat(emptyRecord, 600_000))), "413 text", kept},
	{"a bomb in protobuf", post(otlp, byKey+asProtobuf+asGzip, gzipped(x(64<<20))), "413 text", kept},
	{"JSON that says protobuf", post(otlp, byKey+asProtobuf, otlpJSON(`{}`)), asText, kept},
	{"protobuf that says JSON", post(otlp, byKey, emptyRecord), status400, kept},
	{"logs without a key", post(otlp, "", otlpJSON(`{}`)), "401", kept},
	{"logs with a key in the query", post(otlp+"?key=default", "", otlpJSON(`{}`)), "401", kept},
	{"1 MiB of logs announced, without a key", request("POST "+otlp, "Content-Length: 1048576\r\n", ""), "401", closed},
	{"GET of logs", aimed("GET", otlp), "405 Allow=POST,OPTIONS", kept},
	{"traces", post("/otlp/v1/traces", byKey, `{}`), "404", kept},

	{"a document without a line end", post(elastic, byKey, index+`{}`), good, kept},
	{"documents among bad ones", post(elastic, byKey, index+"{\n"+index+"{}\n"+`{"delete":{}}`+"\n"+index+"{}\n"), "200 accepted=2", kept},
	{"an action alone", post(elastic, byKey, index), "200", kept},
	{"an action that is none", post(elastic, byKey, "{}\n{}\n"), status400, kept},
	{"an index that goes up", post("/elastic/../_bulk", byKey, index+`{}`), "400 bad_request", kept},
	{"1,001 documents", post(elastic, byKey, strings.Repeat(index+"{}\n", 1001)), "413", kept},
	{"the greeting of Elasticsearch", request("GET /elastic/", byKey, ""), "200", kept},

	{"a block of snappy that is none", post(loki, byKey+asProtobuf, "\x05hello"), asText, kept},
	{"a block of snappy of 4 GiB", post(loki, byKey+asProtobuf, "\xff\xff\xff\xff\x0f\x00"), "413 text", kept},
	{"a block of snappy of nothing", post(loki, byKey+asProtobuf, "\x00"), asText, kept},
	{"a block of snappy that copies from before its begin", post(loki, byKey+asProtobuf, "\x08\x0d\x01"), asText, kept},
	{"a line", post(loki, byKey+asJSON, `{"streams":[{"values":[["1","x"]]}]}`), "204", kept},
	{"lines that are none", post(loki, byKey+asJSON, `{"streams":[{"values":[[1],7]}]}`), asText, kept},

	{"an event of Splunk", post(splunk, "Authorization: Splunk default\r\n", `{"event":1}`), good, kept},
	{"a good event among bad ones", post(splunk, byKey, `{}{"event":1}{"event":null}`), good, kept},
	{"an event without an end", post(splunk, byKey, `{"event":1}{"event":"}`), status400, kept},
	{"100,000 levels of events", post(splunk, byKey, strings.Repeat(`{"event":`, 100_000)), status400, kept},
	{"Splunk's token that is none", post(splunk, "Authorization: Splunk nobody\r\n", `{"event":1}`), "401", kept},

	{"a CloudEvent", post(cloudEvents, byKey+"Content-Type: application/cloudevents+json\r\n", `{}`), "204", kept},
	{"a CloudEvent in headers", post(cloudEvents, byKey+"Ce-Specversion: 1.0\r\nCe-Source: %zz%00\r\n", "\x00"), "204", kept},
	{"a CloudEvent without a version", post(cloudEvents, byKey, `{}`), badJSON, kept},

	{"an event of Mixpanel", post(mixpanel, "", `{"properties":{"token":"default"}}`), good, kept},
	{"a bomb in a form", post(mixpanel, sdkForm, "data="+base64.StdEncoding.EncodeToString([]byte(gzipped(x(64<<20))))), status400, kept},
	{"import with bad events", post("/mixpanel/import", basic("default:"), `[7,{"properties":{}}]`), "400 status=Bad Request accepted=1", kept},
	{"a token that is a list", post(mixpanel, "", `{"properties":{"token":["default"]}}`), "401", kept},

	{"an event of Snowplow", post(snowplow, "", `{"data":[{"aid":"default"}]}`), good, kept},
	{"a pixel", request("GET /snowplow/i?aid=default&e=%00%ff", "", ""), good, kept},
	{"a pixel without a key", request("GET /snowplow/i?e=pv", "", ""), "401 text", kept},

	{"a record of Kinesis", post("/kinesis", byKey+toKinesis, `{"Records":[{"Data":"AP8="}]}`), good, kept},
	{"records of Kinesis, one good", post("/kinesis", byKey+toKinesis, `{"Records":[{"Data":"*"},7,{"Data":""},{"Data":{}}]}`), good, kept},
	{"a record of 900 KB", post("/firehose", byKey+"X-Amz-Firehose-Request-Id: \"\r\n", `{"records":[{"data":"`+strings.Repeat("AAAA", 225_000)+`"},{"data":""}]}`), good, kept},
	{"a signature that is none", post("/kinesis", "Authorization: AWS4-HMAC-SHA256 Credential=/////\r\n"+toKinesis, `{}`), asText, kept},
}
