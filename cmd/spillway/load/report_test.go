package load

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

func TestEachLineIsValidatedAlone(t *testing.T) {
	t.Parallel()
	tests := []struct{ line, want string }{
		{`{"partition":"a","data":{"x":1}}`, `{"partition":"a","data":{"x":1}}`},
		{`{"data":null,"partition":"a","id":"q\"1","ts":1700000000000}`, `{"partition":"a","id":"q\"1","ts":1700000000000,"data":null}`},
		{`{"partition":"a","data":[1, 2],"offset_ms":5}`, `{"partition":"a","data":[1, 2]}`},
		{`{"namespace":"default","partition":"a","seq":7,"batch":"b","data":1}`, `{"partition":"a","data":1}`},
		{`{"partition":"a","data":1`, "not a JSON object"},
		{`["a"]`, "not a JSON object"},
		{`{"data":1}`, "partition is missing"},
		{`{"partition":7,"data":1}`, "partition is missing or not a name"},
		{`{"partition":"a/b","data":1}`, "partition is missing or not a name"},
		{`{"partition":"a"}`, "data is missing"},
		{`{"partition":"a","data":1,"id":""}`, "id is not"},
		{`{"partition":"a","data":1,"id":7}`, "id is not"},
		{`{"partition":"a","data":1,"ts":"1"}`, "ts is not"},
		{`{"partition":"a","data":1,"ts":1.5}`, "ts is not"},
	}
	for _, tt := range tests {
		it, err := line{text: []byte(tt.line)}.item(false)
		got := strings.TrimSuffix(string(it.encoded), "\n")
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.line, got, tt.want)
		}
	}
}

