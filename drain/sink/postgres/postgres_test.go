package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSink(t testing.TB, raw string) *Sink {
	t.Helper()
	return sinktest.Make[*Sink](t, New, raw)
}

// batch has an entry with an id for each payload, from a sequence on.
func batch(partition string, from int64, payloads ...string) *sink.Batch {
	b := sinktest.Batch(partition, from, payloads...)
	for i := range b.Entries {
		b.Entries[i].ID = fmt.Appendf(nil, "id-%d", i)
	}
	return b
}

func TestEverySQLSTATEHasAnOutcome(t *testing.T) {
	t.Parallel()
	for kind, codes := range map[string]string{
		"permanent":     "22000 22003 22021 22P02 22P05 23502 23505 23514 54000 P0001",
		"not connected": "28000 28P01 3D000 3F000 42501 42P01 42703 42P10 42804 25006",
		"throttle 1s":   "53000 53100 53200 53300",
		"retry":         "40001 40P01 55P03 57014 57P01 57P02 57P03 58030 08006 25001 XX000 2 \xff",
	} {
		for code := range strings.FieldsSeq(codes) {
			err := outcome(t.Context(), fmt.Errorf("x: %w", &pgconn.PgError{Code: code, Message: "c4n4ry", Detail: "c4n4ry", Where: "c4n4ry", ConstraintName: "positive"}))
			if got := sinktest.Kind(err); got != kind {
				t.Errorf("%s: got %s, want %s", code, got, kind)
			}
			if strings.Contains(err.Error(), "c4n4ry") || !strings.HasPrefix(err.Error(), "SQLSTATE ") {
				t.Errorf("%s: got %v", code, err)
			}
			if got := sink.Detail(err); (got == "c4n4ry") != (kind == "permanent") {
				t.Errorf("%s: the detail is %q", code, got)
			}
			if named := strings.Contains(err.Error(), `constraint "positive"`); named != strings.HasPrefix(code, "23") {
				t.Errorf("%s: got %v", code, err)
			}
		}
	}
	if err := outcome(t.Context(), errors.New("c4n4ry")); sinktest.Kind(err) != "retry" || strings.Contains(err.Error(), "c4n4ry") {
		t.Errorf("got %v", err)
	}
}

func TestURLsThatCannotWorkAreRejectedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	sinktest.RejectURLs(t, New,
		"postgres:", "postgres://", "postgres:u@h/d?table=t", "postgres://u:s3cret@/d?table=t", "postgres://h/d?table=t", "postgres://:s3cret@h/d?table=t", "postgres://u:s3cret@h?table=t",
		"postgres://u:s3cret@h/d", "postgres://u:s3cret@h/d?table=", "postgres://u:s3cret@h/d?table=a.b.c", "postgres://u:s3cret@h/d?table=a%22", "postgres://u:s3cret@h/d?table=.a",
		"postgres://u:s3cret@h/d?table=t&sslmode=yes", "postgres://u:s3cret@h/d?table=t&options=x", "postgres://u:s3cret@h/d?table=t#x",
	)
	s := newSink(t, "postgres://u%27:p%5C%27%20w@[::1]/d?table=S.t")
	if s.settings["user"] != "u'" || s.settings["password"] != `p\' w` || s.host() != "[::1]:5432" || s.table != `"S"."t"` {
		t.Errorf("got %v %s", s.settings, s.table)
	}
}

// An unreachable server shows that the connection string is whole: pgconn parses it first.
func TestTheEnvironmentAndTheHomeFolderChangeNothing(t *testing.T) {
	for name, value := range map[string]string{
		"PGHOST": "nope.invalid", "PGPORT": "1", "PGUSER": "x", "PGSSLMODE": "verify-full", "PGSSLROOTCERT": "/nope", "PGSSLCERT": "/nope", "PGSSLKEY": "/nope", "PGOPTIONS": "-c x=y", "PGTZ": "UTC",
		"PGTARGETSESSIONATTRS": "nonsense", "PGCONNECT_TIMEOUT": "x", "PGREQUIREAUTH": "x", "PGCHANNELBINDING": "x", "PGMINPROTOCOLVERSION": "9", "PGMAXPROTOCOLVERSION": "9", "PGSSLNEGOTIATION": "x", "PGPASSFILE": "/nope", "PGSSLCERTMODE": "x",
	} {
		t.Setenv(name, value)
	}
	s := newSink(t, `postgres://u%27:p%5C%27%20w@127.0.0.1:2/d?table=t`)
	err := s.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "connect to 127.0.0.1:2: dial: connect: connection refused") {
		t.Errorf("got %v", err)
	}
	if err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, "1")}); !errors.Is(err, sink.ErrNotConnected) {
		t.Errorf("Write without Open: got %v", err)
	}
}

