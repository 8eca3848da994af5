package protocol_test

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/segment"
)

// read opens a batch of one event and reads it.
func read(t *testing.T, event string, paths protocol.Paths) protocol.Event {
	t.Helper()
	batch, err := segment.Adapter{}.Open("batch", []byte(`{"sentAt":"2020-01-01T00:00:13.000Z","batch":[`+event+`]}`))
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
