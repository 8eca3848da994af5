package otlp_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/otlp"
	"github.com/spillway-io/spillway/ingest/protocol/protocoltest"
	"github.com/spillway-io/spillway/ingest/wire"
)

const inProtobuf = "Content-Type: application/x-protobuf"

// bytes is a field with texts one after the other.
func bytes(number protowire.Number, parts ...string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), strings.Join(parts, "")))
}

func varint(number protowire.Number, value uint64) string {
	return string(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value))
}

func fixed(number protowire.Number, value uint64) string {
	return string(protowire.AppendFixed64(protowire.AppendTag(nil, number, protowire.Fixed64Type), value))
}

func fixed32(number protowire.Number, value uint32) string {
	return string(protowire.AppendFixed32(protowire.AppendTag(nil, number, protowire.Fixed32Type), value))
}

func attribute(number protowire.Number, key, value string) string {
	return bytes(number, bytes(1, key), bytes(2, bytes(1, value)))
}

var kart = bytes(1, attribute(1, "a", "b"), attribute(1, "service.name", "kart 7"))

// logs is a request with records of one scope.
func logs(records ...string) string {
	return bytes(1, kart, bytes(2, bytes(1, bytes(1, "lib")), strings.Join(records, "")))
}

const (
	head = `{"resource":{"attributes":[{"key":"a","value":{"stringValue":"b"}},{"key":"service.name","value":{"stringValue":"kart 7"}}]},` +
		`"scope":{"name":"lib"}`
	jsonLogs = `{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"kart 7"}}]},"scopeLogs":[{"logRecords":[`
	jsonHead = `{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"kart 7"}}]},"scope":{}`
)

func deep(n int) string {
	value := bytes(1, "x")
	for range n {
		value = bytes(5, bytes(1, value))
	}
	return value
}

var rows = []protocoltest.Row{
	{"a record", "", inProtobuf, logs(bytes(2, fixed(1, 1763629674100e6), varint(2, 9), bytes(3, "INFO"), bytes(5, bytes(1, "lap \"1\"")), attribute(6, "n", "1"), fixed32(8, 1), bytes(9, "\x01\xab"))),
		"kart-7 @1763629674100 " + head + `,"timeUnixNano":"1763629674100000000","severityNumber":9,"severityText":"INFO","body":{"stringValue":"lap \"1\""},` +
			`"attributes":[{"key":"n","value":{"stringValue":"1"}}],"flags":1,"traceId":"01ab"}`},
	{"schemas", "", inProtobuf, bytes(1, bytes(2, bytes(2), bytes(3, "b")), bytes(3, "a")), ` @0 {"resource":{},"resourceSchemaUrl":"a","scope":{},"scopeSchemaUrl":"b"}`},
	{"a schema too large", "", inProtobuf, bytes(1, bytes(2, bytes(2)), bytes(3, strings.Repeat("x", 2000))) + bytes(1, bytes(2, bytes(2))), "! too_large\n" + ` @0 {"resource":{},"scope":{}}`},
	{"schemas of JSON", "", "", `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}],"schemaUrl":"b"}],"schemaUrl":"a"}]}`, ` @0 {"resource":{},"resourceSchemaUrl":"a","scope":{},"scopeSchemaUrl":"b"}`},
	{"values of all types", "", inProtobuf, logs(bytes(2, bytes(5, bytes(6, bytes(1, bytes(1, "k"), bytes(2, bytes(5, bytes(1, varint(2, 1)), bytes(1, varint(3, 1<<63)), bytes(1, fixed(4, 0x3ff8<<48)), bytes(1, fixed(4, 0x7ff<<52)), bytes(1, bytes(7, "\xff"))))))), fixed(11, 5e6))),
		"kart-7 @5 " + head + `,"body":{"kvlistValue":{"values":[{"key":"k","value":{"arrayValue":{"values":[{"boolValue":true},{"intValue":"-9223372036854775808"},{"doubleValue":1.5},{"doubleValue":"Infinity"},{"bytesValue":"/w=="}]}}}]}},"observedTimeUnixNano":"5000000"}`},
	{"an empty record", "", inProtobuf, logs(bytes(2)), "kart-7 @0 " + head + "}"},
	{"no resource, no scope", "", inProtobuf, bytes(1, bytes(2, bytes(2))), ` @0 {"resource":{},"scope":{}}`},
	{"two scopes, one too large", "", inProtobuf, bytes(1, bytes(2, bytes(1, bytes(1, strings.Repeat("x", 2000))), bytes(2)), bytes(2, bytes(2))), "! too_large\n" + ` @0 {"resource":{},"scope":{}}`},
	{"a resource too large", "", inProtobuf, bytes(1, bytes(1, attribute(1, "k", strings.Repeat("\x00", 2000))), bytes(2, bytes(2), bytes(2))), "! too_large\n! too_large"},
	{"a record too large", "", inProtobuf, logs(bytes(2, bytes(3, strings.Repeat("x", 2000))), bytes(2)), "! too_large\nkart-7 @0 " + head + "}"},
	{"many small parts, too large", "", inProtobuf, logs(bytes(2, strings.Repeat(attribute(6, "", ""), 200))), "! too_large"},
	{"unknown fields", "", inProtobuf, logs(bytes(2, bytes(15, "x"), varint(99, 1), fixed(1000, 1), varint(1, 5), bytes(3, "I"))), "kart-7 @0 " + head + `,"severityText":"I"}`},
	{"not UTF-8", "", inProtobuf, logs(bytes(2, bytes(3, "\xff"))), "kart-7 @0 " + head + `,"severityText":"` + "\ufffd" + `"}`},
	{"no records", "", inProtobuf, bytes(1, kart), ""},
	{"nothing", "", inProtobuf, "", ""},
	{"a list in two places", "", inProtobuf, logs(bytes(2, attribute(6, "a", ""), bytes(3, "I"), attribute(6, "b", ""))), protocol.ErrBytes.Error()},
	{"a text twice", "", inProtobuf, logs(bytes(2, bytes(3, "I"), bytes(3, "I"))), protocol.ErrBytes.Error()},
	{"a number cut short", "", inProtobuf, logs(bytes(2, "\x09\x00")), protocol.ErrBytes.Error()},
	{"an endless varint", "", inProtobuf, logs(bytes(2, "\x10"+strings.Repeat("\xff", 20))), protocol.ErrBytes.Error()},
	{"an endless length", "", inProtobuf, "\x0a" + strings.Repeat("\xff", 9) + "\x01", protocol.ErrBytes.Error()},
	{"a group", "", inProtobuf, strings.Repeat("\x0b", 1000), protocol.ErrBytes.Error()},
	{"field 0", "", inProtobuf, "\x00\x00", protocol.ErrBytes.Error()},
	{"JSON that says protobuf", "", inProtobuf, `{"resourceLogs":[]}`, protocol.ErrBytes.Error()},
	{"too deep", "", inProtobuf, logs(bytes(2, bytes(5, deep(200)))), "! too_large"},

	{"JSON", "", "", jsonLogs + `{"timeUnixNano":"1763629674100000000", "body":{"stringValue":"x"}}]}]}]}`, "kart-7 @1763629674100 " + jsonHead + `,"timeUnixNano":"1763629674100000000", "body":{"stringValue":"x"}}`},
	{"JSON with a number for a time", "", "", jsonLogs + "{ \n \"observedTimeUnixNano\":5000000}]}]}]}", "kart-7 @5 " + jsonHead + `,"observedTimeUnixNano":5000000}`},
	{"an empty record of JSON", "", "", jsonLogs + `{ }]}]}]}`, "kart-7 @0 " + jsonHead + `}`},
	{"records that are none", "", "", jsonLogs + `7,null,[],{}]}]}]}`, "! bad_item\n! bad_item\n! bad_item\nkart-7 @0 " + jsonHead + `}`},
	{"a record of JSON too large", "", "", jsonLogs + `{"a":"` + strings.Repeat("x", 2000) + `"},{}]}]}]}`, "! too_large\nkart-7 @0 " + jsonHead + `}`},
	{"a name that is a number", "", "", `{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":7}]},"scopeLogs":[{"logRecords":[{}]}]}]}`,
		` @0 {"resource":{"attributes":[{"key":"service.name","value":7}]},"scope":{}}`},
	{"lists that are none", "", "", `{"resourceLogs":{"resource":7}}`, ""},
	{"an array", "", "", `[]`, protocol.ErrBody.Error()},
	{"a text", "", "", `resource`, protocol.ErrBody.Error()},
	{"513 levels", "", "", `{"resourceLogs":` + strings.Repeat("[", 513) + strings.Repeat("]", 513) + `}`, protocol.ErrBody.Error()},
}

