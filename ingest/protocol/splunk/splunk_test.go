package splunk_test

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/protocoltest"
	"github.com/spillway-io/spillway/ingest/protocol/splunk"
	"github.com/spillway-io/spillway/ingest/wire"
)

var (
	large  = `{"event":"` + strings.Repeat("x", 2000) + `"}`
	noBody = protocol.ErrBody.Error()
)

const call = "services/collector/event"

var rows = []protocoltest.Row{
	{"an event", call, "", `{"event":{"n":1},"time":1763629674.1,"source":"kart 7","index":"main"}`, `kart-7 @1763629674100 {"event":{"n":1},"time":1763629674.1,"source":"kart 7","index":"main"}`},
	{"a time that is a text", call, "", `{"event":1,"time":"1763629674.100"}`, ` @1763629674100 {"event":1,"time":"1763629674.100"}`},
	{"times that are none", call, "", `{"event":1,"time":"now"}{"event":1,"time":-1}{"event":1,"time":1e300}{"event":1,"time":{}}{"event":1,"time":"NaN"}`,
		` @0 {"event":1,"time":"now"}` + "\n" + ` @0 {"event":1,"time":-1}` + "\n" + ` @0 {"event":1,"time":1e300}` + "\n" + ` @0 {"event":1,"time":{}}` + "\n" + ` @0 {"event":1,"time":"NaN"}`},
	{"the index", call, "", `{"event":"x","index":"main","source":"--"}`, `main @0 {"event":"x","index":"main","source":"--"}`},
	{"the source of the query", call + "?source=kart&index=main", "", `{"event":"x"}`, `kart @0 {"event":"x"}`},
	{"events one after the other", call, "", `{"event":"}{"}{"event":"\""}` + "\n\n" + ` {"event":"a"}` + "\n", ` @0 {"event":"}{"}` + "\n" + ` @0 {"event":"\""}` + "\n" + ` @0 {"event":"a"}`},
	{"no event among others", call, "", `{"time":1}{"event":null}{"event":1}`, "! bad_item\n! bad_item\n" + ` @0 {"event":1}`},
	{"one too large", call, "", large + `{"event":1}`, "! too_large\n" + ` @0 {"event":1}`},
	{"keys twice", call, "", `{"event":1,"source":"a","source":"b"}`, `b @0 {"event":1,"source":"a","source":"b"}`},
	{"a source that is a list", call, "", `{"event":1,"source":["a"]}`, ` @0 {"event":1,"source":["a"]}`},
	{"lines", "services/collector/raw?index=main", "", "a\r\n\n{\"b\":\n", "main @0 a\nmain @0 {\"b\":"},
	{"a line too large", "services/collector/raw", "", strings.Repeat("x", 2000) + "\nb", "! too_large\n @0 b"},
	{"nothing", call, "", " \n", ""},
	{"an array", call, "", `[{"event":1}]`, noBody},
	{"a comma between", call, "", `{"event":1},{"event":2}`, noBody},
	{"no end", call, "", `{"event":1}{"event":"}`, noBody},
	{"an end too many", call, "", `{"event":1}}`, noBody},
	{"braces that are no JSON", call, "", `{event}`, noBody},
	{"1000 levels without an end", call, "", strings.Repeat(`{"a":`, 1000), noBody},
	{"a text", call, "", `event`, noBody},
	{"a quote", call, "", `"`, noBody},
	{"a text without an end", call, "", `"abc`, noBody},
	{"a quote behind an event", call, "", `{"event":1}"`, noBody},
	{"a NUL", call, "", "{\"event\":\"\x00\"}", noBody},
}

func TestAnObjectIsAnEventOfItsSource(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, splunk.Adapter{}, rows)
}

func TestAnAnswerNamesTheFirstBadEventWhenNoneIsStored(t *testing.T) {
	t.Parallel()
	a := protocol.Answer{Count: 1, Results: []wire.Result{{Index: 0, Disposition: wire.Drop, Reason: wire.ReasonBadItem}}}
	if status, text := (splunk.Adapter{}).Answer(nil, a); status != 400 || string(text) != `{"text":"Invalid data format","code":6,"invalid-event-number":0}` {
		t.Errorf("got %d %s", status, text)
	}
	for status, want := range map[int]string{401: `{"text":"m","code":4}`, 503: `{"text":"m","code":9}`, 413: `{"text":"m","code":6}`} {
		if _, text := (splunk.Adapter{}).Failure(nil, protocol.Failure{Status: status, Message: "m"}); string(text) != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}

func FuzzSplunk(f *testing.F) { protocoltest.Fuzz(f, splunk.Adapter{}, rows) }
