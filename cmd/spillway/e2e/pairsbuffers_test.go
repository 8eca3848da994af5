package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

var bufferOptions = []option{
	{"sink", []string{"webhook", "503 at first", "cut at first", "retry", "drop", "exec", "redis-stream", "namespaces", "clickhouse"}},
	{"send", []string{"one by one", "lines in gzip", "keys, each twice", "mixed batch", "segment"}},
	{"fallback", []string{"none", "file"}},
	{"delivery", []string{"at-least-once", "at-most-once"}},
	{"batch", []string{"1", "10", "128"}},
	{"linger", []string{"0s", "50ms"}},
	{"shards", []string{"1", "3"}},
	{"capacity", []string{"10", "10000"}},
	{"max_dead", []string{"1", "10000"}},
	{"tokens", []string{"none", "rates"}},
	{"pool", []string{"default", "other"}},
}

const (
	entriesOfARow    = 30
	partitionsOfARow = 3
)

func (s *space) bufferSettings() string {
	sink := s.run.receiver.url(s.name, s.choices["sink"])
	switch s.choices["sink"] {
	case "exec":
		sink = "exec:"
	case "redis-stream":
		sink = "redis-stream://" + s.run.redis.Addr + "/0"
	case "namespaces":
		sink = fmt.Sprintf("namespaces://%s-a,%[1]s-b", s.name)
	case "clickhouse":
		sink = "clickhouse://" + s.run.receiver.server.Listener.Addr().String() + "/default?table=events"
	}
	text := fmt.Sprintf("sink: %q, write_keys: [%s]", sink, s.name)
	if s.choices["sink"] == "exec" {
		text += fmt.Sprintf(", sink_command: [/bin/sh, -c, %q]", "cat >> "+s.run.dir+"/"+s.name)
	}
	if s.choices["fallback"] != "none" {
		text += fmt.Sprintf(", fallback: [%q]", "file://"+s.run.dir+"/"+s.name+"-fallback")
	}
	for _, key := range []string{"delivery", "batch", "linger", "shards", "capacity", "max_dead"} {
		text += ", " + key + ": " + s.choices[key]
	}
	if s.token != "" {
		text += fmt.Sprintf(", tokens: [{hash: %q, name: t, rate: 100000/s}]", tokenHash(s.token))
	}
	return text
}

// produce sends the entries of each partition.
func (s *space) produce() {
	const one, lines = "application/json", "application/x-ndjson"
	for p := range partitionsOfARow {
		partition := fmt.Sprintf("kart-%d", p)
		target := "/v1/" + s.name + "/" + partition
		var payloads []string
		for n := range entriesOfARow {
			payloads = append(payloads, fmt.Sprintf(`{"n":%d}`, p*entriesOfARow+n))
		}
		accepted := 0
		count := func(answer string) { accepted += int(gjson.Get(answer, "accepted").Int()) }
		switch s.choices["send"] {
		case "lines in gzip":
			var packed bytes.Buffer
			w := gzip.NewWriter(&packed)
			_, _ = io.WriteString(w, strings.Join(payloads, "\n"))
			_ = w.Close()
			count(s.send(200, "POST", target, lines, packed.String(), "Content-Encoding", "gzip"))
		case "keys, each twice":
			for range 2 {
				accepted = 0
				count(s.send(200, "POST", target, lines, strings.Join(payloads, "\n"), "Idempotency-Key", partition))
			}
		case "mixed batch":
			var items []string
			for n, payload := range payloads {
				items = append(items, fmt.Sprintf(`{"id":"e-%d","partition":%q,"data":%s}`, n, partition, payload))
			}
			count(s.send(200, "POST", "/v1/"+s.name, one, `{"batch":[`+strings.Join(items, ",")+`]}`))
		case "segment":
			var events []string
			for _, payload := range payloads {
				events = append(events, fmt.Sprintf(`{"properties":{"game":%q},%s`, partition, payload[1:]))
			}
			s.send(200, "POST", "/segment/v1/batch", one, fmt.Sprintf(`{"writeKey":%q,"batch":[%s]}`, s.name, strings.Join(events, ",")))
			accepted = entriesOfARow
		default:
			for _, payload := range payloads {
				count(s.send(200, "POST", target, one, payload))
			}
		}
		if accepted != entriesOfARow {
			s.errorf("%d accepted, want %d", accepted, entriesOfARow)
		}
	}
	// What was answered early is stored soon.
	s.eventually("all are accepted", func() bool {
		var l ledger
		_, found := s.account(&l, "")
		return found && l.Accepted == entriesOfARow*partitionsOfARow
	})
}

func (s *space) checkBuffer() {
	var l ledger
	residual, found := s.account(&l, "?audit=1")
	sum := l.Delivered + l.Evicted + l.Dead + l.Lost
	mayLose := s.choices["delivery"] == "at-most-once"
	mayEvict := s.choices["capacity"] == "10"
	mayDrop := s.choices["sink"] == "drop" && s.choices["fallback"] == "none"
	if !found || residual != 0 || l.Accepted != entriesOfARow*partitionsOfARow || sum != l.Accepted || l.Buffered+l.Expired != 0 ||
		l.Lost > 0 && !mayLose || l.Evicted > 0 && !mayEvict || l.Dead > 0 && !mayDrop {
		s.errorf("got residual %d, %+v", residual, l)
	}
	if mayDrop && !mayEvict && !mayLose && l.Dead != l.Accepted/dropEvery {
		s.errorf("%d dead, want %d", l.Dead, l.Accepted/dropEvery)
	}
	arrived := s.arrived()
	if arrived >= 0 && int64(arrived) < l.Delivered && !mayLose || !mayEvict && !mayLose && !mayDrop && l.Delivered != l.Accepted {
		s.errorf("%d arrived; ledger %+v", arrived, l)
	}
}

