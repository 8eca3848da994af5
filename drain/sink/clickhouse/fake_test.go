package clickhouse

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a server of today as far as the sink sees it. It rejects what ClickHouse rejects:
// settings that it does not know, a wrong user, another table, rows that it cannot parse. It
// keeps a row once for each deduplication token.
type fake struct {
	*httptest.Server
	settings []string // that it knows beside the oldest

	mu     sync.Mutex
	rows   []row
	tokens []string
	seen   []url.Values // of INSERTs with rows
	answer http.HandlerFunc
}

type row struct {
	Namespace, Partition, ID, Data string
	Seq, TS                        int64
}

func newFake(t testing.TB, settings ...string) *fake {
	f := &fake{settings: settings}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) set(answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// throw answers as ClickHouse does.
func throw(w http.ResponseWriter, status, code int, text string) {
	w.Header().Set("X-ClickHouse-Exception-Code", fmt.Sprint(code))
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "Code: %d. DB::Exception: %s. (version 24.8.1)\n", code, text)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answer != nil {
		f.answer(w, r)
		return
	}
	query := r.URL.Query()
	if user, password, _ := r.BasicAuth(); user != "writer" || password != "s3cret" {
		throw(w, http.StatusForbidden, 516, user+": Authentication failed")
		return
	}
	for name := range query {
		known := append([]string{"query", "database", "input_format_allow_errors_num", "input_format_allow_errors_ratio"}, f.settings...)
		if !slices.Contains(known, name) {
			throw(w, http.StatusNotFound, 115, "Unknown setting '"+name+"'")
			return
		}
	}
	switch text := query.Get("query"); {
	case strings.HasPrefix(text, "SELECT name FROM system.settings"):
		for _, name := range append(f.settings, "max_insert_block_size") {
			if strings.Contains(text, "'"+name+"'") {
				_, _ = fmt.Fprintln(w, name)
			}
		}
	case query.Get("database") != "game":
		throw(w, http.StatusNotFound, 81, "Database does not exist")
	case strings.HasPrefix(text, "INSERT INTO `events` (`namespace`, `partition`, `seq`, `ts`, `id`, `data`) FORMAT JSONEachRow"):
		f.insert(w, r, query)
	default:
		throw(w, http.StatusNotFound, 60, "Table does not exist")
	}
}

func (f *fake) insert(w http.ResponseWriter, r *http.Request, query url.Values) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		if n, _ := io.Copy(io.Discard, r.Body); n > 0 {
			throw(w, http.StatusBadRequest, 117, "rows that are not gzipped")
		}
		return
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		throw(w, http.StatusInternalServerError, 354, "inflate failed")
		return
	}
	var rows []row
	for d := json.NewDecoder(z); ; {
		var one row
		if err := d.Decode(&one); err == io.EOF {
			break
		} else if err != nil {
			throw(w, http.StatusBadRequest, 117, err.Error())
			return
		}
		if strings.Contains(one.Data, "poison") {
			throw(w, http.StatusBadRequest, 117, "Cannot parse JSON object here: "+one.Data+": (at row 1)")
			return
		}
		rows = append(rows, one)
	}
	f.seen = append(f.seen, query)
	if token := query.Get("insert_deduplication_token"); token != "" {
		if slices.Contains(f.tokens, token) {
			return
		}
		f.tokens = append(f.tokens, token)
	}
	f.rows = append(f.rows, rows...)
}

// open is an opened sink of the fake.
func (f *fake) open(t testing.TB, options string) *Sink {
	t.Helper()
	s := newSink(t, strings.Replace(f.URL, "http://", "clickhouse://writer:s3cret@", 1)+"/game?table=events"+options)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func newSink(t testing.TB, raw string) *Sink {
	t.Helper()
	return sinktest.Make[*Sink](t, New, raw)
}

func TestKeepsThePromisesOfHTTPTargets(t *testing.T) {
	t.Parallel()
	const table, database = "table: want the name of a table, such as events: letters, digits and _",
		"path: want the name of a database, such as /default: letters, digits and _"
	sinktest.RunHTTP(t, sinktest.HTTP{
		New: New, URL: "clickhouse://writer:s3cret@HOST/game?table=events", TLS: "clickhouse://writer:s3cret@HOST/game?table=events&secure=1",
		Wrong: map[string]string{
			"clickhouse:h/d?table=t":          "names no host: write clickhouse://host:8123/database?table=events",
			"clickhouse://u:s3cret@h?table=t": database, "clickhouse://u:s3cret@h/?table=t": database, "clickhouse://u:s3cret@h/a/b?table=t": database,
			"clickhouse://u:s3cret@h/d": table, "clickhouse://u:s3cret@h/d?table=": table,
			"clickhouse://u:s3cret@h/d?table=a.b": table, "clickhouse://u:s3cret@h/d?table=a%60": table,
			"clickhouse://u:s3cret@h/d?table=t&secure=yes": "secure: want 0 or 1", "clickhouse://u:s3cret@h/d?table=t&async_insert=true": "async_insert: want 0 or 1",
			"clickhouse://u:s3cret@h/d?table=t&password=s3cret": `unknown option "password": known are table, secure, async_insert`,
		},
		Transport: func(s sink.Sink) *http.Transport { return s.(*Sink).transport },
		Accept: func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Query().Get("query"), "SELECT") {
				_, _ = io.WriteString(w, "max_insert_block_size\n")
			}
		},
		Outcome: func(status int) string {
			switch {
			case status/100 == 2:
				return "accepted"
			case status < 200, status/100 == 3, slices.Contains([]int{401, 403, 404, 405}, status):
				return "not connected"
			case status/100 == 4 && status != 408 && status != 429:
				return "permanent"
			}
			return "retry"
		},
		Fault: "retry", Cut: "retry", Endless: "retry", Reads: maxAnswer - 1,
	})
}
