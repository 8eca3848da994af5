package loki_test

import (
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/loki"
	"github.com/spillway-io/spillway/ingest/protocol/protocoltest"
	"github.com/spillway-io/spillway/ingest/wire"
)

const inJSON = "Content-Type: application/json"

func bytes(number protowire.Number, parts ...string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), strings.Join(parts, "")))
}

func varint(number protowire.Number, value uint64) string {
	return string(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value))
}

// entry is a line, and pairs of metadata.
func entry(line string, metadata ...string) string {
	return bytes(2, bytes(1, varint(1, 1763629674), varint(2, 100e6)), bytes(2, line), strings.Join(metadata, ""))
}

const line1 = `{"stream":{"app":"kart/7"},"ts":"1763629674100000000","line":"lap \"1\""`

var (
	large  = strings.Repeat("x", 2000)
	failed = protocol.ErrBytes.Error()
	noBody = protocol.ErrBody.Error()
)

// Bodies in protobuf are those that snappy has decompressed.
var rows = []protocoltest.Row{
	{"a line", "", "", bytes(1, bytes(1, `{app="kart/7"}`), entry(`lap "1"`)), "kart-7 @1763629674100 " + line1 + "}"},
	{"metadata", "", "", bytes(1, bytes(1, `{app="kart/7"}`), entry(`lap "1"`, bytes(3, bytes(1, "a"), bytes(2, "b")), bytes(3, bytes(1, "c")))),
		"kart-7 @1763629674100 " + line1 + `,"metadata":{"a":"b","c":""}}`},
	{"labels with escapes", "", "", bytes(1, bytes(1, "{ a=\"}\\\"=\\n\" , service_name=`b`,  job=\"j\" }"), bytes(2, bytes(2, "x"))), `j @0 {"stream":{"a":"}\"=\n","service_name":"b","job":"j"},"ts":"0","line":"x"}`},
	{"no labels", "", "", bytes(1, bytes(1, "{}"), bytes(2)), ` @0 {"stream":{},"ts":"0","line":""}`},
	{"no lines", "", "", bytes(1, bytes(1, "{}")), ""},
	{"nothing", "", "", "", ""},
	{"a line that is not UTF-8", "", "", bytes(1, bytes(1, "{}"), bytes(2, bytes(2, "\xff"))), ` @0 {"stream":{},"ts":"0","line":"` + "\ufffd" + `"}`},
	{"a line too large", "", "", bytes(1, bytes(1, "{}"), bytes(2, bytes(2, large)), bytes(2)), "! too_large\n" + ` @0 {"stream":{},"ts":"0","line":""}`},
	{"labels too large", "", "", bytes(1, bytes(1, `{a="`+large+`"}`), bytes(2), bytes(2)) + bytes(1, bytes(1, "{}"), bytes(2)), "! too_large\n! too_large\n" + ` @0 {"stream":{},"ts":"0","line":""}`},
	{"metadata too large", "", "", bytes(1, bytes(1, "{}"), entry("x", strings.Repeat(bytes(3, bytes(1, "name")), 500))), "! too_large"},
	{"labels too large, one behind the other", "", "", bytes(1, bytes(1, `{a="`+large+`"}`)) + bytes(1, bytes(1, `{a="`+strings.Repeat("\x01", 1000)+`"}`), bytes(2)) + bytes(1, bytes(1, "{}"), bytes(2)),
		"! too_large\n" + ` @0 {"stream":{},"ts":"0","line":""}`},
	{"times that are none", "", "", bytes(1, bytes(1, "{}"), bytes(2, bytes(1, varint(1, 1<<64-1))), bytes(2, bytes(1, varint(1, 1<<35))), bytes(2, bytes(1, varint(2, 1e9)))), "! bad_ts\n! bad_ts\n! bad_ts"},
	{"times of JSON that are none", "", inJSON, `{"streams":[{"values":[["abc","x"],["","x"],["-1","x"],["18446744073709551615","x"],["1.5","x"]]}]}`, "! bad_ts\n! bad_ts\n! bad_ts\n! bad_ts\n! bad_ts"},
	{"no labels at all", "", "", bytes(1, bytes(2)), failed},
	{"labels without an end", "", "", bytes(1, bytes(1, `{a="b"`)), failed},
	{"labels without quotes", "", "", bytes(1, bytes(1, `{a=b}`)), failed},
	{"labels with text behind", "", "", bytes(1, bytes(1, `{a="b"} x`)), failed},
	{"labels in JSON", "", "", bytes(1, bytes(1, `{"a":"b"}`)), failed},
	{"a quote without an end", "", "", bytes(1, bytes(1, `{a="b}`)), failed},
	{"a length beyond the end", "", "", "\x0a\x7f", failed},
	{"an endless varint", "", "", strings.Repeat("\xff", 100), failed},
	{"a group in an entry", "", "", bytes(1, bytes(1, "{}"), bytes(2, "\x0b\x0c")) + "\x0b", failed},
	{"JSON", "", inJSON, `{"streams":[{"stream":{"app":"kart/7"},"values":[["1763629674100000000","lap \"1\""]]}]}`, "kart-7 @1763629674100 " + line1 + "}"},
	{"JSON with metadata", "", inJSON, `{"streams":[{"stream":{"app":"kart/7"},"values":[["1763629674100000000","lap \"1\"",{"a":"b"}]]}]}`, "kart-7 @1763629674100 " + line1 + `,"metadata":{"a":"b"}}`},
	{"values that are none", "", inJSON, `{"streams":[{"values":[7,[],["1"],[1,"x"],["1",7],["1","x",[]],["5000000","x"]]}]}`,
		strings.Repeat("! bad_item\n", 6) + ` @5 {"stream":{},"ts":"5000000","line":"x"}`},
	{"a stream that is a list", "", inJSON, `{"streams":[{"stream":[1],"values":[["0",""]]},7,null]}`, ` @0 {"stream":{},"ts":"0","line":""}`},
	{"a label too large", "", inJSON, `{"streams":[{"stream":{"a":"` + large + `"},"values":[["0",""]]}]}`, "! too_large"},
	{"no streams", "", inJSON, `{}`, noBody},
	{"streams that are an object", "", inJSON, `{"streams":{}}`, noBody},
	{"no JSON", "", inJSON, `{"streams":[}`, noBody},
}

