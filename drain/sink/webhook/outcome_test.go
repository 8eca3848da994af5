package webhook

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

// A deploy, or a token that was rotated: tries and ttl bound them.
func TestJobsAreRetriedWhereTheEndpointIsAtFault(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Path[1:])
		w.Header().Set("Retry-After", r.URL.RawQuery)
		w.WriteHeader(code)
	})
	for code := 200; code < 600; code++ {
		jobs := batch("1", "2")
		jobs.Jobs = make([]sink.Job, 2)
		want := outcomeOf(code)
		if want == outcomeOf(http.StatusGone) && code != http.StatusGone {
			want = "retry"
		}
		if got := sinktest.Kind(post(t, newSink(t, fmt.Sprintf("%s/%d", srv.URL, code)), jobs)); got != want {
			t.Errorf("%d: got %s, want %s", code, got, want)
		}
		if code != 429 && code != 503 {
			continue
		}
		err := post(t, newSink(t, fmt.Sprintf("%s/%d?7", srv.URL, code)), batch("1", "2"))
		if got := sinktest.Kind(err); got != "throttle 7s" {
			t.Errorf("%d with Retry-After: got %s", code, got)
		}
	}
}

// answering is a sink whose receiver answers 200 with a body. Of 128 entries.
func answering(t *testing.T, body string, headers ...string) error {
	t.Helper()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		io.WriteString(w, body)
	})
	return post(t, newSink(t, srv.URL), batch(make([]string, 128)...))
}