// arrived is how many different entries the row's targets have; -1 where that is another's matter.
func (s *space) arrived() int {
	seen := map[string]bool{}
	s.run.receiver.each(s.name, func(data string) { seen[data] = true })
	for _, name := range []string{s.name, s.name + "-fallback"} {
		text, _ := os.ReadFile(s.run.dir + "/" + name)
		for line := range strings.Lines(string(text)) {
			seen[gjson.Get(line, "data").Raw] = true
		}
	}
	switch s.choices["sink"] {
	case "redis-stream":
		n, err := s.run.redis.Client().XLen(s.t.Context(), "spillway:"+s.name).Result()
		if err != nil {
			s.t.Errorf("%s: %v", s.name, err)
		}
		return int(n) + len(seen)
	case "namespaces":
		for _, end := range []string{"-a", "-b"} {
			var l ledger
			branch := &space{t: s.t, run: s.run, name: s.name + end}
			if _, found := branch.account(&l, ""); !found || l.Accepted == 0 {
				s.t.Errorf("%s has %+v", branch.name, l)
			}
		}
		return -1
	}
	return len(seen)
}

// eventually polls until f holds. It may be called from any goroutine.
func (s *space) eventually(what string, f func() bool) {
	for !s.failed.Load() && !f() {
		if time.Now().After(s.run.until) {
			var buffered ledger
			var jobs jobLedger
			_, _ = s.account(&buffered, "")
			_, _ = s.account(&jobs, "")
			s.errorf("not in time: %s; ledger %+v or %+v", what, buffered, jobs)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// do returns the status and the body of an answer. A request that fails ends in status 0.
func (r *optionsRun) do(t *testing.T, req *http.Request) (int, string) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("%s: %v", req.URL, err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s: %v", req.URL, err)
	}
	return resp.StatusCode, string(text)
}

// liveObjects is how many objects of the server's heap are in use.
func (r *optionsRun) liveObjects(t *testing.T) int64 {
	t.Helper()
	req, err := http.NewRequest("GET", "http://"+r.admin+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, text := r.do(t, req)
	_, rest, _ := strings.Cut(text, "\n# HeapObjects = ")
	number, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		t.Fatalf("%v in %.300s", err, text)
	}
	return n
}

// dropEvery is which entries the receiver drops.
const dropEvery = 5

// troubled is a webhook that fails at first, or for some entries: of each namespace its
// first two requests, or by its results.
type troubled struct {
	t        *testing.T
	server   *httptest.Server
	mu       sync.Mutex
	requests map[string]int
	accepted map[string][]string // payloads, by namespace
}

func newTroubled(t *testing.T) *troubled {
	r := &troubled{t: t, requests: map[string]int{}, accepted: map[string][]string{}}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	return r
}

// url is where the entries of a namespace go, with its trouble as the path's end.
func (r *troubled) url(namespace, trouble string) string {
	word, _, _ := strings.Cut(trouble, " ")
	return r.server.URL + "/" + namespace + "/" + word
}

func (r *troubled) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	namespace, trouble, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/") // of ClickHouse neither
	if query := req.URL.Query().Get("query"); strings.HasPrefix(query, "SELECT") {   // which settings ClickHouse knows
		_, _ = io.WriteString(w, "max_insert_block_size\n")
		return
	}
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(req.Body); err != nil {
			r.t.Error(err)
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.requests[namespace]++; r.requests[namespace] <= 2 {
		switch status, _ := strconv.Atoi(trouble); {
		case trouble == "cut":
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = conn.Close()
			}
			return
		case status > 0:
			w.WriteHeader(status)
			return
		}
	}
	var results []string
	lines := bufio.NewScanner(body)
	for i := 0; lines.Scan(); i++ {
		line := gjson.ParseBytes(lines.Bytes())
		data, attempt := line.Get("data").Raw, line.Get("attempt").Int()
		if namespace == "" {
			data = line.Get("data").String()
		}
		n := gjson.Get(data, "n").Int()
		switch {
		case trouble == "drop" && n%dropEvery == 0:
			results = append(results, fmt.Sprintf(`{"i":%d,"result":"drop","reason":"no_such_user"}`, i))
		case trouble == "retry" && n%3 == 0 && attempt == 1:
			results = append(results, fmt.Sprintf(`{"i":%d,"result":"retry"}`, i))
		default:
			of := line.Get("namespace").String()
			r.accepted[of] = append(r.accepted[of], data)
		}
	}
	if namespace != "" {
		fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
	}
}

// each calls f with the payload of each entry of a namespace that was accepted.
func (r *troubled) each(namespace string, f func(data string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, data := range r.accepted[namespace] {
		f(data)
	}
}

// checkJobs wants each job that was not dropped, as often as it was published.
func (r *troubled) checkJobs(s *space) {
	times := map[string]int{}
	r.each(s.name, func(data string) { times[data]++ })
	text, _ := os.ReadFile(s.run.dir + "/" + s.name) // what another tier took
	for line := range strings.Lines(string(text)) {
		times[gjson.Get(line, "data").Raw]++
	}
	for n := range jobsOfARow {
		want := int(s.jobs() / jobsOfARow)
		if s.choices["sink"] == "drop" && n%dropEvery == 0 {
			want = 0
		}
		if got := times[fmt.Sprintf(`{"n":%d}`, n)]; got != want {
			s.errorf("job %d arrived %d times, want %d", n, got, want)
		}
	}
}
