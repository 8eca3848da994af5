package redisstream

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/lua/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is an opened sink and a client of its Redis.
func target(t *testing.T, query string) (sink.Sink, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	s := sinktest.Make[*Sink](t, New, "redis-stream"+strings.TrimPrefix(server.URL(), "redis")+query)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	return s, client
}

// batch has n entries of a partition from a sequence on.
func batch(partition string, from int64, n int) *sink.Batch {
	return sinktest.Batch(partition, from, sinktest.Numbered(n)...)
}

// sequences are those of a stream, in the order of its ids.
func sequences(t *testing.T, client *redis.Client, stream string) (list []string) {
	t.Helper()
	messages, err := client.XRange(t.Context(), stream, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		list = append(list, fmt.Sprint(m.Values["seq"]))
	}
	return list
}

func TestABatchWrittenAgainArrivesOnceWhereEachPartitionHasAStream(t *testing.T) {
	t.Parallel()
	s, client := target(t, "?stream=s:{namespace}:{partition}")
	for range 3 {
		if err := s.Write(t.Context(), []*sink.Batch{batch("p", 100, 5)}); err != nil {
			t.Fatal(err)
		}
	}
	// A longer one, of which a part is there.
	if err := s.Write(t.Context(), []*sink.Batch{batch("p", 103, 5)}); err != nil {
		t.Fatal(err)
	}
	if got := sequences(t, client, "s:kart:p"); !slices.Equal(got, []string{"100", "101", "102", "103", "104", "105", "106", "107"}) {
		t.Errorf("got %v", got)
	}
}