func TestReplayLeavesOutTheTime(t *testing.T) {
	t.Parallel()
	it, err := line{text: []byte(`{"partition":"a","data":1,"ts":1700000000000,"offset_ms":1500}`)}.item(true)
	if err != nil || string(it.encoded) != `{"partition":"a","data":1}`+"\n" || it.offset != 1500*time.Millisecond {
		t.Errorf("got %s after %v, %v", it.encoded, it.offset, err)
	}
	for _, text := range []string{`{"partition":"a","data":1}`, `{"partition":"a","data":1,"offset_ms":"5"}`} {
		if _, err := (line{text: []byte(text)}).item(true); err == nil || !strings.Contains(err.Error(), "offset_ms") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestLongLinesAreSkippedAndCounted(t *testing.T) {
	t.Parallel()
	input := "one\n" + strings.Repeat("x", 3*maxLine) + "\n\n  \nlast" // no newline at the end
	var got []string
	lines := make(chan line)
	go func() {
		defer close(lines)
		if err := readLines(t.Context(), strings.NewReader(input), lines); err != nil {
			t.Error(err)
		}
	}()
	for l := range lines {
		got = append(got, fmt.Sprintf("%d %s %t", l.number, l.text, l.tooLong))
	}
	if want := []string{"1 one false", "2  true", "5 last false"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// service fakes the mixed route; answer gets the number of the request, from 1.
type service struct {
	mu       sync.Mutex
	requests []request
	answer   func(n int, r request) (status int, retryAfter, body string)
}

type request struct {
	at    time.Time
	key   string
	items []string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code == 599 {
		return nil, io.ErrUnexpectedEOF
	}
	return w.Result(), nil
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	req := request{time.Now(), r.Header.Get("Idempotency-Key"), strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")}
	s.mu.Lock()
	s.requests = append(s.requests, req)
	n := len(s.requests)
	s.mu.Unlock()
	status, after, answer := s.answer(n, req)
	if after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

func accept(r request) (int, string, string) {
	return 200, "", fmt.Sprintf(`{"accepted":%d,"evicted":0,"rejected":0,"results":[]}`, len(r.items))
}

// reportTo runs the command against a fake service.
func reportTo(t *testing.T, s *service, input string, args ...string) (sum summary, stderr string, err error) {
	t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	var c Report
	line, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := line.Parse(append([]string{"--server", server.URL, "-o", "json"}, args...)); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	err = c.Run(t.Context(), config.Process{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs,
		LookupEnv: func(string) (string, bool) { return "", false }})
	if err != nil {
		fmt.Fprintln(&errs, err)
	}
	if err := json.Unmarshal(out.Bytes(), &sum); err != nil {
		t.Fatalf("%v in %q; %s", err, &out, &errs)
	}
	return sum, errs.String(), err
}

func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"partition":"p%d","data":{"n":%d}}`+"\n", i%3, i)
	}
	return b.String()
}

func TestReportSendsEverythingInOrderInBoundedBatches(t *testing.T) {
	t.Parallel()
	s := &service{answer: func(_ int, r request) (int, string, string) { return accept(r) }}
	sum, stderr, failed := reportTo(t, s, manyLines(1234))
	if failed != nil || stderr != "" || sum.Read != 1234 || sum.Accepted != 1234 || sum.Rejected != 0 {
		t.Errorf("got %v, %+v, %s", failed, sum, stderr)
	}
	var got []string
	keys := map[string]bool{}
	for _, r := range s.requests {
		got = append(got, r.items...)
		keys[r.key] = true
		if len(r.items) > batchEntries {
			t.Errorf("a request of %d entries", len(r.items))
		}
	}
	if want := strings.Split(strings.TrimSpace(manyLines(1234)), "\n"); !reflect.DeepEqual(got, want) {
		t.Error("order or content differs")
	}
	if len(keys) != len(s.requests) || keys[""] {
		t.Errorf("%d keys for %d requests", len(keys), len(s.requests))
	}
}

func TestReportKeepsRequestsSmallWhenEntriesAreBig(t *testing.T) {
	t.Parallel()
	s := &service{answer: func(_ int, r request) (int, string, string) { return accept(r) }}
	big := fmt.Sprintf(`{"partition":"a","data":"%s"}`+"\n", strings.Repeat("x", 200_000))
	sum, _, failed := reportTo(t, s, strings.Repeat(big, 5))
	if failed != nil || sum.Accepted != 5 {
		t.Errorf("got %v, %+v", failed, sum)
	}
	for _, r := range s.requests {
		if len(r.items) > 2 {
			t.Errorf("%d entries of 200 kB in a request", len(r.items))
		}
	}
}

func TestReportCountsBadLinesAndRejections(t *testing.T) {
	t.Parallel()
	input := "{\"partition\":\"a\",\"data\":1}\nnonsense\n\n{\"partition\":\"a\"}\n{\"partition\":\"b\",\"data\":2}\n"
	s := &service{answer: func(int, request) (int, string, string) {
		return 200, "", `{"accepted":1,"evicted":4,"rejected":1,"results":[{"i":1,"result":"drop","reason":"stale"}]}`
	}}
	sum, stderr, failed := reportTo(t, s, input)
	sum.Seconds = 0
	if want := (summary{Read: 4, Accepted: 1, Evicted: 4, Rejected: 1, BadLines: 2, Reasons: map[string]int{"stale": 1}}); !reflect.DeepEqual(sum, want) {
		t.Errorf("got %+v, want %+v", sum, want)
	}
	if failed == nil || !strings.Contains(stderr, "line 2: not a JSON object\nline 4: data is missing\n") || !strings.Contains(stderr, "1 rejected (stale 1), 2 bad lines") {
		t.Errorf("got %v, %s", failed, stderr)
	}
	s.answer = func(_ int, r request) (int, string, string) { return accept(r) }
	if _, _, failed := reportTo(t, s, input, "--skip-bad"); failed != nil {
		t.Errorf("--skip-bad: got %v", failed)
	}
	if _, _, failed := reportTo(t, s, input); failed == nil {
		t.Errorf("bad lines only: got %v", failed)
	}
}

func TestReportLimitsTheDescribedBadLines(t *testing.T) {
	t.Parallel()
	s := &service{answer: func(_ int, r request) (int, string, string) { return accept(r) }}
	sum, stderr, _ := reportTo(t, s, strings.Repeat("nonsense\n", 500))
	if got := strings.Count(stderr, "not a JSON object"); got != maxLineErrors || sum.BadLines != 500 {
		t.Errorf("%d described of %d", got, sum.BadLines)
	}
}

// What the program takes for JSON may nest too deep for the service, which rejects the request with all that is beside it.
func TestReportNamesTheLineThatTheServiceCannotRead(t *testing.T) {
	t.Parallel()
	s := &service{answer: func(_ int, r request) (int, string, string) {
		if strings.Contains(strings.Join(r.items, ""), "[[[") {
			return 400, "", `{"error":"bad_ndjson","message":"line 1 nests deeper than 512 levels"}`
		}
		return accept(r)
	}}
	input := manyLines(300) + `{"partition":"a","data":[[[]]]}` + "\n" + manyLines(100) + `{"partition":"a","data":[[[]]]}` + "\n"
	sum, stderr, failed := reportTo(t, s, input)
	if failed == nil || sum.Accepted != 400 || sum.Rejected != 2 || sum.Reasons["bad_ndjson"] != 2 || len(s.requests) > 50 ||
		!strings.Contains(stderr, "line 301: the service cannot read it") || !strings.Contains(stderr, "line 402: ") {
		t.Errorf("got %v, %+v after %d requests, %s", failed, sum, len(s.requests), stderr)
	}
}

func TestReportStopsAtAnErrorThatARetryCannotChange(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"404 no_such_namespace": `{"error":"no_such_namespace","message":"this server has no namespace of that name"}`,
		"200 ":                  `<html>`,
		"200":                   `{"accepted":7,"results":[]}`,
		"200  ":                 `{"accepted":0,"results":[{"i":99,"result":"drop","reason":"stale"}]}`,
	} {
		s := &service{answer: func(int, request) (int, string, string) {
			status := 200
			if strings.HasPrefix(name, "404") {
				status = 404
			}
			return status, "", answer
		}}
		sum, stderr, failed := reportTo(t, s, manyLines(3))
		if failed == nil || sum.Rejected != 3 || len(s.requests) != 1 || !strings.Contains(stderr, strings.TrimSpace(name)) {
			t.Errorf("%s: got %v, %+v after %d requests, %s", name, failed, sum, len(s.requests), stderr)
		}
	}
}

// runReporter runs a reporter without sockets, for use with synctest.
func runReporter(ctx context.Context, s *service, cmd Report, input io.Reader) (summary, error) {
	cmd.Server, cmd.Namespace = "http://service", "default"
	r := reporter{
		cmd: &cmd, stderr: io.Discard, start: time.Now(), sum: summary{Reasons: map[string]int{}},
		poster: cmd.poster(s),
	}
	err := r.run(ctx, input)
	r.finish()
	return r.sum, err
}

func TestRetriesRepeatTheSameBytesUnderTheSameKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{answer: func(n int, r request) (int, string, string) {
			switch n {
			case 1:
				return 599, "", "" // the connection breaks
			case 2:
				return 503, "7", `{"error":"store_unavailable","message":"…","outcome":"unknown"}`
			case 3:
				return 429, "", `{"error":"rate_limited","message":"…"}`
			case 4:
				return 408, "", ""
			case 5: // some entries may be stored
				return 200, "", `{"accepted":1,"results":[{"i":1,"result":"retry","reason":"unknown"}]}`
			case 6: // an attempt before may have stored it
				return 200, "", `{"accepted":1,"results":[{"i":1,"result":"retry","reason":"store_unavailable"}]}`
			}
			return accept(r)
		}}
		sum, err := runReporter(t.Context(), s, Report{Timeout: time.Minute}, strings.NewReader(manyLines(2)))
		if err != nil || sum.Accepted != 2 || sum.Retried != 6 || len(s.requests) != 7 {
			t.Fatalf("got %+v, %v after %d requests", sum, err, len(s.requests))
		}
		for i, r := range s.requests[1:] {
			if r.key != s.requests[0].key || !reflect.DeepEqual(r.items, s.requests[0].items) {
				t.Errorf("request %d is another one: %+v", i+2, r)
			}
		}
		if wait := s.requests[2].at.Sub(s.requests[1].at); wait < 7*time.Second {
			t.Errorf("came back after %v, asked for 7 s", wait)
		}
	})
}

// The service remembers a key for two minutes.
func TestNoRetryOutlivesItsKey(t *testing.T) {
	t.Parallel()
	for body, most := range map[string]time.Duration{
		`{"error":"store_unavailable","message":"…","outcome":"unknown"}`: 110 * time.Second, `{"error":"overloaded","message":"…"}`: time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{answer: func(int, request) (int, string, string) { return 503, "60", body }}
			_, err := runReporter(t.Context(), s, Report{Timeout: time.Hour}, strings.NewReader(manyLines(1)))
			first, last := s.requests[0].at, s.requests[len(s.requests)-1].at
			if d := last.Sub(first); err == nil || d > most || d < most-time.Minute {
				t.Errorf("%s: repeated for %v: %v", body, d, err)
			}
		})
	}
}

func TestEntriesToRetryAreSentInANewRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{answer: func(n int, r request) (int, string, string) {
			if n == 1 {
				return 200, "", `{"accepted":1,"evicted":2,"results":[{"i":0,"result":"retry","reason":"store_unavailable"},{"i":2,"result":"drop","reason":"stale"}]}`
			}
			return accept(r)
		}}
		sum, err := runReporter(t.Context(), s, Report{Timeout: time.Minute}, strings.NewReader(manyLines(3)))
		sum.Seconds = 0
		want := summary{Read: 3, Accepted: 2, Evicted: 2, Rejected: 1, Retried: 1, Reasons: map[string]int{"stale": 1}}
		if err != nil || !reflect.DeepEqual(sum, want) {
			t.Errorf("got %+v, %v, want %+v", sum, err, want)
		}
		first, second := s.requests[0], s.requests[1]
		if len(second.items) != 1 || second.items[0] != first.items[0] || second.key == first.key {
			t.Errorf("got %+v", second)
		}
	})
}

func TestRetriesEndWithTheTimeout(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(int, request) (int, string, string){
		"rejected": func(int, request) (int, string, string) { return 503, "", `{"error":"overloaded","message":"…"}` },
		"put off": func(int, request) (int, string, string) {
			return 200, "", `{"accepted":0,"results":[{"i":0,"result":"retry","reason":"store_full"}]}`
		},
		"Retry-After past the timeout": func(int, request) (int, string, string) { return 503, "3600", `{"error":"overloaded","message":"…"}` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &service{answer: answer}
				start := time.Now()
				sum, err := runReporter(t.Context(), s, Report{Timeout: 20 * time.Second}, strings.NewReader(manyLines(1)))
				if err == nil || !strings.Contains(err.Error(), "gave up after 20s") || time.Since(start) > 20*time.Second {
					t.Errorf("got %v after %v", err, time.Since(start))
				}
				if sum.Rejected != 1 || sum.Accepted != 0 {
					t.Errorf("got %+v", sum)
				}
				if name == "Retry-After past the timeout" && (len(s.requests) != 2 || time.Since(start) < 19*time.Second || !strings.Contains(err.Error(), "asks to wait 1h0m0s more")) {
					t.Errorf("%d requests in %v: %v", len(s.requests), time.Since(start), err)
				}
			})
		})
	}
}

func TestAServiceThatRecoversBeforeItSaidIsStillUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{answer: func(i int, _ request) (int, string, string) {
			if i == 1 {
				return 503, "60", `{"error":"overloaded","message":"…"}`
			}
			return 200, "", `{"accepted":1,"results":[]}`
		}}
		sum, err := runReporter(t.Context(), s, Report{Timeout: 30 * time.Second}, strings.NewReader(manyLines(1)))
		if err != nil || sum.Accepted != 1 || sum.Retried != 1 {
			t.Errorf("got %+v, %v", sum, err)
		}
	})
}

func TestRateAndReplaySpeedSetThePace(t *testing.T) {
	t.Parallel()
	replay := `{"partition":"a","offset_ms":0,"data":1}
{"partition":"a","offset_ms":1000,"data":2}
{"partition":"a","offset_ms":500,"data":3}
{"partition":"a","offset_ms":60000,"data":4}
`
	tests := []struct {
		name  string
		cmd   Report
		input string
		took  time.Duration
	}{
		{"100 at 20 a second", Report{Rate: 20}, manyLines(100), 4950 * time.Millisecond},
		{"5000 at 1000 a second", Report{Rate: 1000}, manyLines(5000), 5 * time.Second},
		{"real time", Report{ReplaySpeed: 1}, replay, 60 * time.Second},
		{"tenfold", Report{ReplaySpeed: 10}, replay, 6 * time.Second},
		{"unpaced", Report{}, manyLines(100), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &service{answer: func(_ int, r request) (int, string, string) { return accept(r) }}
				tt.cmd.Timeout = time.Second
				start := time.Now()
				sum, err := runReporter(t.Context(), s, tt.cmd, strings.NewReader(tt.input))
				if err != nil || sum.Accepted != sum.Read {
					t.Fatalf("got %+v, %v", sum, err)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

func TestASlowWriterDoesNotDelayEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		go func() {
			for i := range 3 {
				fmt.Fprintf(out, `{"partition":"a","data":%d}`+"\n", i)
				time.Sleep(time.Hour) // of the bubble
			}
			out.Close()
		}()
		s := &service{answer: func(_ int, r request) (int, string, string) { return accept(r) }}
		start := time.Now()
		sum, err := runReporter(t.Context(), s, Report{Timeout: time.Second}, in)
		if err != nil || sum.Accepted != 3 || len(s.requests) != 3 {
			t.Fatalf("got %+v, %v, %d requests", sum, err, len(s.requests))
		}
		if wait := s.requests[0].at.Sub(start); wait != 0 {
			t.Errorf("the first entry waited %v", wait)
		}
	})
}

func TestInterruptEndsReportAndCountsUnsentEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1020*time.Millisecond)
		defer cancel()
		s := &service{answer: func(_ int, r request) (int, string, string) { return accept(r) }}
		sum, err := runReporter(ctx, s, Report{Rate: 10, Timeout: time.Second}, strings.NewReader(manyLines(100)))
		if err != errInterrupted || sum.Accepted != 11 || sum.Read != 12 || sum.Reasons["not_confirmed"] != 1 {
			t.Errorf("got %+v, %v", sum, err)
		}
	})
}

func TestSummaryAsText(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := summary{Read: 10, Accepted: 6, Evicted: 1, Rejected: 3, Retried: 2, BadLines: 1, Seconds: 1.25, Reasons: map[string]int{"too_large": 1, "stale": 2}}
	if err := s.print(&b, "text"); err != nil {
		t.Fatal(err)
	}
	if want := "10 read: 6 accepted, 3 rejected (stale 2, too_large 1), 1 bad lines; 1 evicted, 2 requests retried, 1.2 s\n"; b.String() != want {
		t.Errorf("got %s", b.String())
	}
}

var update = flag.Bool("update", false, "rewrite the golden file")

func TestBenchPrintsUnitsAndRejectionsByCode(t *testing.T) {
	t.Parallel()
	c := Bench{Mode: "ingest", Output: "text"}
	figures := map[string]float64{"requests": 12345, "acked": 12300, "errors": 45, "unknown": 2, "rejected": 43, "rate": 1234.5678, "p50": 0.000412, "p99": 0.0123456, "p99.9": 1.5, "max": 61}
	var b strings.Builder
	if err := c.print(&b, figures, map[string]int64{"rate_limited": 40, "overdue": 3}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "bench.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || b.String() != string(want) {
		t.Errorf("%v, got\n%swant\n%s", err, b.String(), want)
	}
}

func TestDemoMarksTheEventOfAPerson(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	h := demoHighlighter{&out}
	lines := "{\"namespace\":\"default\",\"partition\":\"kart.eu-1\",\"seq\":1}\n{\"namespace\":\"default\",\"partition\":\"my-game\",\"seq\":1}\n"
	if n, err := h.Write([]byte(lines)); n != len(lines) || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if got := strings.Split(out.String(), "\n"); len(got) != 3 || strings.Contains(got[0], "your event") || !strings.HasSuffix(got[1], "◀ your event") {
		t.Errorf("got %q", got)
	}
}

func TestDemoUsesAFreePortWhenTheDefaultIsInUse(t *testing.T) {
	t.Parallel()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	address := used.Addr().String()
	var stderr strings.Builder
	if got := portOrFree(address, &stderr); got != "127.0.0.1:0" || !strings.Contains(stderr.String(), address+" is in use") {
		t.Errorf("got %s, %s", got, stderr.String())
	}
	free := redistest.FreeAddr(t)
	if got := portOrFree(free, io.Discard); got != free {
		t.Errorf("got %s, want %s", got, free)
	}
}

// FuzzReportLine checks that readLines returns the lines of the input, and that
// each accepted line becomes one valid line for the mixed route.
func FuzzReportLine(f *testing.F) {
	for _, text := range []string{
		`{"partition":"kart-7","id":"a","ts":1763629675100,"offset_ms":40,"data":{"lap":4}}`, `{"partition":"p","data":1,"data":2}`, "\n\n{}\n", `{"partition":"a/b","data":1}`,
		`{"partition":"p","data":"\ud800"}`, `{"partition":"p","ts":1e3,"data":1}`, `{"\u0070artition":"p","data":null}`, "[]", "\xff", `{"partition":"p","id":"a b","data":1}`,
		`{"partition":"{p}","data":1}`, "\n\r\n \n{}\n", `{"partition":"\u0070","data":1}`, `{"partition":"p","id":"a\nb","data":1}`, "\x00\n",
		`{"partition":"p","data":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}",
	} {
		f.Add([]byte(text), false)
	}
	f.Add([]byte(`{"partition":"p","offset_ms":9223372036854775807,"data":1}`), true)
	f.Add([]byte(`{"partition":"kart-7","id":"a","ts":1763629675100,"offset_ms":40,"data":{"lap":4}}`), true)
	f.Fuzz(func(t *testing.T, text []byte, replay bool) {
		lines := make(chan line, bytes.Count(text, []byte("\n"))+1)
		if err := readLines(t.Context(), bytes.NewReader(text), lines); err != nil {
			t.Fatal(err)
		}
		close(lines)
		all := bytes.Split(text, []byte("\n"))
		for l := range lines {
			if !l.tooLong && !bytes.Equal(l.text, bytes.TrimSpace(all[l.number-1])) {
				t.Fatalf("line %d of %q is %q", l.number, text, l.text)
			}
			it, err := l.item(replay)
			if err != nil {
				continue
			}
			var got struct{ Partition string }
			if err := json.Unmarshal(it.encoded, &got); err != nil || bytes.IndexByte(it.encoded, '\n') != len(it.encoded)-1 || !partition.ValidPartition(got.Partition) {
				t.Fatalf("%q becomes %q, %v", l.text, it.encoded, err)
			}
		}
	})
}
