//go:build sinks

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

// raises makes every INSERT end with a statement of a trigger.
func (d *database) raises(tb testing.TB, statement string) func() func() {
	return func() func() {
		d.query(tb, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+statement+`; RETURN NEW; END $$;
			CREATE TRIGGER fail BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION fail()`)
		return func() { d.query(tb, "DROP TRIGGER fail ON events; DROP FUNCTION fail") }
	}
}

func TestConforms(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	var made atomic.Int32
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		d := server.create(t, fmt.Sprintf("conform%d", made.Add(1)), "jsonb ", "bytea ", "timestamptz ", "bigint ")
		d.query(t, "ALTER TABLE events ADD arrival bigserial")
		change := func(on, off string) func() func() {
			return func() func() { d.query(t, on); return func() { d.query(t, off) } }
		}
		return sinktest.Fixture{
			Sink: d.sink(t, ""), Received: d.records,
			Stall: change("BEGIN; LOCK TABLE events IN SHARE MODE", "COMMIT"),
			Faults: []sinktest.Fault{
				{Name: "no table", Start: change("ALTER TABLE events RENAME TO away", "ALTER TABLE away RENAME TO events")},
				{Name: "no column", Start: change("ALTER TABLE events RENAME data TO away", "ALTER TABLE events RENAME away TO data")},
				{Name: "another type", Start: change("ALTER TABLE events ALTER data TYPE int[] USING NULL, ALTER data DROP NOT NULL", "ALTER TABLE events ALTER data TYPE bytea USING NULL")},
				{Name: "no unique index", Start: change("ALTER TABLE events DROP CONSTRAINT events_pkey", "ALTER TABLE events ADD PRIMARY KEY (namespace, partition, seq)")},
				{Name: "the connection is cut", Start: d.raises(t, "PERFORM pg_terminate_backend(pg_backend_pid())")},
				{Name: "a deadlock", Start: d.raises(t, "RAISE 'c4n4ry' USING ERRCODE = '40P01'")},
				{Name: "a full disk", Start: d.raises(t, "RAISE 'c4n4ry' USING ERRCODE = '53100'")},
				{Name: "a standby", Start: d.raises(t, "RAISE 'c4n4ry' USING ERRCODE = '25006'")},
				{Name: "a constraint", Permanent: true, Start: change("ALTER TABLE events ADD CONSTRAINT none CHECK (seq < 0)", "ALTER TABLE events DROP CONSTRAINT none")},
				{Name: "a trigger that raises", Permanent: true, Start: d.raises(t, "RAISE 'no %', NEW.data")},
			},
		}
	}})
}

func open(t testing.TB, s *Sink) *Sink {
	t.Helper()
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpenOnARealServerSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	d := server.create(t, "game")
	d.query(t, `CREATE TABLE keyless (LIKE events); CREATE TABLE clock (LIKE events INCLUDING ALL); ALTER TABLE clock ALTER ts TYPE timestamp;
		CREATE TABLE other (namespace text, partition text, seq bigint); CREATE ROLE reader LOGIN PASSWORD 's3cret'; GRANT SELECT ON events TO reader;
		CREATE ROLE writer LOGIN PASSWORD 's3cret'; GRANT INSERT, SELECT ON events TO writer`)
	good := "postgres://owner:s3cret@" + server.addr + "/game?table=events"
	for _, c := range []struct{ old, new, want string }{
		{":s3cret", ":wrong", "SQLSTATE 28P01: the password is wrong"},
		{"owner", "nobody", "SQLSTATE 28P01"},
		{"owner", "reader", "SQLSTATE 42501: the user lacks a right"},
		{"/game", "/nope", "SQLSTATE 3D000: the database does not exist"},
		{"events", "nope", `table "nope": SQLSTATE 42P01: the table does not exist: deploy/sql/postgres.sql makes one`},
		{"events", "other", "SQLSTATE 42703: a column is missing"},
		{"events", "keyless", "SQLSTATE 42P10: the table has no unique index on (namespace, partition, seq)"},
		{"events", "clock", "the type of column ts: want bigint or timestamptz"},
		{"events", "events&sslmode=require", "the server has no TLS"},
		{"events", "events&sslmode=verify-full&sslrootcert=/nope", "sslrootcert is not a file of certificates"},
		{server.addr, "127.0.0.1:1", "dial: connect: connection refused"},
	} {
		err := newSink(t, strings.Replace(good, c.old, c.new, 1)).Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "wrong ") {
			t.Errorf("%s: got %v, want %s", c.new, err, c.want)
		}
	}
	for table, user := range map[string]string{"events": "owner", "public.events": "writer"} {
		s := open(t, newSink(t, strings.NewReplacer("events", table, "owner", user).Replace(good)))
		if err := s.Write(t.Context(), []*sink.Batch{batch(user, 1, "1")}); err != nil {
			t.Errorf("%s: got %v", user, err)
		}
	}
}

