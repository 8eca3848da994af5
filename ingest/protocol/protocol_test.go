package protocol_test

import (
	"bytes"
	"encoding/base64"
	"iter"
	"net/url"
	"strings"
	"testing"
	"unsafe"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/amplitude"
	"github.com/spillway-io/spillway/ingest/protocol/posthog"
	"github.com/spillway-io/spillway/ingest/protocol/segment"
	"github.com/spillway-io/spillway/ingest/wire"
)

// read opens a batch of one event and reads it.
func read(t *testing.T, event string, paths protocol.Paths) protocol.Event {
	t.Helper()
	batch, err := segment.Adapter{}.Open(protocol.Request{Call: "batch"}, []byte(`{"sentAt":"2020-01-01T00:00:13.000Z","batch":[`+event+`]}`))
	if err != nil {
		t.Fatalf("%s: %v", event, err)
	}
	for raw := range batch.Events() {
		e, why := batch.Read(raw, paths)
		if why != "" {
			t.Fatalf("%s: %s", event, why)
		}
		return e
	}
	t.Fatalf("%s: no event", event)
	return protocol.Event{}
}

func TestTheFirstPathWithANameCounts(t *testing.T) {
	t.Parallel()
	paths, err := protocol.ParsePaths([]string{"a.b", "c", "$d.e.f", "*"})
	if err != nil {
		t.Fatal(err)
	}
	for event, want := range map[string]string{
		`{"c":"second","a":{"b":"first"}}`:            "first",
		`{"a":{"b":""},"c":"second"}`:                 "second",
		`{"a":{"b":true},"c":2}`:                      "2",
		`{"a":"b","c":null,"$d":{"e":{"f":"third"}}}`: "third",
		`{"a":[{"b":"x"}]}`:                           "",
		`{"x":"y"}`:                                   "",
		`{"*":"plain"}`:                               "plain",
		`{"c":"..a/b c"}`:                             "a-b-c",
		`{"c":"a\u00e9\ud83d\ude00b"}`:                "a--b",
		`{"c":"` + strings.Repeat("n", 200) + `"}`:    strings.Repeat("n", 128),
		`{"c":-1.5}`:                                  "1.5",
	} {
		if got := read(t, event, paths).Partition; got != want {
			t.Errorf("%s: got %q, want %q", event, got, want)
		}
	}
	for _, bad := range [][]string{{""}, {"a."}, {".a"}, {strings.Repeat("a", 129)}, {"a.a.a.a.a.a.a.a.a"}, strings.Split("abcdefghi", "")} {
		if _, err := protocol.ParsePaths(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestTimesAreISO8601OrMilliseconds(t *testing.T) {
	t.Parallel()
	const second10 = 1577836810000
	for text, want := range map[string]int64{ // 0: none
		`"2020-01-01T00:00:10.000Z"`:           second10,
		`"2020-01-01T00:00:10Z"`:               second10,
		`"2020-01-01T00:00:10.123456789Z"`:     second10 + 123,
		`"2020-01-01T02:00:10.5+02:00"`:        second10 + 500,
		`"2020-01-01T00:00:10.5"`:              second10 + 500,
		`1577836810000`:                        second10,
		`1577836810`:                           1577836810,
		`1577836810000000`:                     0,
		`1577836810000.5`:                      0,
		`"1577836810000"`:                      0,
		`"2020-01-01"`:                         0,
		`"2020-13-01T00:00:10Z"`:               0,
		`null`:                                 0,
		`{}`:                                   0,
		`"` + strings.Repeat("2020", 20) + `"`: 0,
	} {
		e := read(t, `{"timestamp":`+text+`}`, nil)
		if e.HasTS != (want != 0) || e.TS != want && e.HasTS {
			t.Errorf("%s: got %d %t, want %d", text, e.TS, e.HasTS, want)
		}
	}
	if e := read(t, `{"timestamp":null,"originalTimestamp":1577836810000,"sentAt":1577836811000}`, nil); e.TS != second10 || e.SentAt != second10+1000 {
		t.Errorf("got %d %d", e.TS, e.SentAt)
	}
	if e := read(t, `{"sentAt":"never"}`, nil); e.SentAt != second10+3000 || !e.HasSentAt {
		t.Errorf("got %d: the batch's clock counts", e.SentAt)
	}
}

var seeds = []string{
	``, `7`, `null`, `[]`, `{}`, `[{}]`, `{"batch":[]}`, `{"batch":{}}`, `{"batch":[7,null,{},[]]}`, ` {"batch": [ {"a" : 1} , {} ] } `,
	`{"writeKey":"k","sentAt":"2020-01-01T00:00:13.000Z","batch":[{"messageId":"m","timestamp":"2020-01-01T00:00:10Z","context":{"app":{"name":"Kart Racer"}}}]}`,
	`{"batch":[{"originalTimestamp":"2020-01-01T00:00:10","sentAt":1577836812000,"properties":{"game":-7.5e3}}]}`,
	`{"api_key":"k","events":[{"insert_id":"i","time":1763629674100,"app_name":"\u00e9\ud800"},{"time":-1},{"time":null}],"client_upload_time":"x"}`,
	`[{"event":"e","properties":{"token":"k","$host":"h"}},{"properties":[]}]`,
	`{"api_key":1,"batch":1,"batch":[{"":1,"uuid":"","uuid":7}]}`,
	`{"":[{}],"batch":[{"properties":{"game":"a","game":"b"}}]}`,
	"data=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(`{"api_key":"k","event":"e"}`))) + "&ip=1", `data=%`, `data=e30=`, `data=e%330%3d`, "data=e3\r\n0=",
}

// check opens a body and holds what comes out to the limits.
func check(t *testing.T, adapter protocol.Adapter, calls []string, body []byte) {
	for _, call := range calls {
		text := bytes.Clone(body) // Open may write into it
		batch, err := adapter.Open(protocol.Request{Call: call}, text)
		if err != nil {
			continue
		}
		first := uintptr(unsafe.Pointer(unsafe.SliceData(text)))
		for raw := range batch.Events() {
			e, why := batch.Read(raw, adapter.Paths())
			if why != "" {
				if why != wire.ReasonBadItem && why != wire.ReasonBadTS || e.Data != nil {
					t.Errorf("%q: dropped for %q", raw, why)
				}
				continue
			}
			at := uintptr(unsafe.Pointer(unsafe.SliceData(e.Data)))
			if at < first || at+uintptr(len(e.Data)) > first+uintptr(len(text)) {
				t.Errorf("%q is no part of the body", e.Data)
			}
			if !wire.ValidJSON(e.Data) || e.Data[0] != '{' || e.Data[len(e.Data)-1] != '}' {
				t.Errorf("%q is no object", e.Data)
			}
			if len(e.Partition) > protocol.MaxPartitionLen || strings.ContainsAny(e.Partition, "/ \x00\"\u00ff") {
				t.Errorf("%q is no partition", e.Partition)
			}
			if _, again := batch.Read(raw, protocol.Paths{{"a"}, {"batch", "a"}}); again != "" {
				t.Errorf("%q: read again it is dropped for %s", raw, again)
			}
		}
	}
	for _, a := range []protocol.Answer{{}, {Accepted: 1}, {Results: []wire.Result{{Index: 3, Disposition: wire.Drop, Reason: wire.ReasonStale}, {Index: 4, Disposition: wire.Warning}, {Index: 5, Disposition: wire.Drop, Reason: wire.ReasonStale}}}} {
		if status, text := adapter.Answer(a); !wire.ValidJSON(text) || status != 200 && status != 400 {
			t.Errorf("%d %s", status, text)
		}
	}
	for _, status := range []int{400, 401, 429, 503} {
		if _, text := adapter.Failure(protocol.Failure{Code: wire.CodeBadJSON, Status: status, Message: string(body)}); !wire.ValidJSON(text) {
			t.Errorf("%d %s", status, text)
		}
	}
	if key := adapter.HeaderKey(header(body)); len(key) > len(body) {
		t.Errorf("the key %q of %q", key, body)
	}
}

// header is the only one of a request.
type header []byte

func (h header) Peek(string) []byte             { return h }
func (h header) All() iter.Seq2[[]byte, []byte] { return nil }

func fuzz(f *testing.F, adapter protocol.Adapter, calls ...string) {
	for _, seed := range append(seeds, "Basic azo=", "basic azpw", "Basic %%", strings.Repeat("[", 600)) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) { check(t, adapter, calls, body) })
}

func FuzzSegment(f *testing.F)   { fuzz(f, segment.Adapter{}, "batch", "track") }
func FuzzPostHog(f *testing.F)   { fuzz(f, posthog.Adapter{}, "batch") }
func FuzzAmplitude(f *testing.F) { fuzz(f, amplitude.Adapter{}, "batch") }

// A form is decoded in place, which must give what decoding elsewhere gives.
func FuzzPostHogForm(f *testing.F) {
	f.Add([]byte(`{"api_key":"k","event":"e"}`), true)
	f.Add([]byte(`{"a":"`+strings.Repeat("x", 100)+`"}`), false)
	f.Fuzz(func(t *testing.T, object []byte, escape bool) {
		text := base64.StdEncoding.EncodeToString(object)
		if escape {
			text = url.QueryEscape(text)
		}
		plain, plainErr := posthog.Adapter{}.Open(protocol.Request{Call: "e"}, bytes.Clone(object))
		form, formErr := posthog.Adapter{}.Open(protocol.Request{Call: "e"}, []byte("data="+text))
		if bytes.HasPrefix(object, []byte("data=")) {
			return
		}
		if (plainErr == nil) != (formErr == nil) || plain.Key != form.Key {
			t.Fatalf("%q: got %v %q, want %v %q", object, formErr, form.Key, plainErr, plain.Key)
		}
		if plainErr != nil {
			return
		}
		var want, got []string
		for raw := range plain.Events() {
			want = append(want, raw)
		}
		for raw := range form.Events() {
			got = append(got, raw)
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
