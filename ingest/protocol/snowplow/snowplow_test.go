package snowplow_test

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/protocoltest"
	"github.com/spillway-io/spillway/ingest/protocol/snowplow"
)

const (
	tp2   = "com.snowplowanalytics.snowplow/tp2"
	event = `{"e":"pv","aid":"kart 7","eid":"id-1","dtm":"1763629674100"}`
)

var noBody = protocol.ErrBody.Error()

var rows = []protocoltest.Row{
	{"a payload", tp2, "", `{"schema":"iglu:x","data":[` + event + `]}`, "kart-7 id-1@1763629674100 " + event},
	{"events that are none", tp2, "", `{"data":[7,"x",[],{}]}`, "! bad_item\n! bad_item\n! bad_item\n @0 {}"},
	{"a time that is none", tp2, "", `{"data":[{"dtm":"soon"},{"dtm":-1},{"dtm":"99999999999999"}]}`, ` @0 {"dtm":"soon"}` + "\n" + ` @0 {"dtm":-1}` + "\n" + ` @0 {"dtm":"99999999999999"}`},
	{"one too large", tp2, "", `{"data":[{"a":"` + strings.Repeat("x", 2000) + `"},{}]}`, "! too_large\n @0 {}"},
	{"no events", tp2, "", `{"data":[]}`, ""},
	{"no data", tp2, "", `{}`, noBody},
	{"data that is an object", tp2, "", `{"data":{}}`, noBody},
	{"a list", tp2, "", `[` + event + `]`, noBody},
	{"no JSON", tp2, "", `e=pv`, noBody},
	{"513 levels", tp2, "", `{"data":` + strings.Repeat("[", 513) + strings.Repeat("]", 513) + `}`, noBody},
	{"the pixel", "i?aid=kart+7&dtm=1763629674100&e=pv&eid=id-1", "", "", `kart-7 id-1@1763629674100 {"aid":"kart 7","dtm":"1763629674100","e":"pv","eid":"id-1"}`},
	{"a pixel with quotes", "i?a=%22%5C%00", "", "", ` @0 {"a":"\"\\\u0000"}`},
	{"a pixel without anything", "i", "", "", " @0 {}"},
	{"a pixel that is not UTF-8", "i?a=%ff", "", "", ` @0 {"a":"` + "\ufffd" + `"}`},
}

func TestAnEventIsOfItsApplication(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, snowplow.Adapter{}, rows)
}

func TestTheApplicationIsTheKey(t *testing.T) {
	t.Parallel()
	if batch, err := (snowplow.Adapter{}).Open(protocoltest.Request(tp2), []byte(`{"data":[{"aid":"k"}]}`)); err != nil || batch.Key != "k" {
		t.Errorf("got %q, %v", batch.Key, err)
	}
	if batch, err := (snowplow.Adapter{}).Open(protocoltest.Request("i?aid=k"), nil); err != nil || batch.Key != "k" {
		t.Errorf("got %q, %v", batch.Key, err)
	}
}

// A tracker sends again after all others.
func TestWhatNeverPassesIsAnsweredWithAStatusThatEndsIt(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{400: 400, 401: 401, 404: 422, 413: 422, 415: 422, 429: 429, 503: 503} {
		if got, text := (snowplow.Adapter{}).Failure(protocol.Failure{Status: status, Message: "m"}); got != want || string(text) != "m\n" {
			t.Errorf("%d: got %d %s, want %d", status, got, text, want)
		}
	}
}

func FuzzSnowplow(f *testing.F) { protocoltest.Fuzz(f, snowplow.Adapter{}, rows) }
