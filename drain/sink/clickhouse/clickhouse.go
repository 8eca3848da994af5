// Package clickhouse is the sink "clickhouse://host:8123/database?table=events": one
// INSERT a Write over HTTP, as gzipped lines of JSONEachRow, with the batches of many
// partitions in it. It works with servers from 18.16 on.
//
// Delivered means that the server answered the INSERT: the rows are in parts on its disk
// (or, with async_insert=1, the server has flushed them there). A row has the columns
//
//	namespace String, partition String, seq Int64, ts Int64 (Unix ms), id String, data String
//
// data is the payload, byte for byte; id is empty where the client gave none. The table may
// have further columns with defaults; deploy/sql/clickhouse.sql makes a fitting one.
//
// An entry may be inserted again, in a block with other neighbours, so only the key can tell:
// a ReplacingMergeTree ordered by (namespace, partition, seq) holds each entry once after its
// merges, and a SELECT … FINAL counts it once at any time. Where the server has it, an INSERT
// carries insert_deduplication_token, a hash of its batches' ids: it drops a repeat of exactly
// the same batches at once, and no other.
package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/spillway-io/spillway/drain/sink"
)

// Sink inserts into one table of one server.
type Sink struct {
	endpoint string // http(s)://host:port/
	host     string // the only part of the URL that errors show
	auth     string // Authorization header; empty: none
	insert   url.Values
	table    string
	async    bool // the operator asks for async_insert

	transport *http.Transport
	zippers   sync.Pool // *zipper

	mu    sync.Mutex
	known map[string]bool // by Open: which of optionalSettings the server has; nil before
}

// optionalSettings came to ClickHouse after 18.16. A server answers a setting it does not know
// with an error, so Open asks which of them there are. Every server has the proof: a server that
// does not name it is no ClickHouse, and may take INSERTs for anything.
var optionalSettings = []string{"async_insert", "insert_deduplication_token", "wait_for_async_insert"}

const proof = "max_insert_block_size"

// New makes the sink of "clickhouse://[user:password@]host[:port]/database", with the options
//
//	table=NAME       required; letters, digits and _
//	secure=1         by TLS; the default port is then 8443, else 8123
//	async_insert=1   the server gathers INSERTs of several clients before it writes them, and
//	                 answers when they are written; default: as the user's profile has it
func New(u *url.URL) (sink.Sink, error) {
	o, err := sink.Options(u, "table", "secure", "async_insert")
	if err != nil {
		return nil, err
	}
	database := strings.TrimPrefix(u.Path, "/")
	if err := sink.CheckHost(u, "clickhouse://host:8123/database?table=events"); err != nil {
		return nil, err
	}
	switch {
	case !isName(database):
		return nil, errors.New("path: want the name of a database, such as /default: letters, digits and _")
	case !isName(o["table"]):
		return nil, errors.New("table: want the name of a table, such as events: letters, digits and _")
	}
	for _, name := range []string{"secure", "async_insert"} {
		if v := o[name]; v != "" && v != "0" && v != "1" {
			return nil, fmt.Errorf("%s: want 0 or 1", name)
		}
	}
	scheme, port := "http", "8123"
	if o["secure"] == "1" {
		scheme, port = "https", "8443"
	}
	if u.Port() != "" {
		port = u.Port()
	}
	s := &Sink{
		host:  net.JoinHostPort(u.Hostname(), port),
		async: o["async_insert"] == "1",
		table: o["table"],
		insert: url.Values{
			"database": {database},
			"query":    {"INSERT INTO `" + o["table"] + "` (`namespace`, `partition`, `seq`, `ts`, `id`, `data`) FORMAT JSONEachRow"},
			// A profile may let a server drop rows that it cannot read, and say nothing.
			"input_format_allow_errors_num": {"0"}, "input_format_allow_errors_ratio": {"0"},
		},
		transport: newTransport(),
		zippers: sync.Pool{New: func() any {
			z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
			return &zipper{w: z}
		}},
	}
	s.endpoint = (&url.URL{Scheme: scheme, Host: s.host, Path: "/"}).String()
	s.auth = sink.BasicAuth(u.User)
	return s, nil
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// Open asks which settings the server knows, and inserts nothing: that finds a server that is
// no ClickHouse, a wrong password, a table or column that is missing, and a missing right.
func (s *Sink) Open(ctx context.Context) error {
	query := url.Values{"query": {"SELECT name FROM system.settings WHERE name IN ('" +
		strings.Join(append(optionalSettings, proof), "', '") + "') FORMAT TabSeparated"}}
	answer, err := s.post(ctx, query, nil)
	if err != nil {
		return fmt.Errorf("open clickhouse: %w", err)
	}
	if err := answer.err(); err != nil {
		return fmt.Errorf("open clickhouse %s: %w", s.host, err)
	}
	known := map[string]bool{}
	for name := range strings.FieldsSeq(string(answer.Body)) {
		known[name] = true
	}
	if !known[proof] {
		return fmt.Errorf("open clickhouse %s: the answer is not ClickHouse's", s.host)
	}
	if s.async && !known["async_insert"] {
		return fmt.Errorf("open clickhouse %s: the server does not know async_insert: leave it out", s.host)
	}
	if answer, err = s.post(ctx, s.insert, nil); err != nil {
		return fmt.Errorf("open clickhouse: %w", err)
	}
	if err := answer.insertErr(); err != nil {
		return fmt.Errorf("open clickhouse %s: insert nothing into %s: %w", s.host, s.table, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
	return nil
}

// Write inserts all entries by one INSERT. See outcome.go for its errors.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	if known == nil {
		return sink.ErrNotConnected
	}
	answer, err := s.post(ctx, s.insertion(known, batches), s.rows(batches))
	if err != nil {
		return err
	}
	if err := answer.insertErr(); err != nil {
		return fmt.Errorf("insert at %s: %w", s.host, err)
	}
	return nil
}

// Close frees the idle connections.
func (s *Sink) Close(context.Context) error {
	s.transport.CloseIdleConnections()
	return nil
}

// Caps: few and large INSERTs, for each makes a part that the server must merge. ClickHouse
// asks for 10,000 rows and about one INSERT a second. So many batches may come together, for
// those of quiet partitions have one entry. 8 MiB of payloads are some 800 bytes for each
// of them, and bound what a Write holds in memory.
func (s *Sink) Caps() sink.Caps {
	return sink.Caps{
		MaxBatches:    10_000,
		MaxInFlight:   4,
		PreferEntries: 10_000,
		MaxBytes:      8 << 20,
		Linger:        time.Second,
	}
}

func newTransport() *http.Transport {
	t := sink.NewTransport()
	t.MaxIdleConnsPerHost = 4
	t.IdleConnTimeout = 2 * time.Second // before the server closes its own: keep_alive_timeout is 3 s in old configurations
	return t
}
