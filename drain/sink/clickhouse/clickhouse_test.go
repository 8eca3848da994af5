package clickhouse

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

var batch = sinktest.Batch

var today = []string{"async_insert", "insert_deduplication_token", "wait_for_async_insert"}

func TestBatchesOfManyPartitionsAreOneInsert(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := f.open(t, "")
	b := batch("c", 1763629675123456, "\x00\t\r\n\"\\ ü", `{"n":1}`)
	b.Entries[0].ID = []byte("id-0")
	if err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, "1", "2"), batch("b", 1, "3"), b}); err != nil {
		t.Fatal(err)
	}
	want := []row{
		{"kart", "a", "", "1", 1, 1763629675100}, {"kart", "a", "", "2", 2, 1763629675100}, {"kart", "b", "", "3", 1, 1763629675100},
		{"kart", "c", "id-0", "\x00\t\r\n\"\\ ü", 1763629675123456, 1763629675100}, {"kart", "c", "", `{"n":1}`, 1763629675123457, 1763629675100},
	}
	if len(f.seen) != 1 || fmt.Sprint(f.rows) != fmt.Sprint(want) {
		t.Errorf("%d INSERTs made\n%v, want\n%v", len(f.seen), f.rows, want)
	}
}

func TestSettingsGoOnlyToServersThatKnowThem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		known   []string
		options string
		want    map[string]string
	}{
		{nil, "", map[string]string{"insert_deduplication_token": "", "wait_for_async_insert": "", "async_insert": ""}},
		{today, "", map[string]string{"wait_for_async_insert": "1", "async_insert": ""}},
		{today, "&async_insert=1", map[string]string{"wait_for_async_insert": "1", "async_insert": "1"}},
		{today, "&async_insert=0", map[string]string{"wait_for_async_insert": "1", "async_insert": ""}},
	} {
		f := newFake(t, c.known...)
		if err := f.open(t, c.options).Write(t.Context(), []*sink.Batch{batch("a", 1, "1")}); err != nil {
			t.Fatal(err)
		}
		c.want["input_format_allow_errors_num"], c.want["input_format_allow_errors_ratio"] = "0", "0"
		for name, want := range c.want {
			if got := f.seen[0].Get(name); got != want {
				t.Errorf("%q %s: %s is %q, want %q", c.known, c.options, name, got, want)
			}
		}
		if got := f.seen[0].Get("insert_deduplication_token"); len(got) != len(c.known)/3*32 {
			t.Errorf("%q: the token is %q", c.known, got)
		}
	}
}

func TestTheSameBatchesAgainAreOneInsertWhereTheServerKnowsTheToken(t *testing.T) {
	t.Parallel()
	f := newFake(t, today...)
	s := f.open(t, "")
	for attempt := range 3 {
		again := []*sink.Batch{batch("a", 1, "1", "2"), batch("b", 1, "3")}
		again[0].Attempt += attempt
		if err := s.Write(t.Context(), again); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, "1", "2")}); err != nil {
		t.Fatal(err)
	}
	if len(f.tokens) != 2 || len(f.rows) != 5 {
		t.Errorf("got %d tokens and %d rows, want 2 and 5", len(f.tokens), len(f.rows))
	}
}

