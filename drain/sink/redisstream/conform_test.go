package redisstream

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/lua/redistest"
)

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
			{Name: "a user without the right", Permanent: true, Start: func() func() {
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