func TestEachTypeOfDataTakesWhatItCan(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	payloads := []string{
		`{"a":1}`, ` [1, 2] `, `"\u0000"`, `"\ud800"`, `"\ud800\u0041"`, `"\udc00"`, `"\ud83c\udfae \\u0000 ü"`, `{"\u0000":1}`, `12345678901234567890`, `1e400`,
		"", "plain", "\x00", "\xff", "{\"raw\":\"\xff\"}", strings.Repeat("[", 101) + strings.Repeat("]", 101), strings.Repeat("[", 5000),
	}
	for kind, rejected := range map[string][]int{
		"jsonb": {2, 3, 4, 5, 7, 10, 11, 12, 13, 14, 15, 16}, "json": {10, 11, 12, 13, 14, 15, 16}, "text": {12, 13, 14}, "varchar(9000)": {12, 13, 14}, "bytea": nil,
	} {
		d := server.create(t, strings.TrimSuffix(kind, "(9000)"), "jsonb ", kind+" ")
		s := open(t, d.sink(t, ""))
		b := batch("a", 1, payloads...)
		b.Entries[0].ID = nil
		err := s.Write(t.Context(), []*sink.Batch{batch("before", 1, "1"), b})
		var named *sink.BatchError
		var got []int
		if errors.As(err, &named) {
			for _, f := range named.Failed {
				got = append(got, f.Entry)
				if f.Batch != 1 || !sink.IsPermanent(f.Err) {
					t.Errorf("%s: got %+v", kind, f)
				}
			}
		}
		if kind == "jsonb" {
			compareNumbers(t, s, d)
		}
		if !slices.Equal(got, rejected) {
			t.Errorf("%s: rejected are %v, want %v (%v)", kind, got, rejected, err)
			continue
		}
		rows := d.query(t, "SELECT seq, (extract(epoch FROM ts) * 1000)::bigint, id IS NULL FROM events WHERE partition = 'a' ORDER BY seq")
		if len(rows) != len(payloads)-len(rejected) || rows[0][1] != "1763629675100" || rows[0][2] != "t" || rows[1][2] != "f" {
			t.Errorf("%s: got %v", kind, rows)
		}
	}
}

// compareNumbers holds goodNumbers to what the server says.
func compareNumbers(t *testing.T, s *Sink, d *database) {
	t.Helper()
	for _, text := range rejectedNumbers {
		if _, err := d.ask("SELECT '" + text + "'::jsonb"); err == nil {
			t.Errorf("the server takes %.40s", text)
		}
	}
	if err := s.Write(t.Context(), []*sink.Batch{batch("numbers", 1, heldNumbers...)}); err != nil {
		t.Errorf("numbers are rejected: %v", err)
	}
}

// A constraint is one of the rejections that only the server finds.
func TestOneBadRowCostsOneRow(t *testing.T) {
	t.Parallel()
	d := startServer(t, nil).create(t, "game")
	d.query(t, "ALTER TABLE events ADD CHECK (NOT data ? 'c4n4ry')")
	s := open(t, d.sink(t, ""))
	var batches []*sink.Batch
	for p := range 20 {
		batches = append(batches, batch(fmt.Sprintf("p%d", p), 1, slices.Repeat([]string{"1"}, 50)...))
	}
	batches[7].Entries[31].Payload = []byte(`{"c4n4ry":1}`)
	dead := sinktest.Bisect(t, s, batches)
	if len(dead) != 1 || !strings.Contains(string(dead[0].Payload), "c4n4ry") {
		t.Errorf("%d entries are rejected, want the bad one", len(dead))
	}
	if got := d.query(t, "SELECT count(*) FROM events"); got[0][0] != "999" {
		t.Errorf("%s rows arrived, want 999", got[0][0])
	}
	if got := d.query(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'game' AND application_name = 'spillway'"); got[0][0] > "5" {
		t.Errorf("%s connections, want 4 and the test's own", got[0][0])
	}
}