func TestEveryAnswerHasAnOutcome(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := f.open(t, "")
	const canary = "c4n4ry"
	for _, c := range []struct {
		status int
		body   string
		header string // X-ClickHouse-Exception-Code
		after  string // Retry-After
		want   string
	}{
		{200, "", "", "", "accepted"}, {200, "\n", "", "", "accepted"}, {204, "", "", "", "accepted"},
		{200, "Ok.\n", "", "", "retry"}, {200, "<html>" + canary, "", "", "retry"},
		{200, "Code: 117. DB::Exception: " + canary, "", "", "permanent"}, {200, "", "117", "", "permanent"}, {200, "", "241", "", "throttle 1s"},
		{200, "Code: 999. DB::Exception: " + canary, "", "", "retry"}, {200, "Code: 60, e.what()", "", "", "not connected"},
		{500, "Code: 117, e.displayText() = " + canary, "", "", "permanent"}, {500, "Code: 53, e.displayText() = " + canary, "", "", "permanent"},
		{400, "Code: 27. DB::Exception: " + canary, "27", "", "permanent"}, {500, "Code: 469. " + canary, "", "", "permanent"},
		{500, "Code: 252. DB::Exception", "", "", "throttle 5s"}, {500, "Code: 202. x", "", "", "throttle 1s"}, {503, "Code: 202. x", "", "9", "throttle 1s"},
		{500, "Code: 210. x", "", "", "retry"}, {500, "Code: 1170. x", "", "", "retry"}, {500, "Code: 11", "", "", "retry"}, {500, "Code: x", "", "", "retry"},
		{500, canary, "", "", "retry"}, {500, "", "", "", "retry"}, {502, "", "", "", "retry"}, {504, "", "", "", "retry"}, {408, "", "", "", "retry"},
		{429, "", "", "", "retry"}, {429, "", "", "7", "throttle 7s"}, {503, "", "", "7", "throttle 7s"}, {503, "", "", "60000", "throttle 1h0m0s"}, {503, "", "", "-1", "retry"}, {503, "", "", "Sun", "retry"},
		{401, "Code: 193, e.displayText() = " + canary, "", "", "not connected"}, {403, "Code: 516. x", "", "", "not connected"}, {404, "Code: 60. x", "", "", "not connected"}, {404, "Code: 81. x", "", "", "not connected"},
		{404, "Code: 46. x", "", "", "not connected"}, {500, "Code: 164, x", "", "", "not connected"}, {500, "Code: 16, x", "", "", "not connected"}, {403, "", "", "", "not connected"}, {404, canary, "", "", "not connected"}, {302, "", "", "", "not connected"},
		{400, "", "", "", "permanent"}, {413, canary, "", "", "permanent"}, {400, "Code: 999. x", "", "", "permanent"},
	} {
		f.set(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("X-ClickHouse-Exception-Code", c.header)
			w.Header().Set("Retry-After", c.after)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, "1")})
		if got := sinktest.Kind(err); got != c.want {
			t.Errorf("%d %q %s: got %s, want %s (%v)", c.status, c.body, c.header, got, c.want, err)
		}
		if err != nil && (strings.Contains(err.Error(), canary) || len(err.Error()) > 200) {
			t.Errorf("%d %q: the error repeats the answer: %v", c.status, c.body, err)
		}
		if got := sink.Detail(err); got != "" && (got != c.body || c.want != "permanent") || got == "" && c.want == "permanent" && c.body != "" {
			t.Errorf("%d %q: the detail is %q", c.status, c.body, got)
		}
	}
}

func TestOpenSaysWhatAnOperatorHasToMend(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for target, want := range map[string]string{
		"clickhouse://writer:wrong@HOST/game?table=events":                 "ClickHouse error 516: user or password is wrong",
		"clickhouse://HOST/game?table=events":                              "ClickHouse error 516: user or password is wrong",
		"clickhouse://writer:s3cret@HOST/other?table=events":               "ClickHouse error 81: the database does not exist",
		"clickhouse://writer:s3cret@HOST/game?table=other":                 "into other: ClickHouse error 60: the table does not exist: deploy/sql/clickhouse.sql makes one",
		"clickhouse://writer:s3cret@HOST/game?table=events&async_insert=1": "the server does not know async_insert: leave it out",
		"clickhouse://writer:s3cret@127.0.0.1:1/game?table=events":         "post to 127.0.0.1:1: dial tcp 127.0.0.1:1: ",
		"clickhouse://writer:s3cret@HOST/game?table=events&secure=1":       "tls: first record does not look like a TLS handshake",
	} {
		s := newSink(t, strings.Replace(target, "HOST", f.Listener.Addr().String(), 1))
		err := s.Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "wrong@") {
			t.Errorf("%s: got %v, want %s", target, err, want)
		}
		if err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, "1")}); !errors.Is(err, sink.ErrNotConnected) {
			t.Errorf("%s: Write without Open: got %v", target, err)
		}
	}
}

func TestAServerThatIsNoClickHouseIsNotTakenForOne(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "Ok.\n", "<html></html>", "async_insert\n"} {
		f := newFake(t)
		f.set(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		s := newSink(t, strings.Replace(f.URL, "http", "clickhouse", 1)+"/game?table=events")
		if err := s.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "not ClickHouse's") {
			t.Errorf("%q: got %v", body, err)
		}
	}
}

func TestTheEndpointIsThatOfTheURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"clickhouse://h/d?table=t": "http://h:8123/", "clickhouse://h/d?table=t&secure=1": "https://h:8443/",
		"clickhouse://h:1/d?table=t&secure=0": "http://h:1/", "clickhouse://[::1]/d?table=t": "http://[::1]:8123/",
	} {
		if got := newSink(t, raw).endpoint; got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

// FuzzAppendString holds the escapes to what a JSON reader makes of them.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a\"b\\c\n\r\t\x00\x1f\x7f", "ü🎮\u2028", `\u0000`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		s = strings.ToValidUTF8(s, "") // encoding/json replaces what is not; ClickHouse does not
		if err := json.Unmarshal(appendString(nil, []byte(s)), &got); err != nil || got != s {
			t.Errorf("%q became %q, %v", s, got, err)
		}
	})
}

// Batches of quiet partitions have one entry.
func TestOneInsertMayHaveAsManyBatchesAsRows(t *testing.T) {
	t.Parallel()
	caps := newSink(t, "clickhouse://127.0.0.1/default?table=events").Caps()
	if caps.MaxBatches < caps.PreferEntries {
		t.Errorf("got %+v", caps)
	}
}