func TestALogRecordIsAnEventWithItsResourceAndScope(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, otlp.Adapter{}, rows)
}

func TestARecordThatNestsTooDeepFailsNoOther(t *testing.T) {
	t.Parallel()
	for _, body := range []string{logs(bytes(2, bytes(5, deep(200))), bytes(2)), bytes(1, bytes(1, bytes(1, bytes(2, deep(200)))), bytes(2, bytes(2))) + logs(bytes(2))} {
		batch, err := otlp.Adapter{}.Open(protocoltest.Request("", inProtobuf), []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		var got []wire.Reason
		err = batch.Each(nil, 1<<20, func(_ protocol.Event, why wire.Reason) bool {
			got = append(got, why)
			return true
		})
		if err != nil || !slices.Equal(got, []wire.Reason{wire.ReasonBadItem, ""}) {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestDroppedRecordsArePartialSuccess(t *testing.T) {
	t.Parallel()
	a := protocol.Answer{Request: protocoltest.Request(""), Count: 3, Accepted: 2,
		Results: []wire.Result{{Index: 0, Disposition: wire.Warning, Reason: wire.ReasonUnskewed}, {Index: 1, Disposition: wire.Drop, Reason: wire.ReasonTooLarge}}}
	if status, text := (otlp.Adapter{}).Answer(a); status != 200 || string(text) != `{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"dropped: too_large"}}` {
		t.Errorf("got %d %s", status, text)
	}
	a.Request = protocoltest.Request("", inProtobuf)
	if _, text := (otlp.Adapter{}).Answer(a); string(text) != bytes(1, varint(1, 1), bytes(2, "dropped: too_large")) {
		t.Errorf("got %q", text)
	}
	f := protocol.Failure{Request: a.Request, Status: 503, Message: "away"}
	if status, text := (otlp.Adapter{}).Failure(f); status != 503 || string(text) != varint(1, 14)+bytes(2, "away") {
		t.Errorf("got %d %q", status, text)
	}
}

func FuzzOTLP(f *testing.F) { protocoltest.Fuzz(f, otlp.Adapter{}, rows) }
