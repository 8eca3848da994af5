package elastic_test

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/elastic"
	"github.com/spillway-io/spillway/ingest/protocol/protocoltest"
	"github.com/spillway-io/spillway/ingest/wire"
)

const index = `{"index":{"_index":"kart-7"}}` + "\n"

var large = `{"a":"` + strings.Repeat("x", 2000) + `"}`

var rows = []protocoltest.Row{
	{"a document", "_bulk", "", index + `{"n":1}` + "\n", `kart-7 @0 {"n":1}`},
	{"without a line end", "_bulk", "", index + `{"n":1}`, `kart-7 @0 {"n":1}`},
	{"an id and a time", "_bulk", "", `{"create":{"_index":"kart/7","_id":"id-1"}}` + "\n" + `{"@timestamp":"2025-11-20T09:07:54.100Z"}`, `kart-7 id-1@1763629674100 {"@timestamp":"2025-11-20T09:07:54.100Z"}`},
	{"the index of the path", "laps/_bulk", "", `{"index":{}}` + "\n{}\n" + index + "{}\n", "laps @0 {}\nkart-7 @0 {}"},
	{"no index", "_bulk", "", `{"index":{}}` + "\r\n {}\r\n", " @0 {}"},
	{"actions that store nothing", "_bulk", "", `{"delete":{"_id":"1"}}` + "\n" + `{"update":{}}` + "\n" + `{"doc":{}}` + "\n" + index + "{}", "! bad_item\n! bad_item\nkart-7 @0 {}"},
	{"one bad document", "_bulk", "", index + "{\n" + index + "7\n" + index + "{}\n" + index + large + "\n", "! bad_item\n! bad_item\nkart-7 @0 {}\n! too_large"},
	{"no document at the end", "_bulk", "", index, "! bad_item"},
	{"an id that is a number", "_bulk", "", `{"index":{"_id":7}}` + "\n{}", " 7@0 {}"},
	{"an id that is an object", "_bulk", "", `{"index":{"_id":{}}}` + "\n{}", " {}@0 {}"},
	{"an index that is a list", "_bulk", "", `{"index":{"_index":["a"]}}` + "\n{}", " @0 {}"},
	{"a document of 513 levels", "_bulk", "", index + strings.Repeat(`{"a":`, 513) + "1" + strings.Repeat("}", 513), "! too_large"},
	{"a time that is none", "_bulk", "", index + `{"@timestamp":"soon"}`, `kart-7 @0 {"@timestamp":"soon"}`},
	{"only line ends", "_bulk", "", "\n\r\n\n", ""},
	{"an unknown action", "_bulk", "", `{"drop":{}}` + "\n{}", protocol.ErrBody.Error()},
	{"an action without an object", "_bulk", "", `{"index":7}` + "\n{}", protocol.ErrBody.Error()},
	{"an action without a name", "_bulk", "", `{"":{}}` + "\n{}", protocol.ErrBody.Error()},
	{"no action", "_bulk", "", `{}` + "\n{}", protocol.ErrBody.Error()},
	{"an action that is a list", "_bulk", "", `[{"index":{}}]` + "\n{}", protocol.ErrBody.Error()},
	{"a document before its action", "_bulk", "", `{"n":1}` + "\n" + index, protocol.ErrBody.Error()},
	{"no JSON", "_bulk", "", "index\n", protocol.ErrBody.Error()},
	{"a NUL", "_bulk", "", "\x00\n", protocol.ErrBody.Error()},
}

func TestADocumentIsAnEventOfItsIndex(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, elastic.Adapter{}, rows)
}

func TestAnItemSaysWhetherToSendItAgain(t *testing.T) {
	t.Parallel()
	a := protocol.Answer{Count: 4, Accepted: 2, Notes: []byte{1, 2, 4, 1}, Results: []wire.Result{
		{Index: 0, Disposition: wire.Warning, Reason: wire.ReasonUnskewed},
		{Index: 2, Disposition: wire.Drop, Reason: wire.ReasonBadItem},
		{Index: 3, Disposition: wire.Retry, Reason: wire.ReasonStoreUnavailable}}}
	want := `{"took":0,"errors":true,"items":[{"index":{"status":201}},{"create":{"status":201}},` +
		`{"delete":{"status":400,"error":{"type":"document_parsing_exception","reason":"bad_item"}}},` +
		`{"index":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"store_unavailable"}}}]}`
	if status, text := (elastic.Adapter{}).Answer(nil, a); status != 200 || string(text) != want {
		t.Errorf("got %d %s, want %s", status, text, want)
	}
}

func FuzzElastic(f *testing.F) { protocoltest.Fuzz(f, elastic.Adapter{}, rows) }
