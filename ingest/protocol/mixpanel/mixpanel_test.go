package mixpanel_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/mixpanel"
	"github.com/spillway-io/spillway/ingest/protocol/protocoltest"
	"github.com/spillway-io/spillway/ingest/wire"
)

const event = `{"event":"lap","properties":{"distinct_id":"kart 7","token":"k","time":1763629674,"$insert_id":"id-1","a":"+"}}`

var (
	large  = `{"event":"` + strings.Repeat("x", 2000) + `"}`
	noBody = protocol.ErrBody.Error()
	read   = "kart-7 id-1@1763629674000 " + event
)

var rows = []protocoltest.Row{
	{"an event", "track", "", event, read},
	{"a batch", "import", "", "\n[" + event + ", 7,null," + event + "]", read + "\n! bad_item\n! bad_item\n" + read},
	{"lines", "import", "", event + "\n\r\n" + event, read + "\n" + read},
	{"a form of base64", "track", "", "ip=1&data=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(event))), read},
	{"a form of JSON", "track", "", "data=" + url.QueryEscape("["+event+"]") + "&verbose=1", read},
	{"a form of JSON in lower case", "track", "", "data=%7b%7d", ` @0 {}`},
	{"a form with spaces", "track", "", "data={\"a\":+\"b\"}", ` @0 {"a": "b"}`},
	{"milliseconds", "track", "", `{"properties":{"time":1763629674100}}`, ` @1763629674100 {"properties":{"time":1763629674100}}`},
	{"seconds with a fraction", "track", "", `{"properties":{"time":1763629674.123}}`, ` @1763629674123 {"properties":{"time":1763629674.123}}`},
	{"times that are none", "track", "", `[{"properties":{"time":-1}},{"properties":{"time":"soon"}}]`, ` @0 {"properties":{"time":-1}}` + "\n" + ` @0 {"properties":{"time":"soon"}}`},
	{"an update of a profile", "engage", "", `[{"$token":"k","$distinct_id":7,"$set":{}}]`, `7 @0 {"$token":"k","$distinct_id":7,"$set":{}}`},
	{"a device", "track", "", `{"properties":{"$device_id":"d"}}`, `d @0 {"properties":{"$device_id":"d"}}`},
	{"properties that are none", "track", "", `[{"properties":[]},{"properties":7},{}]`, ` @0 {"properties":[]}` + "\n" + ` @0 {"properties":7}` + "\n" + ` @0 {}`},
	{"one too large", "track", "", "[" + large + ",{}]", "! too_large\n @0 {}"},
	{"a line too large", "import", "", large + "\n{}", "! too_large\n @0 {}"},
	{"an empty batch", "import", "", `[]`, ""},
	{"a line that is no JSON", "import", "", event + "\n{", noBody},
	{"a text", "track", "", `lap`, noBody},
	{"a form without data", "track", "", `ip=1&verbose=1`, noBody},
	{"a form with half an escape", "track", "", `data=%7`, noBody},
	{"a form with a wrong escape", "track", "", `data=%7x`, noBody},
	{"a form of nothing", "track", "", `data=`, noBody},
	{"base64 of no JSON", "track", "", `data=AAAA`, noBody},
	{"no base64", "track", "", `data=a*b=`, noBody},
}

func TestAnEventIsOfItsPerson(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, mixpanel.Adapter{}, rows)
}

func TestTheTokenIsTheKey(t *testing.T) {
	t.Parallel()
	for _, body := range []string{event, "[" + event + "]", event + "\n" + event, `{"$token":"k"}`} {
		if batch, err := (mixpanel.Adapter{}).Open(protocoltest.Request("track"), []byte(body)); err != nil || batch.Key != "k" {
			t.Errorf("%s: got %q, %v", body, batch.Key, err)
		}
	}
}

func TestAnAnswerIsADigitOrAnObject(t *testing.T) {
	t.Parallel()
	drop := []wire.Result{{Index: 0, Disposition: wire.Warning}, {Index: 1, Disposition: wire.Drop, Reason: "stale"}, {Index: 2, Disposition: wire.Drop, Reason: "bad_item"}}
	for call, want := range map[string]string{
		"track": "1", "track?verbose=1": `{"status":1,"error":""}`,
		"import": `{"code":400,"status":"Bad Request","error":"some data points in the request failed validation","num_records_imported":1,"failed_records":[{"index":1,"message":"stale"},{"index":2,"message":"bad_item"}]}`,
	} {
		if _, text := (mixpanel.Adapter{}).Answer(protocol.Answer{Request: protocoltest.Request(call), Count: 3, Accepted: 1, Results: drop}); string(text) != want {
			t.Errorf("%s: got %s, want %s", call, text, want)
		}
	}
	for call, want := range map[string]string{"track": "0", "track?verbose=1": `{"status":0,"error":"m"}`, "import": `{"code":503,"error":"m"}`} {
		if status, text := (mixpanel.Adapter{}).Failure(protocol.Failure{Request: protocoltest.Request(call), Status: 503, Message: "m"}); status != 503 || string(text) != want {
			t.Errorf("%s: got %s, want %s", call, text, want)
		}
	}
}

// Python's SDK reads an object, whatever the call.
func TestAFormMayAskForAnObject(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{"data={}&verbose=1&ip=0": `{"status":1,"error":""}`, "ip=0&data={}": "1"} {
		for _, call := range []string{"track", "import"} {
			r := protocoltest.Request(call, "Content-Type: application/x-www-form-urlencoded")
			batch, err := mixpanel.Adapter{}.Open(r, []byte(body))
			if _, text := (mixpanel.Adapter{}).Answer(protocol.Answer{Request: r, Notes: batch.Notes, Count: 1, Accepted: 1}); err != nil || string(text) != want {
				t.Errorf("%s of %s: got %s, %v, want %s", call, body, text, err, want)
			}
			if _, text := (mixpanel.Adapter{}).Failure(protocol.Failure{Request: r, Status: 503, Message: "m"}); string(text) != `{"status":0,"error":"m"}` {
				t.Errorf("%s: got %s", call, text)
			}
		}
	}
}

func FuzzMixpanel(f *testing.F) { protocoltest.Fuzz(f, mixpanel.Adapter{}, rows) }
