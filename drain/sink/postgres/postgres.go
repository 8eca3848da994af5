// Package postgres is the sink "postgres://user:password@host/database?table=events": one
// transaction a Write, with the batches of many partitions in it. The entries go by COPY into
// a temporary table, and from there by INSERT … ON CONFLICT (namespace, partition, seq) DO
// NOTHING into the table.
//
// Delivered means that the server answered the COMMIT. An entry that is written again is found
// by its key and left alone, so the table has each entry exactly once. A row has the columns
//
//	namespace text, partition text, seq bigint, ts (when it occurred), id text, data (the payload)
//
// id is NULL where the client gave none. The types of ts and data are the table's choice, and
// Open reads them there:
//
//	ts    bigint       Unix ms
//	      timestamptz
//	data  jsonb        rejects what is not JSON, \u0000, lone surrogates and numbers like 1e999999
//	      json         rejects what is not JSON
//	      text         rejects what is not UTF-8, and NUL
//	      bytea        takes every payload
//
// A rejected payload is Permanent and named, so it costs one entry. The table may have further
// columns with defaults; deploy/sql/postgres.sql makes a fitting one. Without a unique index on
// the key Open fails.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxInFlight is how many Writes and connections there are at most: more only wait for the
// same index and the same disk.
const maxInFlight = 4

// Sink writes to one table of one database.
type Sink struct {
	settings map[string]string // of the connection
	table    string            // quoted

	slots chan *pgconn.PgConn // maxInFlight of them; nil: not connected yet

	mu      sync.Mutex
	layout  *layout          // by Open; nil before
	retired []*pgconn.PgConn // closed, and perhaps not cleaned up
}

var sslModes = []string{"disable", "prefer", "require", "verify-ca", "verify-full"}

// New makes the sink of "postgres://user[:password]@host[:port]/database", with the options
//
//	table=NAME          required; NAME or SCHEMA.NAME of letters, digits and _, case as it is
//	sslmode=MODE        disable, prefer, require, verify-ca or verify-full, as in libpq; default
//	                    prefer: TLS where the server has it, without a check of its certificate
//	sslrootcert=/FILE   the certificate authorities of verify-ca and verify-full; default: the system's
func New(u *url.URL) (sink.Sink, error) {
	o, err := sink.Options(u, "table", "sslmode", "sslrootcert")
	if err != nil {
		return nil, err
	}
	database := strings.TrimPrefix(u.Path, "/")
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	mode := o["sslmode"]
	if mode == "" {
		mode = "prefer"
	}
	table, ok := quote(o["table"])
	switch {
	case u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("names no host: write postgres://user@host:5432/database?table=events")
	case u.Fragment != "":
		return nil, errors.New("a # in the URL is written %23")
	case u.User.Username() == "":
		return nil, errors.New("names no user: write postgres://user@host:5432/database?table=events")
	case database == "":
		return nil, errors.New("path: want the name of a database, such as /events")
	case !ok:
		return nil, errors.New("table: want the name of a table, such as events or public.events: letters, digits and _")
	case !slices.Contains(sslModes, mode):
		return nil, fmt.Errorf("sslmode: want one of %s", strings.Join(sslModes, ", "))
	}
	password, _ := u.User.Password()
	s := &Sink{
		table: table,
		slots: make(chan *pgconn.PgConn, maxInFlight),
		settings: map[string]string{
			"host": u.Hostname(), "port": port, "user": u.User.Username(), "password": password,
			"database": database, "sslmode": mode, "sslrootcert": o["sslrootcert"],
		},
	}
	for range maxInFlight {
		s.slots <- nil
	}
	return s, nil
}

// quote is a table's name as SQL has it.
func quote(name string) (string, bool) {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			return "", false
		}
		parts[i] = `"` + part + `"`
	}
	return strings.Join(parts, "."), len(parts) <= 2
}

// Open connects, learns the types of the table's columns and writes nothing: that finds a
// wrong password, a table, column, unique index or right that is missing.
func (s *Sink) Open(ctx context.Context) error {
	conn, err := s.take(ctx)
	if err != nil {
		return fmt.Errorf("open postgres: %w", err)
	}
	defer func() { s.slots <- conn }()
	l, err := readLayout(ctx, conn, s.table)
	if err == nil {
		err = conn.Exec(ctx, l.begin+l.finish).Close()
	}
	if err != nil {
		s.retire(conn)
		return fmt.Errorf("open postgres %s, table %s: %w", s.host(), s.table, outcome(ctx, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layout = l
	return nil
}

// Write puts all entries into the table, but those whose payload its column cannot hold, in
// one transaction. See outcome.go for its errors.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	l := s.layout
	s.mu.Unlock()
	if l == nil {
		return sink.ErrNotConnected
	}
	rows, n, rejected := l.encode(batches)
	if n > 0 {
		if err := s.insert(ctx, l, rows); err != nil {
			return fmt.Errorf("write to postgres %s: %w", s.host(), err)
		}
	}
	if len(rejected.Failed) > 0 {
		return rejected
	}
	return nil
}

func (s *Sink) insert(ctx context.Context, l *layout, rows []byte) error {
	conn, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer func() { s.slots <- conn }()
	if err = l.write(ctx, conn, rows); err == nil {
		return nil
	}
	err = outcome(ctx, err)
	// After a rejection of data the connection is good, and bisecting asks for it at once.
	if !sink.IsPermanent(err) || conn.Exec(ctx, "ROLLBACK").Close() != nil {
		s.retire(conn)
	}
	return err
}

// take waits for a slot and connects where its connection is not there any more. The caller
// gives the slot back.
func (s *Sink) take(ctx context.Context) (*pgconn.PgConn, error) {
	var conn *pgconn.PgConn
	select {
	case conn = <-s.slots:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if conn != nil && !conn.IsClosed() {
		return conn, nil
	}
	conn, err := connect(ctx, s.settings)
	if err != nil {
		s.slots <- nil
		return nil, sink.Unsent(fmt.Errorf("connect to %s: %w", s.host(), outcome(ctx, err)))
	}
	return conn, nil
}

// retire ends a connection without waiting for the server; Close waits for what is left of it.
func (s *Sink) retire(conn *pgconn.PgConn) {
	if !conn.IsClosed() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = conn.Close(ended)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = slices.DeleteFunc(s.retired, func(c *pgconn.PgConn) bool {
		select {
		case <-c.CleanupDone():
			return true
		default:
			return false
		}
	})
	s.retired = append(s.retired, conn)
}

// Close ends the connections, and waits until those that were cut off are gone.
func (s *Sink) Close(ctx context.Context) error {
	for range maxInFlight {
		conn := <-s.slots // no Write is running, so each is there
		if conn != nil {
			_ = conn.Close(ctx)
		}
		s.slots <- nil
	}
	s.mu.Lock()
	retired := s.retired
	s.layout, s.retired = nil, nil
	s.mu.Unlock()
	for _, conn := range retired {
		select {
		case <-conn.CleanupDone():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Caps: a transaction costs the server a flush to its disk, some ms, whatever it holds. 5,000
// entries make that small, and at the 25,000 a second of a busy namespace gather in 200 ms.
func (s *Sink) Caps() sink.Caps {
	return sink.Caps{
		MaxBatches:    5000,
		MaxInFlight:   maxInFlight,
		PreferEntries: 5000,
		MaxBytes:      4 << 20,
		Linger:        200 * time.Millisecond,
	}
}

func (s *Sink) host() string { return net.JoinHostPort(s.settings["host"], s.settings["port"]) }
