package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
)

// Routes of other vendors' protocols, of which the key is in a header or in an event.
const (
	otlp        = "/otlp/v1/logs"
	cloudEvents = "/cloudevents"
	mixpanel    = "/mixpanel/track?verbose=1"
	snowplow    = "/com.snowplowanalytics.snowplow/tp2"

	asProtobuf = "Content-Type: application/x-protobuf\r\n"
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
)

func otlpJSON(records string) string {
	return `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + records + `]}]}]}`
}

// adapters are bodies and keys on the routes of OpenTelemetry and of further SDKs.
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
	{"JSON that says protobuf", post(otlp, byKey+asProtobuf, otlpJSON(`{}`)), asText, kept},
	{"protobuf that says JSON", post(otlp, byKey, emptyRecord), status400, kept},
	{"logs without a key", post(otlp, "", otlpJSON(`{}`)), "401", kept},
	{"logs with a key in the query", post(otlp+"?key=default", "", otlpJSON(`{}`)), "401", kept},
	{"1 MiB of logs announced, without a key", request("POST "+otlp, "Content-Length: 1048576\r\n", ""), "401", closed},
	{"GET of logs", aimed("GET", otlp), "405 Allow=POST,OPTIONS", kept},
	{"traces", post("/otlp/v1/traces", byKey, `{}`), "404", kept},

	{"a CloudEvent", post(cloudEvents, byKey+"Content-Type: application/cloudevents+json\r\n", `{}`), "204", kept},
	{"a CloudEvent in headers", post(cloudEvents, byKey+"Ce-Specversion: 1.0\r\nCe-Source: %zz%00\r\n", "\x00"), "204", kept},
	{"a CloudEvent without a version", post(cloudEvents, byKey, `{}`), badJSON, kept},

	{"an event of Mixpanel", post(mixpanel, "", `{"properties":{"token":"default"}}`), good, kept},
	{"a bomb in a form", post(mixpanel, sdkForm, "data="+base64.StdEncoding.EncodeToString([]byte(bomb))), status400, kept},
	{"import with bad events", post("/mixpanel/import", basic("default:"), `[7,{"properties":{}}]`), "400 status=Bad Request accepted=1", kept},
	{"a token that is a list", post(mixpanel, "", `{"properties":{"token":["default"]}}`), "401", kept},

	{"an event of Snowplow", post(snowplow, "", `{"data":[{"aid":"default"}]}`), good, kept},
	{"a pixel", request("GET /snowplow/i?aid=default&e=%00%ff", "", ""), good, kept},
	{"a pixel without a key", request("GET /snowplow/i?e=pv", "", ""), "401 text", kept},
}

// A way is a protocol with two requests: of one good event, and of that and an item that is not one.
type way struct {
	name, path, headers, good, mixed string
	isJSON                           bool // so are its errors, without our codes
}

const fieldOfLog = "\x0a\x0a\x12\x08\x12\x06\x2a\x04\x0a\x02hi" // resource, scope, record, body

var ways = []way{
	{"OTLP", otlp, byKey, otlpJSON(`{"a":1}`), otlpJSON(`{},7`), true},
	{"OTLP in protobuf", otlp, byKey + asProtobuf, fieldOfLog, fieldOfLog + "\x0a\x04\x12\x02\x12\x01", false},
	{"CloudEvents", cloudEvents, byKey + "Content-Type: application/cloudevents+json\r\n", `{"a":1}`, `7`, false},
	{"CloudEvents in batches", cloudEvents, byKey + "Content-Type: application/cloudevents-batch+json\r\n", `[{}]`, `[{},7]`, false},
	{"Mixpanel", "/mixpanel/import?strict=1", basic("default:"), `[{"properties":{}}]`, `[{"properties":{}},7]`, true},
	{"Snowplow", snowplow, byKey, `{"data":[{"aid":"default"}]}`, `{"data":[{"aid":"default"},7]}`, false},
}

// damages are what befalls a request on its way.
var damages = []struct {
	name               string
	send               func(w way) string
	status, code, head string // of the answer, where a way has no other
}{
	{"nothing", func(w way) string { return post(w.path, w.headers, w.good) }, good, "", ""},
	{"an item that is none beside it", func(w way) string { return post(w.path, w.headers, w.mixed) }, good, "", ""},
	{"no body", func(w way) string { return post(w.path, w.headers, "") }, "400", "bad_json", ""},
	{"a body that ends early", func(w way) string { return post(w.path, w.headers, w.good[:len(w.good)/2]) }, "400", "bad_json", ""},
	{"bytes that are no text", func(w way) string { return post(w.path, w.headers, "\xff\xfe\x00\x80") }, "400", "bad_json", ""},
	{"100,000 brackets", func(w way) string { return post(w.path, w.headers, strings.Repeat("[", 100_000)) }, "400", "bad_json", ""},
	{"gzip that is none", func(w way) string { return post(w.path, w.headers+asGzip, w.good) }, "400", "bad_encoding", ""},
	{"gzip that ends early", func(w way) string { return post(w.path, w.headers+asGzip, gzipped(w.good)[:15]) }, "400", "bad_encoding", ""},
	{"a gzip bomb", func(w way) string { return post(w.path, w.headers+asGzip, bomb) }, "413", "body_too_large", ""},
	{"an encoding that nobody knows", func(w way) string { return post(w.path, w.headers+"Content-Encoding: br\r\n", w.good) }, "415", "unsupported_encoding", "Accept-Encoding=gzip,zstd"},
	{"a key of nobody", func(w way) string {
		_, rest, _ := strings.Cut(w.headers, "\r\n")
		return post(strings.ReplaceAll(w.path, "default", "nobody"), bears("nobody")+rest, strings.ReplaceAll(w.good, "default", "nobody"))
	}, "401", "unauthorized", ""},
	{"PUT", func(w way) string { return request("PUT "+w.path, w.headers+"Content-Length: 0\r\n", "") }, "405", "method_not_allowed", "Allow=POST,OPTIONS"},
	{"1 GiB announced", func(w way) string { return request("POST "+w.path, w.headers+"Content-Length: 1073741824\r\n", "") }, "413", "body_too_large", ""},
}

// otherwise are the answers of single ways; "" is none that tells how many entries were taken.
var otherwise = map[string]string{
	"OTLP in protobuf, with an item that is none beside it":       asText,
	"OTLP in protobuf, with no body":                              "",
	"CloudEvents, with nothing":                                   "204",
	"CloudEvents, with an item that is none beside it":            badJSON,
	"CloudEvents in batches, with nothing":                        "204",
	"CloudEvents in batches, with an item that is none beside it": "204",
	"Mixpanel, with nothing":                                      "200 status=OK accepted=1",
	"Mixpanel, with an item that is none beside it":               "400 status=Bad Request accepted=1",
	"Mixpanel, with PUT":                                          "405 Allow=POST,OPTIONS,GET,HEAD",
	"Snowplow, with a gzip bomb":                                  "422 text",
	"Snowplow, with an encoding that nobody knows":                "422 text Accept-Encoding=gzip,zstd",
	"Snowplow, with 1 GiB announced":                              "422 text",
}

// damaged are all ways with all damages.
var damaged = sync.OnceValue(func() (rows []row) {
	for _, w := range ways {
		for _, d := range damages {
			name := fmt.Sprintf("%s, with %s", w.name, d.name)
			want, other := otherwise[name]
			if !other {
				want = w.says(d.status, d.code, d.head)
			}
			end := kept
			if d.name == "1 GiB announced" {
				end = closed
			}
			if want != "" {
				rows = append(rows, row{name, d.send(w), want, end})
			}
		}
	}
	return rows
})

// says is an answer in the form of a way: CloudEvents has none of its own.
func (w way) says(status, code, head string) string {
	switch {
	case status < "300" || w.isJSON:
		return strings.TrimSpace(status + " " + head)
	case strings.HasPrefix(w.name, "CloudEvents"):
		return strings.TrimSpace(status + " " + code + " " + head)
	}
	return strings.TrimSpace(status + " text " + head)
}
