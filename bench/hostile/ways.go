package main

import (
	"fmt"
	"strings"

	"github.com/klauspost/compress/snappy"
)

// A way is a protocol, a request of one good event, and one that has an item, too, that is none.
type way struct {
	name, path, headers, good, mixed string
	isJSON                           bool // so are its errors, without our codes
}

const (
	fieldOfLog = "\x0a\x0a\x12\x08\x12\x06\x2a\x04\x0a\x02hi" // resource, scope, record, body
	// A stream with labels and an entry.
	streamOfLoki = "\x0a\x18\x0a\x0c{app=\"game\"}\x12\x08\x0a\x02\x08\x01\x12\x02hi"
)

var ways = []way{
	{"OTLP", otlp, byKey, otlpJSON(`{"a":1}`), otlpJSON(`{},7`), true},
	{"OTLP in protobuf", otlp, byKey + asProtobuf, fieldOfLog, fieldOfLog + "\x0a\x04\x12\x02\x12\x01", false},
	{"Elasticsearch", elastic, byKey, index + "{}\n", index + "{\n" + index + "{}\n", true},
	{"Loki", loki, byKey + asJSON, `{"streams":[{"values":[["1","y"]]}]}`, `{"streams":[{"values":[["1","x"],[1]]}]}`, false},
	{"Loki in protobuf", loki, byKey + asProtobuf, string(snappy.Encode(nil, []byte(streamOfLoki))), string(snappy.Encode(nil, []byte(streamOfLoki+"\x0a\x01\x12"))), false},
	{"Splunk", splunk, byKey, `{"event":1}`, `{"event":1}{"event":null}`, true},
	{"CloudEvents", cloudEvents, byKey + "Content-Type: application/cloudevents+json\r\n", `{"a":1}`, `7`, false},
	{"CloudEvents in batches", cloudEvents, byKey + "Content-Type: application/cloudevents-batch+json\r\n", `[{}]`, `[{},7]`, false},
	{"Mixpanel", "/mixpanel/import?strict=1", basic("default:"), `[{"properties":{}}]`, `[{"properties":{}},7]`, true},
	{"Snowplow", snowplow, byKey, `{"data":[{"aid":"default"}]}`, `{"data":[{"aid":"default"},7]}`, false},
	{"Kinesis", "/kinesis", byKey + toKinesis, `{"Records":[{"PartitionKey":"p","Data":"AA=="}]}`, `{"Records":[{"PartitionKey":"p","Data":"AA=="},{"PartitionKey":"p","Data":"*"}]}`, false},
	{"Firehose", "/firehose", byKey + "X-Amz-Firehose-Request-Id: r\r\n", `{"requestId":"r","records":[{"data":"AA=="}]}`, `{"records":[{"data":"AA=="},{"data":"*"}]}`, true},
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
	{"a gzip bomb", func(w way) string { return post(w.path, w.headers+asGzip, gzipped(x(63<<20))) }, "413", "body_too_large", ""},
	{"an encoding that nobody knows", func(w way) string { return post(w.path, w.headers+"Content-Encoding: br\r\n", w.good) }, "415", "unsupported_encoding", "Accept-Encoding=gzip,zstd"},
	{"a key of nobody", func(w way) string {
		_, rest, _ := strings.Cut(w.headers, "\r\n")
		return post(w.path, bears("nobody")+rest, strings.ReplaceAll(w.good, "default", "nobody"))
	}, "401", "unauthorized", ""},
	{"PUT", func(w way) string { return request("PUT "+w.path, w.headers+"Content-Length: 0\r\n", "") }, "405", "method_not_allowed", "Allow=POST,OPTIONS"},
	{"1 GiB announced", func(w way) string { return request("POST "+w.path, w.headers+"Content-Length: 1073741824\r\n", "") }, "413", "body_too_large", ""},
}

// otherwise are the answers of single ways; "" is none that tells how many entries were taken.
var otherwise = map[string]string{
	"Loki, with nothing":                                          "204",
	"Loki, with an item that is none beside it":                   "204",
	"Loki in protobuf, with nothing":                              "204",
	"Loki in protobuf, with an item that is none beside it":       asText,
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
	"Kinesis, with a key of nobody":                               asText,
}

// damaged are all ways with all damages.
func damaged() (rows []row) {
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
}

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
