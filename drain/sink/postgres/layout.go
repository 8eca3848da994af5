package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-io/spillway/drain/sink"
)

const columns = `"namespace", "partition", "seq", "ts", "id", "data"`

// A layout is what the table's column types make of a Write.
type layout struct {
	timestamps bool   // ts is a timestamptz; else a bigint
	data       string // type of data: jsonb, json, text or bytea

	begin  string // opens the transaction and makes the temporary table where it is not there
	copy   string // fills the temporary table
	finish string // moves its rows to the table and commits
}

// The OIDs of types, which never change: src/include/catalog/pg_type.dat of PostgreSQL.
var dataTypes = map[uint32]string{3802: "jsonb", 114: "json", 25: "text", 1043: "text", 17: "bytea"}

const bigint, timestamptz = 20, 1184

// typeError says which column has a type that the sink cannot write.
type typeError struct{ column, want string }

func (e *typeError) Error() string {
	return fmt.Sprintf("the type of column %s: want %s", e.column, e.want)
}

// readLayout asks the server which types it would want as parameters: that takes no right to
// read the table.
func readLayout(ctx context.Context, conn *pgconn.PgConn, table string) (*layout, error) {
	d, err := conn.Prepare(ctx, "", "INSERT INTO "+table+" ("+columns+") VALUES ($1, $2, $3, $4, $5, $6)", nil)
	if err != nil {
		return nil, err
	}
	if len(d.ParamOIDs) != 6 {
		return nil, errors.New("the server describes no columns")
	}
	l := &layout{timestamps: d.ParamOIDs[3] == timestamptz, data: dataTypes[d.ParamOIDs[5]]}
	ts := "bigint"
	switch {
	case l.timestamps:
		ts = "timestamptz"
	case d.ParamOIDs[3] != bigint:
		return nil, &typeError{"ts", "bigint or timestamptz"}
	}
	if l.data == "" {
		return nil, &typeError{"data", "jsonb, json, text or bytea"}
	}
	// The temporary table is the session's, which a pooler may give to several clients: its
	// name says what it holds, and it is made in the transaction that needs it.
	temporary := "pg_temp.spillway_" + ts + "_" + l.data
	l.begin = "BEGIN; CREATE TEMPORARY TABLE IF NOT EXISTS " + temporary +
		" (namespace text, partition text, seq bigint, ts " + ts + ", id text, data " + l.data +
		") ON COMMIT DELETE ROWS; "
	l.copy = "COPY " + temporary + " (" + columns + ") FROM STDIN (FORMAT binary)"
	// Two Writes that repeat the same entries wait for each other's keys. In one order they
	// cannot wait in a circle.
	l.finish = "INSERT INTO " + table + " (" + columns + ") SELECT " + columns + " FROM " + temporary +
		` ORDER BY "namespace", "partition", "seq" ON CONFLICT ("namespace", "partition", "seq") DO NOTHING; COMMIT`
	return l, nil
}

// write is one transaction, of three round trips.
func (l *layout) write(ctx context.Context, conn *pgconn.PgConn, rows []byte) error {
	if err := conn.Exec(ctx, l.begin).Close(); err != nil {
		return err
	}
	if _, err := conn.CopyFrom(ctx, bytes.NewReader(rows), l.copy); err != nil {
		return err
	}
	return conn.Exec(ctx, l.finish).Close()
}

// encode makes the n rows of a binary COPY, and names the entries whose payload the column
// cannot hold. The server names none: a sender of such payloads would have all others bisected.
func (l *layout) encode(batches []*sink.Batch) (rows []byte, n int, rejected *sink.BatchError) {
	size := 64
	for _, b := range batches {
		for i := range b.Entries {
			size += 64 + len(b.Namespace) + len(b.Partition) + len(b.Entries[i].ID) + len(b.Entries[i].Payload)
		}
	}
	rejected = &sink.BatchError{}
	rows = append(make([]byte, 0, size), "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	for i, b := range batches {
		for j := range b.Entries {
			e := &b.Entries[j]
			if err := l.check(e.Payload); err != nil {
				rejected.Fail(i, j, sink.Permanent(err))
				continue
			}
			n++
			rows = binary.BigEndian.AppendUint16(rows, 6)
			rows = appendField(rows, b.Namespace)
			rows = appendField(rows, b.Partition)
			rows = appendInt(rows, e.Seq)
			rows = appendInt(rows, l.time(e.Occurred))
			if e.ID == nil {
				rows = append(rows, 0xff, 0xff, 0xff, 0xff) // NULL
			} else {
				rows = appendField(rows, e.ID)
			}
			if l.data == "jsonb" {
				rows = binary.BigEndian.AppendUint32(rows, uint32(len(e.Payload)+1))
				rows = append(append(rows, 1), e.Payload...) // the version of its binary form, then text
			} else {
				rows = appendField(rows, e.Payload)
			}
		}
	}
	return append(rows, 0xff, 0xff), n, rejected
}

func appendField[T string | []byte](dst []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

func appendInt(dst []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 0, 0, 0, 8), uint64(n))
}

// time is a Unix time in ms as the column has it: a timestamptz counts µs from 2000.
func (l *layout) time(ms int64) int64 {
	if l.timestamps {
		return (ms - 946_684_800_000) * 1000
	}
	return ms
}

var (
	errNotJSON = errors.New("payload is not JSON, or nests deeper than 100, and column data holds only JSON")
	errEscape  = errors.New(`payload has \u0000 or half of a surrogate pair, which jsonb cannot hold`)
	errNumber  = errors.New("payload has a number beyond the range of jsonb")
	errNotText = errors.New("payload is not UTF-8 or has a NUL, and column data is text")
)

// check says whether column data can hold a payload.
func (l *layout) check(p []byte) error {
	switch {
	case l.data == "text" && (bytes.IndexByte(p, 0) >= 0 || !utf8.Valid(p)):
		return errNotText
	case (l.data == "json" || l.data == "jsonb") && !sink.ValidJSON(p):
		return errNotJSON
	case l.data == "jsonb" && !goodEscapes(p):
		return errEscape
	case l.data == "jsonb" && !goodNumbers(p):
		return errNumber
	}
	return nil
}
