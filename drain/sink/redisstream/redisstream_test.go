package redisstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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