func TestPayloadsThatTheColumnCannotHoldAreNamedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := newSink(t, "postgres://u@127.0.0.1:1/d?table=t") // nothing answers there
	s.layout = &layout{data: "jsonb", timestamps: true}
	err := s.Write(t.Context(), []*sink.Batch{batch("a", 1, "c4n4ry"), batch("b", 1, `"\u0000"`, `{"c4n4ry":"\ud800"}`)})
	var named *sink.BatchError
	if !errors.As(err, &named) || len(named.Failed) != 3 {
		t.Fatalf("got %v", err)
	}
	for i, want := range [][2]int{{0, 0}, {1, 0}, {1, 1}} {
		f := named.Failed[i]
		if f.Batch != want[0] || f.Entry != want[1] || !sink.IsPermanent(f.Err) || strings.Contains(f.Err.Error(), "c4n4ry") {
			t.Errorf("got %+v, want %v", f, want)
		}
	}
	rows, n, rejected := s.layout.encode([]*sink.Batch{batch("a", 1, "1", "x", "2")})
	if n != 2 || len(rejected.Failed) != 1 || len(rows) != 19+2*(2+8+5+12+12+8+6)+2 {
		t.Errorf("got %d rows of %d bytes, %v", n, len(rows), rejected)
	}
}

// Batches of quiet partitions have one entry.
func TestOneCopyMayHaveAsManyBatchesAsRows(t *testing.T) {
	t.Parallel()
	caps := newSink(t, "postgres://u@127.0.0.1/d?table=events").Caps()
	if caps.MaxBatches < caps.PreferEntries {
		t.Errorf("got %+v", caps)
	}
}

// rejected and held are numbers that PostgreSQL 15 rejects as jsonb, and takes: a test with the
// tag sinks asks it.
var rejectedNumbers = []string{
	"1e131072", "10e131071", "0.1e131073", "0e-999999", "1e-16384", "0.1e-16383", "1.0e-16383", "100e-16384", "0e99999999999", "1e1073741823", "-1e-1073741824", "[1,-1E131072]",
	"0." + strings.Repeat("0", 16383) + "1", "0." + strings.Repeat("0", 20000), strings.Repeat("1", 131073), strings.Repeat("1", 32000) + "e99073", `{"a":1e999999}`, `["\"",1e999999]`,
}

var heldNumbers = []string{
	"0", "-0", "1e400", "1E+5", "1e131071", "0.1e131072", "0.001e131074", "0e999999", "1e-16383", "0.1e-16382", "1.0e16384", "0e1073741822", "0.0e131073", "-12.5e-3",
	"0." + strings.Repeat("0", 16382) + "1", "0." + strings.Repeat("0", 16383) + "1e5", strings.Repeat("1", 131072), strings.Repeat("1", 32000) + "e99072", `["1e999999","\"1e999999"]`, `{"1e999999":[1,2.5]}`,
}

func TestNumbersBeyondTheRangeOfJSONBAreFound(t *testing.T) {
	t.Parallel()
	for _, text := range rejectedNumbers {
		if goodNumbers([]byte(text)) {
			t.Errorf("%.40s passes", text)
		}
	}
	for _, text := range heldNumbers {
		if !goodNumbers([]byte(text)) {
			t.Errorf("%.40s is rejected", text)
		}
	}
}

// FuzzCheck holds the search for what jsonb rejects to its bounds: what is JSON never makes it
// read past the end.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`"\u0000"`, `"\ud83c\udfae"`, `"\ud83c"`, `"\ud83c\n"`, `"\\u0000"`, `{"\uDFAE":1}`, `"\`, `\u`, `"\ud83c\ud83c"`, `[1e5,-0.1E-7,"\"1e9"]`, `1e999999`} {
		f.Add(s)
	}
	l := &layout{data: "jsonb"}
	f.Fuzz(func(t *testing.T, s string) {
		err := l.check([]byte(s))
		if strings.Contains(strings.ReplaceAll(s, `\\`, ""), `\u0000`) && err == nil {
			t.Errorf("%q passes", s)
		}
	})
}

// A server that announces 900 MB and sends nothing must not make the sink reserve them.
func TestALongAnswerIsRejectedWhenItIsAnnounced(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 4096)) // its startup message
			_, _ = conn.Write([]byte{'E', 0x35, 0xa4, 0xe9, 0x00})
		}
	}()
	s := newSink(t, "postgres://u@"+listener.Addr().String()+"/db?table=t&sslmode=disable")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := s.Open(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an error at once", err)
	}
}
