package operate

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fakeAPI answers routes of the admin API, by "GET /path", and remembers what it
// was asked.
type fakeAPI struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]string // by method and path; each is for every request
	queue   map[string][]string
	asked   []string // method, URI and body
	token   string   // that requests must have; empty: none
}

func newFakeAPI(t *testing.T, answers map[string]string) *fakeAPI {
	t.Helper()
	f := &fakeAPI{answers: answers, queue: map[string][]string{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	route := r.Method + " " + r.URL.Path
	f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	answer, ok := f.answers[route]
	if next := f.queue[route]; len(next) > 0 {
		answer, ok, f.queue[route] = next[0], true, next[1:]
	}
	f.mu.Unlock()
	status := http.StatusOK
	switch {
	case f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token:
		status, answer = http.StatusUnauthorized, `{"error":"unauthorized","message":"send the admin token"}`
	case r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json":
		status, answer = http.StatusUnsupportedMediaType, `{"error":"unsupported_type","message":"send JSON"}`
	case !ok:
		status, answer = http.StatusNotFound, `{"error":"no_such_route","message":"no such route"}`
	}
	var failure struct {
		Code string `json:"error"`
	}
	if json.Unmarshal([]byte(answer), &failure) == nil && failure.Code != "" && status == http.StatusOK {
		status = map[string]int{"forbidden": 403, "bad_request": 400, "conflict": 409, "no_such_namespace": 404, "no_such_route": 404, "no_such_partition": 404, "not_ready": 503, "store_unavailable": 503}[failure.Code]
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

func (f *fakeAPI) requests() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.asked, "\n")
}

// run runs a command line; code is as the program's.
func run(t *testing.T, api *fakeAPI, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runWith(t, api, "", args...)
}

// runWith runs a command with an input.
func runWith(t *testing.T, api *fakeAPI, input string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	if api != nil {
		args = append(args, "--admin="+api.URL)
	}
	var out, failed bytes.Buffer
	err := parse(t, args...).Run(Streams{In: strings.NewReader(input), Out: &out, Err: &failed})
	if err != nil {
		code = 1
		if exit := kong.ExitCoder(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if err.Error() != "" {
			failed.WriteString("spillway: " + err.Error() + "\n")
		}
	}
	text := out.String()
	if api != nil {
		text = strings.ReplaceAll(text, api.URL, "http://127.0.0.1:8081")
	}
	return text, failed.String(), code
}

// parse reads a command line.
func parse(t *testing.T, args ...string) *kong.Context {
	t.Helper()
	var c struct {
		Commands `embed:""`
		Token    Nouns `cmd:""` // part of `spillway token`
	}
	c.Commands, c.Token.Plugins = New(), Verbs("token")
	parser, err := kong.New(&c, kong.Name("spillway"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := parser.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	k.BindTo(t.Context(), (*context.Context)(nil))
	return k
}

// goldens is for one test at a time.
var goldens sync.Mutex

// golden compares with a text of testdata/output.golden, below a heading with its name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	goldens.Lock()
	defer goldens.Unlock()
	path := filepath.Join("testdata", "output.golden")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	heading := "\n== " + name + " ==\n"
	before, rest, _ := strings.Cut(string(file), heading)
	want, after, more := strings.Cut(rest, "\n== ")
	if more {
		after = "\n== " + after
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+heading+got+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("it differs from %s in %s; run go test ./cmd/spillway/operate -update and read the difference. got:\n%s", name, path, got)
	}
}

const (
	quietOverview = `{"now_ms":1700000000000,"store":{"mode":"redis","ready":true,"rtt_ms":0.4},"role":"all","workers":{"size":256,"busy":3},"namespaces":[
		{"namespace":"default","ledger":{"accepted":900,"delivered":877,"buffered":23},"buffered":23,"partitions":4,"read_at_ms":1699999999000,"oldest_age_ms":1200,"max_age_ms":180000,"capacity":10000,"dead_letters":0,
		 "rates":{"accepted":50,"delivered":49.5,"evicted":0,"expired":0,"dead":0,"lost":0,"rejected":0},"paused":null,"paused_partitions":0,"sinks":[{"label":"stdout:","type":"stdout","state":"open"}]}],"findings":{"headline":"no data is being lost","findings":[]}}`
	losingOverview = `{"now_ms":1700000000000,"store":{"mode":"redis","ready":true,"rtt_ms":0.4},"role":"all","workers":{"size":256,"busy":3},"namespaces":[
		{"namespace":"chess","buffered":9,"partitions":1,"read_at_ms":1699999999000,"oldest_age_ms":170000,"max_age_ms":180000,"dead_letters":2,"rates":{"accepted":3,"delivered":0,"evicted":0,"expired":0,"dead":0,"lost":0,"rejected":5},
		 "paused":{"since_ms":1699999880000,"by":"alice","reason":"migration\u001b[2J"},"paused_partitions":0,"sinks":[{"label":"webhook","state":"paused"}]},
		{"namespace":"kart","ledger":{"accepted":90000,"delivered":78000,"evicted":550,"expired":50,"dead":1,"lost":0},"buffered":10000,"partitions":1,"read_at_ms":1699999999000,"oldest_age_ms":175000,"max_age_ms":180000,"dead_letters":0,
		 "rates":{"accepted":50,"delivered":0,"evicted":12.04,"expired":3.1,"dead":0,"lost":0,"rejected":0},"paused":null,"paused_partitions":0,
		 "sinks":[{"label":"https://example.org","state":"failing","failing_since_ms":1699999808000,"last_error":"connection refused"}]}],
		"findings":{"headline":"data is being lost or rejected","findings":[{"level":"loss","namespace":"kart","partition":"eu-1","what":"550 entries were evicted","why":"partitions are full","do":"repair it","command":"spillway ls kart"},{"level":"notice","what":"r:1\u001b"}]}}`
	noPartitions   = `{"now_ms":1700000000000,"sweep":{"complete":true,"completed_at_ms":1699999999500,"known":0},"total":0,"partitions":[]}`
	kartPartitions = `{"now_ms":1700000000000,"sweep":{"complete":true,"completed_at_ms":1699999999500,"known":2},"total":2,"partitions":[
		{"partition":"eu-1","depth":10000,"capacity":10000,"fill":1,"oldest_age_ms":175000,"in_per_s":49.5,"out_per_s":0,"evicted_per_s":12.04,"expired_per_s":3.1,"attempt":7,"last_error":"connection \u001b[31mrefused"},
		{"partition":"eu-2","depth":3,"capacity":10000,"fill":0.0003,"oldest_age_ms":1000,"in_per_s":0.5,"out_per_s":0.5,"paused":true}]}`
	chessPartitions = `{"now_ms":1700000000000,"sweep":{"complete":true,"completed_at_ms":1699999999500,"known":1},"total":1,"partitions":[
		{"partition":"blitz","depth":9,"capacity":10000,"fill":0.0009,"oldest_age_ms":170000,"in_per_s":3,"out_per_s":0}]}`
)

func quiet(t *testing.T) *fakeAPI {
	return newFakeAPI(t, map[string]string{
		"GET /api/v1/info": `{"namespaces":["default"]}`, "GET /api/v1/overview": quietOverview,
		"GET /api/v1/namespaces/default/partitions": noPartitions,
	})
}

func losing(t *testing.T) *fakeAPI {
	return newFakeAPI(t, map[string]string{
		"GET /api/v1/info": `{"namespaces":["chess","kart"]}`, "GET /api/v1/overview": losingOverview,
		"GET /api/v1/namespaces/kart/partitions": kartPartitions, "GET /api/v1/namespaces/chess/partitions": chessPartitions,
	})
}

var discardLog = log.New(io.Discard, "", 0)

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
