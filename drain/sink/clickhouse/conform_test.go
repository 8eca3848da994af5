//go:build sinks

package clickhouse

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

// picky is a table like ours that rejects ids of more than some bytes.
func picky(name string, idLen int) string {
	return fmt.Sprintf(`CREATE TABLE %s (namespace String, partition String, seq Int64, ts Int64, id FixedString(%d), data String)
		ENGINE = ReplacingMergeTree() ORDER BY (namespace, partition, seq)`, name, idLen)
}

func TestConforms(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		s := startServer(t)
		run := func(sql string) func() { return func() { s.query(sql) } }
		return sinktest.Fixture{
			Sink: newSink(t, s.url("")), Received: s.records,
			Stall: func() func() {
				_ = s.Signal(syscall.SIGSTOP)
				return func() { _ = s.Signal(syscall.SIGCONT) }
			},
			Faults: []sinktest.Fault{
				{Name: "the server is killed", Start: func() func() { s.Kill(); return s.launch }},
				{Name: "no table", Start: func() func() {
					s.query("RENAME TABLE events TO away")
					return run("RENAME TABLE away TO events")
				}},
				{Name: "a column is missing", Start: func() func() {
					s.query("ALTER TABLE events DROP COLUMN data")
					return run("ALTER TABLE events ADD COLUMN data String AFTER id")
				}},
				{Name: "rows that do not fit", Permanent: true, Start: func() func() {
					s.query(picky("bad", 2))
					s.query("RENAME TABLE events TO good, bad TO events")
					return run("RENAME TABLE events TO bad, good TO events")
				}},
			},
		}
	}})
}

func TestOpenOnARealServerSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for target, want := range map[string]string{
		server.url("&async_insert=1"):                                     "the server does not know async_insert: leave it out",
		strings.Replace(server.url(""), "events", "nope", 1):              "nope: ClickHouse error 60: the table does not exist",
		strings.Replace(server.url(""), "/default", "/nope", 1):           "ClickHouse error 81: the database does not exist",
		strings.Replace(server.url(""), "://", "://nobody:s3cret@", 1):    "ClickHouse error 192: the user is unknown",
		strings.Replace(server.url(""), "://", "://default:s3cret@", 1):   "ClickHouse error 193: the password is wrong",
		strings.Replace(server.url(""), "://", "://reader:s3cret@", 1):    "ClickHouse error 164: the user may only read",
		strings.Replace(server.url("&secure=1"), "://", "://:s3cret@", 1): "tls: first record does not look like a TLS handshake",
		strings.Replace(server.url(""), server.addr, "127.0.0.1:1", 1):    "post to 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused",
	} {
		err := newSink(t, target).Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want %s", target, err, want)
		}
	}
}

func TestTooManyPartsThrottle(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.query("CREATE TABLE crowded AS events ENGINE = MergeTree() ORDER BY seq PARTITION BY seq SETTINGS parts_to_delay_insert = 1, parts_to_throw_insert = 2")
	s := newSink(t, strings.Replace(server.url(""), "events", "crowded", 1))
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	for seq := int64(1); seq < 10 && err == nil; seq++ {
		err = s.Write(t.Context(), []*sink.Batch{batch("a", seq, "1", "2", "3")})
	}
	if got := sinktest.Kind(err); got != "throttle 5s" {
		t.Errorf("got %s: %v", got, err)
	}
}

func TestOneBadRowCostsOneRow(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.query(picky("picky", 8))
	s := newSink(t, strings.Replace(server.url(""), "events", "picky", 1))
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var batches []*sink.Batch
	for p := range 20 {
		batches = append(batches, batch(fmt.Sprintf("p%d", p), 1, make([]string, 50)...))
	}
	poison := &batches[7].Entries[31]
	poison.ID = []byte("c4n4ry-of-more-than-8-bytes")
	dead := sinktest.Bisect(t, s, batches)
	if len(dead) != 1 || string(dead[0].ID) != string(poison.ID) {
		t.Errorf("%d entries are rejected, want the bad one", len(dead))
	}
	if got := server.query("SELECT count() FROM picky FINAL"); got != "999" {
		t.Errorf("%s rows arrived, want 999", got)
	}
	if err := s.Write(t.Context(), batches[7:8]); err == nil || strings.Contains(err.Error(), "c4n4ry") {
		t.Errorf("got %v", err)
	}
}

func TestKilledInTheMiddleEachEntryIsThereOnce(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := newSink(t, server.url(""))
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	const stop = "SYSTEM STOP MERGES" // or they remove the repeats that FINAL has to
	server.query(stop)
	n := sinktest.Killed(t, s, 50, strings.Repeat("x", 300), func() { server.Kill() }, func() {
		server.launch()
		server.query(stop)
	})
	want := fmt.Sprintf("%d\t%d\t%d", n, n, n)
	if got := server.query("SELECT count(), uniqExact(partition, seq), sum(length(data) = 300) FROM events FINAL"); got != want {
		t.Errorf("rows, distinct entries, whole payloads: %s, want %d of each", got, n)
	}
	if got := server.query(fmt.Sprintf("SELECT count() > %d FROM events", n)); got != "1" {
		t.Error("nothing was inserted twice: the test shows nothing")
	}
}

// BenchmarkWrite is one Write after the other, of 10,112 entries of 79 partitions and 100 or
// 400 bytes each, on the documented table.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{100, 400} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			server := startServer(b)
			s := newSink(b, server.url(""))
			if err := s.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			var payloads []string
			for i := range 128 {
				payloads = append(payloads, fmt.Sprintf(`{"type":"obs","time":-%d,"key":"%s"}`, i*7919, strings.Repeat(fmt.Sprint(i*104729), size)[:size-30]))
			}
			var seq int64 = 1
			rows := 0
			for b.Loop() {
				var batches []*sink.Batch
				for p := range 79 {
					batches = append(batches, batch(fmt.Sprintf("com.acme.p%d", p), seq, payloads...))
					rows += 128
				}
				seq += 128
				if err := s.Write(b.Context(), batches); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(rows)/float64(b.N), "rows/insert")
			if got := server.query("SELECT count() FROM events FINAL"); got != fmt.Sprint(rows) {
				b.Errorf("%s rows arrived, want %d", got, rows)
			}
		})
	}
}
