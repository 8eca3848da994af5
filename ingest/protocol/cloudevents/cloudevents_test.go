package cloudevents_test

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/cloudevents"
	"github.com/spillway-io/spillway/ingest/protocol/protocoltest"
)

const (
	structured = "Content-Type: application/cloudevents+json; charset=utf-8"
	batch      = "Content-Type: application/cloudevents-batch+json"
	binary     = "Ce-Specversion: 1.0\nCe-Id: id-1\nCe-Source: /laps"
	asJSON     = "\nContent-Type: application/json"
	made       = `"id":"id-1","source":"/laps","specversion":"1.0",`
)

var noBody = protocol.ErrBody.Error()

var rows = []protocoltest.Row{
	{"an event", "", structured, `{"id":"1","source":"/a/b","time":"2025-11-20T09:07:54.100Z"}`, `a-b 1@1763629674100 {"id":"1","source":"/a/b","time":"2025-11-20T09:07:54.100Z"}`},
	{"a key for partitions", "", structured, `{"partitionkey":"kart 7","source":"a"}`, `kart-7 @0 {"partitionkey":"kart 7","source":"a"}`},
	{"a batch", "", batch, `[{"source":"a"}, 7,{"source":7,"id":7}]`, `a @0 {"source":"a"}` + "\n! bad_item\n" + `7 @0 {"source":7,"id":7}`},
	{"an empty batch", "", batch, `[]`, ""},
	{"one too large", "", batch, `[{"a":"` + strings.Repeat("x", 2000) + `"},{}]`, "! too_large\n @0 {}"},
	{"a batch that is an event", "", batch, `{}`, noBody},
	{"an event that is a batch", "", structured, `[{}]`, noBody},
	{"an event that is a number", "", structured, `7`, noBody},
	{"an event cut short", "", structured, `{"id":"1"`, noBody},
	{"513 levels", "", structured, strings.Repeat(`{"a":`, 513) + "1" + strings.Repeat("}", 513), noBody},
	{"headers", "", binary + asJSON, `{"n":1}`, `laps id-1@0 {"datacontenttype":"application/json",` + made + `"data":{"n":1}}`},
	{"headers with escapes", "", binary + "\nCe-Partitionkey: kart%207%22\nCe-Time: 2025-11-20T09:07:54.100Z" + asJSON, `1`,
		`kart-7- id-1@1763629674100 {"datacontenttype":"application/json","id":"id-1","partitionkey":"kart 7\"","source":"/laps","specversion":"1.0","time":"2025-11-20T09:07:54.100Z","data":1}`},
	{"an escape that is none", "", binary + "\nCe-X: %zz" + asJSON, `1`, `laps id-1@0 {"datacontenttype":"application/json",` + made + `"x":"%zz","data":1}`},
	{"data that is not JSON", "", binary + "\nContent-Type: text/plain", "\x00\xff", `laps id-1@0 {"datacontenttype":"text/plain",` + made + `"data_base64":"AP8="}`},
	{"a charset", "", binary + asJSON + "; charset=utf-8", `1`, `laps id-1@0 {"datacontenttype":"application/json; charset=utf-8",` + made + `"data":1}`},
	{"no type", "", binary, "x", `laps id-1@0 {` + made + `"data_base64":"eA=="}`},
	{"no data", "", binary + asJSON, "", `laps id-1@0 {"datacontenttype":"application/json","id":"id-1","source":"/laps","specversion":"1.0"}`},
	{"headers that are the body's", "", binary + "\nCe-Data: 1\nCe-Data_base64: x\nCe-Datacontenttype: x\nCe-Dataschema: s\nCe-: x", "x",
		`laps id-1@0 {"dataschema":"s",` + made + `"data_base64":"eA=="}`},
	{"data too large", "", binary, strings.Repeat("x", 2000), "! too_large"},
	{"data that makes it too large", "", binary, strings.Repeat("x", 900), "! too_large"},
	{"JSON that is none", "", binary + asJSON, `{`, noBody},
	{"no version", "", "Ce-Id: 1" + asJSON, `{}`, noBody},
	{"no headers", "", "", `{}`, noBody},
}

func TestAnEventIsTakenStructuredAndInHeaders(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, cloudevents.Adapter{}, rows)
}

func FuzzCloudEvents(f *testing.F) { protocoltest.Fuzz(f, cloudevents.Adapter{}, rows) }