// results is an answer that drops every one of n entries, with a message of so
// many bytes each.
func results(n, message int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"i":%d,"result":"drop","reason":"too_large","message":"%s"}`, i, strings.Repeat("m", message)))
	}
	return `{"accepted":0,"results":[` + strings.Join(list, ",") + `]}`
}

func TestResultsWithLongMessagesAreReadToTheEnd(t *testing.T) {
	t.Parallel()
	for _, message := range []int{0, 500, 4000} {
		var named *sink.BatchError
		if err := answering(t, results(128, message)); !errors.As(err, &named) || len(named.Failed) != 128 || sinktest.Kind(err)[:13] != "0.0 permanent" {
			t.Errorf("messages of %d bytes: got %v, want 128 drops", message, err)
		}
	}
}

func TestAnAnswerThatMayHideResultsIsRetried(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"too long":             answering(t, results(128, 5000)),
		"too long, no results": answering(t, `{"echo":"`+strings.Repeat("x", maxAnswer)+`"}`),
		"blank for too long":   answering(t, strings.Repeat(" ", maxAnswer)+results(1, 0)),
		"compressed":           answering(t, "\x1f\x8b…", "Content-Encoding: gzip"),
	} {
		if got := sinktest.Kind(err); got != "retry" || !strings.Contains(err.Error(), ": answered 200, but ") {
			t.Errorf("%s: got %s: %v", name, got, err)
		}
	}
	for name, err := range map[string]error{
		"long text":              answering(t, strings.Repeat("x", 2*maxAnswer)),
		"a long list":            answering(t, "["+strings.Repeat("1,", maxAnswer)+"1]"),
		"compressed, but empty":  answering(t, "", "Content-Encoding: gzip"),
		"in the identity coding": answering(t, "ok", "Content-Encoding: identity"),
	} {
		if err != nil {
			t.Errorf("%s: got %v, want all accepted", name, err)
		}
	}
}

func TestA2xxMayNameWhatItDidNotTake(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		// Nothing that could hold results: the status alone counts.
		"": "accepted", "ok": "accepted", "null": "accepted", "[]": "accepted", " \n": "accepted", "<p>{</p>": "accepted",
		`[{"i":1,"result":"drop"}]`: "accepted",
		// An object without results.
		"{}": "accepted", `{"results":null}`: "accepted", `{"results":[]}`: "accepted", `{"result":"drop","i":1}`: "accepted",
		// Results.
		`{"results":[{"i":1,"result":"retry"}]}`:                                             "0.1 retry",
		`{"results":[{"i":2,"result":"drop","reason":"x"}]}`:                                 "0.2 permanent",
		`{"results":[{"i":2,"result":"drop"},{"i":0,"result":"retry"}],"accepted":1}`:        "0.2 permanent, 0.0 retry",
		`{"results":[{"i":0,"result":"ok"},{"i":1,"result":"warning","reason":"unskewed"}]}`: "accepted",
		`{"results":[{"i":1,"result":"drop"},{"i":1,"result":"retry"}]}`:                     "0.1 permanent",
		`{"results":[{"i":1,"result":"drop"}],"results":[]}`:                                 "0.1 permanent",
		"\xef\xbb\xbf\r\n\t " + `{"results":[{"i":1,"result":"drop"}]}`:                      "0.1 permanent",
		`{"results":[{"i":1,"result":"drop","reason":{"why":7},"message":"m"}]}`:             "0.1 permanent",
		`{"results":[{"i":0,"result":"ok"},{"i":0,"result":"drop"}]}`:                        "0.0 permanent",
		// An object that is cut short, or whose results are not of the form: some
		// entry may not have been taken, so all of them come again.
		`{"results":[{"i":1,"result":"retry"}]`: "retry", `{"results":[{"i":1,"result":"retry"}]} trailing`: "retry", "{": "retry", "{ok}": "retry",
		`{"results":{}}`: "retry", `{"results":"retry"}`: "retry", `{"results":7}`: "retry", `{"results":[7]}`: "retry", `{"results":[null]}`: "retry",
		`{"results":[{"i":-1,"result":"drop"}]}`: "retry", `{"results":[{"i":3,"result":"drop"}]}`: "retry", `{"results":[{"i":99999999999999999999,"result":"drop"}]}`: "retry",
		`{"results":[{"i":"1","result":"drop"}]}`: "retry", `{"results":[{"i":1.5,"result":"drop"}]}`: "retry", `{"results":[{"result":"drop"}]}`: "retry",
		`{"results":[{"i":null,"result":"drop"}]}`: "retry", `{"results":[{"i":1}]}`: "retry", `{"results":[{"i":1,"result":7}]}`: "retry",
		`{"results":[{"i":1,"result":"failed"}]}`: "retry", `{"results":[{"i":1,"result":"drop"},{"id":"abc","status":"ok"}]}`: "retry",
		strings.Repeat(`{"results":[`, 20_000): "retry",
	} {
		failed, err := partial([]byte(answer), http.Header{}, batch("0", "1", "2"))
		if err == nil && failed != nil {
			err = failed
		}
		if got := sinktest.Kind(err); got != want {
			t.Errorf("%.100s: got %s, want %s", answer, got, want)
		}
	}
}

func FuzzPartial(f *testing.F) {
	f.Add(`{"results":[{"i":1,"result":"retry","reason":"too_large"},{"i":0,"result":"drop"}]}`)
	f.Add(`{"results":[{"i":1,"result":"retry"}`)
	f.Add(`{"results":[{"i":0,"result":"drop","reason":"\u001b[31m"}]}`)
	f.Add(`{"results":[{"i":1e99,"result":"retry"}]}`)
	f.Add(`{"RESULTS":[{"I":0,"Result":"retry"}]}`)
	f.Add(`{"results":[null]}`)
	f.Add(`{"results":[{"i":99999999,"result":"retry"},{"i":-1,"result":"drop"},7]}`)
	f.Add(`{"results":[{"i":0,"result":"retry"},{"i":0,"result":"drop"}]}`)
	f.Add(`{"results":[{"i":"0","result":7,"reason":[]}]}`)
	b := batch("0", "1", "2")
	f.Fuzz(func(t *testing.T, answer string) {
		named, err := partial([]byte(answer), http.Header{}, b)
		if err != nil {
			if len(err.Error()) > 200 || named != nil {
				t.Fatalf("got %v and %v", named, err)
			}
			return
		}
		if named == nil {
			return
		}
		seen := map[int]bool{}
		for _, e := range named.Failed {
			if e.Batch != 0 || e.Entry < 0 || e.Entry > 2 || seen[e.Entry] || e.Err == nil || len(e.Err.Error()) > 200 {
				t.Fatalf("got %+v", e)
			}
			seen[e.Entry] = true
		}
		if len(seen) == 0 {
			t.Fatal("got a failure of no entry")
		}
	})
}

func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, row := range []struct {
		text, date string
		want       time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"7", "", 7 * time.Second},
		{"3601", "", time.Hour},
		{"4294967296", "", time.Hour},
		{"99999999999999999999999", "", time.Hour},
		{"-7", "", 0},
		{"7.5", "", 0},
		{"soon", "", 0},
		{at(7 * time.Second), "", 7 * time.Second},
		{at(-7 * time.Second), "", 0},
		{at(48 * time.Hour), "", time.Hour},
		{at(7 * time.Second), at(2 * time.Second), 5 * time.Second}, // the receiver's clock counts
		{at(7 * time.Second), "yesterday", 7 * time.Second},
	} {
		h := http.Header{"Retry-After": {row.text}, "Date": {row.date}}
		if got := retryAfter(h, now); got != row.want {
			t.Errorf("%q at %q: got %s, want %s", row.text, row.date, got, row.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Add("7", "")
	f.Add(now.Add(time.Minute).Format(http.TimeFormat), now.Format(http.TimeFormat))
	f.Add("-1", "yesterday")
	f.Add("Fri, 02 Jan 2026 03:05:05 GMT", "Fri, 02 Jan 2026 03:04:05 GMT")
	f.Add("Thu, 01 Jan 1970 00:00:00 GMT", "x")
	for _, text := range []string{"Fri, 31 Dec 9999 23:59:59 GMT", "7.5", "-7", "99999999999999999999"} {
		f.Add(text, "")
	}
	f.Fuzz(func(t *testing.T, text, date string) {
		got := retryAfter(http.Header{"Retry-After": {text}, "Date": {date}}, now)
		if got < 0 || got > maxRetryAfter {
			t.Fatalf("%q at %q: got %s", text, date, got)
		}
	})
}

func TestTheReceiversWordsAreInTheDeadLetterOnly(t *testing.T) {
	t.Parallel()
	const words = "no such \"user\" 7\n"
	long := strings.Repeat("grüße ", 100)
	for _, row := range []struct {
		code         int
		body, header string
		want         string
	}{
		{422, words, "", `no such "user" 7`},
		{404, words, "", `no such "user" 7`},
		{400, long, "", long[:256]},
		{400, "a\xff\xfeb", "", "a\ufffdb"},
		{400, "\x1f\x8b\x08", "gzip", ""},
		{400, "", "", ""},
		{200, `{"results":[{"i":0,"result":"drop","reason":"No such user: 7"}]}`, "", "No such user: 7"},
		{200, `{"results":[{"i":0,"result":"drop","reason":"too_large"}]}`, "", ""},
	} {
		srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if row.header != "" {
				w.Header().Set("Content-Encoding", row.header)
			}
			w.WriteHeader(row.code)
			io.WriteString(w, row.body)
		})
		err := post(t, newSink(t, srv.URL), batch("1"))
		var named *sink.BatchError
		if errors.As(err, &named) {
			err = named.Failed[0].Err
		}
		if !sink.IsPermanent(err) || strings.Contains(err.Error(), "such") || strings.Contains(err.Error(), "gr") {
			t.Errorf("%d %.20q: got %v", row.code, row.body, err)
		}
		if got := sink.Detail(err); got != row.want {
			t.Errorf("%d %.20q: got %q, want %q", row.code, row.body, got, row.want)
		}
	}
}