func TestEntriesThatOthersOvertookAreNotTakenForRepeats(t *testing.T) {
	t.Parallel()
	s, client := target(t, "?stream=s:{namespace}:{partition}")
	for _, b := range []*sink.Batch{batch("p", 200, 2), batch("p", 100, 2)} {
		if err := s.Write(t.Context(), []*sink.Batch{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got := sequences(t, client, "s:kart:p"); !slices.Equal(got, []string{"200", "201", "100", "101"}) {
		t.Errorf("got %v", got)
	}
}

// With such a name game/eu-kart and game-eu/kart share a stream, and whoever may name
// partitions chooses that.
func TestAnEntryOfAnotherPartitionIsNotTakenForARepeat(t *testing.T) {
	t.Parallel()
	s, client := target(t, "?stream={namespace}-{partition}")
	other, mine := batch("eu-kart", 100, 3), batch("kart", 100, 2)
	other.Namespace, mine.Namespace = "game", "game-eu"
	for _, b := range []*sink.Batch{other, mine} {
		if err := s.Write(t.Context(), []*sink.Batch{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got := sequences(t, client, "game-eu-kart"); !slices.Equal(got, []string{"100", "101", "102", "100", "101"}) {
		t.Errorf("got %v, want the entries of both", got)
	}
}

func TestAKeyThatIsNoStreamConcernsItsPartitionOnly(t *testing.T) {
	t.Parallel()
	s, client := target(t, "?stream=s:{namespace}:{partition}")
	if err := client.Set(t.Context(), "s:kart:bad", "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	err := s.Write(t.Context(), []*sink.Batch{batch("good", 1, 2), batch("bad", 1, 2), batch("fine", 1, 2)})
	var named *sink.BatchError
	if !errors.As(err, &named) || len(named.Failed) != 2 {
		t.Fatalf("got %v, want the two entries of the second batch", err)
	}
	for i, f := range named.Failed {
		if f.Batch != 1 || f.Entry != i || !sink.IsPermanent(f.Err) {
			t.Errorf("got %+v", f)
		}
	}
	for _, stream := range []string{"s:kart:good", "s:kart:fine"} {
		if got := sequences(t, client, stream); len(got) != 2 {
			t.Errorf("%s: got %v", stream, got)
		}
	}
}

func TestAStreamIsTrimmedToAboutItsBound(t *testing.T) {
	t.Parallel()
	s, client := target(t, "?max_len=100")
	for i := range 20 {
		if err := s.Write(t.Context(), []*sink.Batch{batch("p", int64(1+i*100), 100)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := client.XLen(t.Context(), "spillway:kart").Val(); n < 100 || n > 300 {
		t.Errorf("%d of 2,000 entries are left, want 100 and a little more", n)
	}
}

func TestURLsThatCannotWorkAreRejectedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	sinktest.RejectURLs(t, New,
		"redis-stream:", "redis-stream://", "redis-stream:host", "redis-stream://h/x", "redis-stream://h?max_len=0", "redis-stream://h?max_len=1e3", "redis-stream://h?tls=yes",
		"redis-stream://h?maxlen=1", "redis-stream://u:s3cret@h?tls=2", "redis-stream://u:s3cret@h?password_env=NAME", "redis-stream://h#x", "redis-stream://h?stream=s:{partition}", "redis-stream://h?stream={namespace}{partition}&max_len=5",
	)
	s := sinktest.Make[*Sink](t, New, "redis-stream://user:s3cret@h:7000/3?tls=1&stream=a")
	if o := s.options; o.Addr != "h:7000" || o.DB != 3 || o.Username != "user" || o.Password != "s3cret" || o.TLSConfig == nil {
		t.Errorf("got %+v", o)
	}
}

func TestAWrongPasswordIsFoundAtOpen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right")
	s := sinktest.Make[*Sink](t, New, "redis-stream://:wrong@"+server.Addr)
	if err := s.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "wrong@") {
		t.Errorf("got %v", err)
	}
}

// Redis repeats the arguments of a command that it does not know, and go-redis what it
// cannot read.
func TestErrorsShowNothingOfWhatWasSent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ERR unknown command 'xadd', with args beginning with: 's' 'payload' ": "ERR unknown command 'xadd'",
		"redis: can't parse map reply: \"payload\"":                            "redis: can't parse map reply",
		"WRONGTYPE Operation against a key":                                    "WRONGTYPE Operation against a key",
	} {
		if got := brief(errors.New(text)).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// fixture is a sink on a redis-server of its own.
func fixture(t testing.TB, query string) sinktest.Fixture {
	t.Helper()
	server := redistest.Start(t)
	s := sinktest.Make[*Sink](t, New, "redis-stream"+strings.TrimPrefix(server.URL(), "redis")+query)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	set := func(name, on, off string) func() func() {
		return func() func() {
			change(t, client, name, on)
			return func() { change(t, client, name, off) }
		}
	}
	return sinktest.Fixture{
		Sink:     s,
		Received: func() ([]sinktest.Record, error) { return records(t, client) },
		Stall: func() func() {
			server.Signal(syscall.SIGSTOP)
			return func() { server.Signal(syscall.SIGCONT) }
		},
		Faults: []sinktest.Fault{
			{Name: "a full Redis", Start: set("maxmemory", "1", "0")},
			{Name: "too few replicas", Start: set("min-replicas-to-write", "1", "0")},
			{Name: "a user without the right", Start: func() func() {
				acl(t, client, "-xadd")
				return func() { acl(t, client, "+xadd") }
			}},
		},
	}
}

func change(t testing.TB, client *redis.Client, name, value string) {
	t.Helper()
	if err := client.ConfigSet(t.Context(), name, value).Err(); err != nil {
		t.Error(err)
	}
}

func acl(t testing.TB, client *redis.Client, rule string) {
	t.Helper()
	if err := client.Do(t.Context(), "ACL", "SETUSER", "default", rule).Err(); err != nil {
		t.Error(err)
	}
}

// records reads all streams, in the order of their ids.
func records(t testing.TB, client *redis.Client) (list []sinktest.Record, err error) {
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		messages, err := client.XRange(t.Context(), key, "-", "+").Result()
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			field := func(name string) string {
				text, _ := m.Values[name].(string)
				return text
			}
			number := func(name string) int64 {
				n, err := strconv.ParseInt(field(name), 10, 64)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				return n
			}
			r := sinktest.Record{
				Namespace: field("namespace"), Partition: field("partition"), Seq: number("seq"), Occurred: number("ts"),
				Payload: []byte(field("data")), Batch: field("batch"), Attempt: int(number("attempt")),
			}
			if _, given := m.Values["id"]; given {
				r.ID = []byte(field("id"))
			}
			list = append(list, r)
		}
	}
	return list, nil
}

func TestConformsWithASharedStream(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture { return fixture(t, "") }})
}

func TestConformsWithAStreamAPartition(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		return fixture(t, "?stream=events:{namespace}:{partition}")
	}})
}

// BenchmarkWrite writes 16 batches of 128 entries of 200 B a Write, from four goroutines, to a
// redis-server that persists nothing.
func BenchmarkWrite(b *testing.B) {
	for _, query := range []string{"?stream=s:{namespace}:{partition}", "?max_len=100000"} {
		b.Run(query, func(b *testing.B) {
			s := fixture(b, query).Sink
			if err := s.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close(b.Context()) }()
			writes := make(chan int64)
			var running sync.WaitGroup
			for w := range 4 {
				running.Go(func() {
					for n := range writes {
						if err := s.Write(b.Context(), load(w, n)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ResetTimer()
			for n := range int64(b.N) {
				writes <- n
			}
			close(writes)
			running.Wait()
			b.ReportMetric(float64(b.N*16*128)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

var payload = bytes.Repeat([]byte(`{"player":"8d1f20","kind":"move","x":1024.5,"y":88.25}`), 4)[:200]

// load is 16 batches in a row of a partition that is the writer's own.
func load(writer int, n int64) (batches []*sink.Batch) {
	for i := range int64(16) {
		p := &sink.Batch{Namespace: "kart", Partition: string(rune('a' + writer)), FirstSeq: 1 + (n*16+i)*128, Attempt: 1}
		for j := range int64(128) {
			p.Entries = append(p.Entries, sink.Entry{Seq: p.FirstSeq + j, Occurred: 1763629675100, Payload: payload})
		}
		batches = append(batches, p)
	}
	return batches
}