func TestConnectionsEndWithTheSinkAndNeverExceedTheirBound(t *testing.T) {
	t.Parallel()
	d := startServer(t, nil).create(t, "game")
	s := open(t, d.sink(t, ""))
	d.query(t, "BEGIN; LOCK TABLE events IN SHARE MODE")
	var writers sync.WaitGroup
	for i := range 12 {
		writers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := s.Write(ctx, []*sink.Batch{batch("p", int64(i+1), "1")}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
	writers.Wait()
	d.query(t, "COMMIT")
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for { // a backend ends a moment after its client
		got := d.query(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'game'")[0][0]
		if got == "1" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s connections are left, want the test's own", got)
		}
	}
}

func TestTheSameEntriesFromManyWritersAtOnceAreThereOnce(t *testing.T) {
	t.Parallel()
	d := startServer(t, nil).create(t, "game")
	s := open(t, d.sink(t, ""))
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			var group []*sink.Batch
			for p := range 20 {
				group = append(group, batch(fmt.Sprintf("p%d", (p*7+w*3)%20), 1, slices.Repeat([]string{"1"}, 50)...))
			}
			if err := s.Write(t.Context(), group); err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
	writers.Wait()
	if got := d.query(t, "SELECT count(*) FROM events"); got[0][0] != "1000" {
		t.Errorf("got %s rows, want 1000", got[0][0])
	}
}

func TestKilledInTheMiddleEachEntryIsThereOnce(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	d := server.create(t, "game")
	n := sinktest.Killed(t, open(t, d.sink(t, "")), 50, `"`+strings.Repeat("x", 298)+`"`, func() {
		_ = server.Signal(syscall.SIGQUIT) // nothing is flushed
		<-server.Done
	}, server.launch)
	d.reconnect(t)
	got := d.query(t, "SELECT count(*), count(DISTINCT (namespace, partition, seq)), count(*) FILTER (WHERE length(data::text) = 300) FROM events")
	if fmt.Sprint(got[0]) != fmt.Sprint([]int{n, n, n}) {
		t.Errorf("rows, distinct entries, whole payloads: %v, want %d of each", got[0], n)
	}
}

// BenchmarkWrite is one Write after the other, of 5,120 entries of 40 partitions and 100 or 400
// bytes each, on the documented table; the server flushes each COMMIT to the disk.
func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct {
		kind string
		size int
	}{{"jsonb", 100}, {"jsonb", 400}, {"bytea", 100}} {
		b.Run(fmt.Sprintf("%s/%dB", c.kind, c.size), func(b *testing.B) {
			d := startServer(b, nil).create(b, "game", "jsonb ", c.kind+" ")
			s := open(b, d.sink(b, ""))
			var payloads []string
			for i := range 128 {
				payloads = append(payloads, fmt.Sprintf(`{"type":"obs","time":-%d,"key":"%s"}`, i*7919, strings.Repeat(fmt.Sprint(i*104729), c.size)[:c.size-30]))
			}
			var seq int64 = 1
			rows := 0
			for b.Loop() {
				var batches []*sink.Batch
				for p := range 40 {
					batches = append(batches, batch(fmt.Sprintf("com.acme.p%d", p), seq, payloads...))
					rows += 128
				}
				seq += 128
				if err := s.Write(b.Context(), batches); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			if got := d.query(b, "SELECT count(*) FROM events"); got[0][0] != fmt.Sprint(rows) {
				b.Errorf("%s rows arrived, want %d", got[0][0], rows)
			}
		})
	}
}