func TestALineIsAnEventWithTheLabelsOfItsStream(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, loki.Adapter{}, rows)
}

// Escapes of JSON take six bytes for one: what is too large must not be written before it is dropped.
// It is not parallel: the allocations of others would count.
func TestMetadataTooLargeTakesNoMemory(t *testing.T) {
	body := []byte(bytes(1, bytes(1, "{}"), entry("x", bytes(3, bytes(1, "a"), bytes(2, strings.Repeat("\x01", 1<<20))))))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	batch, err := loki.Adapter{}.Open(protocoltest.Request(""), body)
	if err == nil {
		err = batch.Each(nil, protocoltest.MaxEntry, func(protocol.Event, wire.Reason) bool { return true })
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; err != nil || n > 256<<10 {
		t.Errorf("%v, %d bytes were allocated", err, n)
	}
}

func TestA400SaysThatNoLineWasStored(t *testing.T) {
	t.Parallel()
	drop := []wire.Result{{Index: 0, Disposition: wire.Drop, Reason: wire.ReasonTooLarge}}
	for accepted, want := range map[int]int{0: 400, 1: 204} {
		if status, text := (loki.Adapter{}).Answer(nil, protocol.Answer{Count: 1 + accepted, Accepted: accepted, Results: drop}); status != want || (len(text) > 0) != (want == 400) {
			t.Errorf("%d accepted: got %d %s, want %d", accepted, status, text, want)
		}
	}
}

func FuzzLoki(f *testing.F) { protocoltest.Fuzz(f, loki.Adapter{}, rows) }
