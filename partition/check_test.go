package partition_test

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

func TestCheckPassesAndWarnsOfWhatACrashLoses(t *testing.T) {
	t.Parallel()
	for appendonly, warned := range map[string]bool{"no": true, "yes": false} {
		server := redistest.Start(t, "--appendonly", appendonly)
		warnings, err := open(t, server.URL(), nil).Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(warnings, "\n"), server.Addr+": its append-only file is off"); got != warned {
			t.Errorf("appendonly %s: warnings %q", appendonly, warnings)
		}
	}
	if warnings, err := open(t, "embedded:", nil).Check(t.Context()); err != nil || len(warnings) != 0 {
		t.Errorf("embedded: %q %v", warnings, err)
	}
}

// While clients send on, its memory swings around the limit: one warning, not one a second.
func TestCheckWarnsOfAFullStoreUntilATwentiethIsFree(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	info := server.Client().InfoMap(t.Context(), "memory").Val()["Memory"]
	used, _ := strconv.Atoi(info["used_memory"])
	for _, step := range []struct {
		limit int
		full  bool
	}{{0, false}, {10 * used, false}, {used / 2, true}, {used * 51 / 50, true}, {10 * used, false}, {0, false}} {
		server.Client().ConfigSet(t.Context(), "maxmemory", strconv.Itoa(step.limit))
		warnings, err := s.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(warnings, "\n"), server.Addr+": its memory is full, so it rejects what clients send (store_full)"); got != step.full {
			t.Errorf("%d of %d bytes: warnings %q", used, step.limit, warnings)
		}
	}
}

func TestCheckRejectsAStoreThatEvictsKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "volatile-lru")
	s := open(t, server.URL(), nil)
	_, err := s.Check(t.Context())
	rejected(t, err, "volatile-lru", "CONFIG SET maxmemory-policy noeviction", server.Addr)
	server.Client().ConfigSet(t.Context(), "maxmemory-policy", "noeviction")
	if _, err := s.Check(t.Context()); err != nil {
		t.Errorf("after the repair: %v", err)
	}
}

// rejected checks for ErrIncompatible and a text that says what to do.
func rejected(t *testing.T, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, partition.ErrIncompatible) || !errors.Is(err, partition.ErrBroken) {
		t.Fatalf("got %v, want ErrIncompatible", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

func TestCheckRejectsAnotherFormat(t *testing.T) {
	t.Parallel()
	c := redistest.SharedClient(t)
	for prefix, row := range map[string]struct {
		stored map[string]string
		texts  []string
	}{
		"format-queue":   {map[string]string{"format": "1", "kind": "queue"}, []string{"holds queues", "kind: queue"}},
		"format-unknown": {map[string]string{"format": "1", "kind": "tree"}, []string{"kind tree", "upgrade"}},
		"format-2":       {map[string]string{"format": "2"}, []string{"format 2", "upgrade"}},
		"format-x":       {map[string]string{"format": "x"}, []string{`format="x"`, "no number"}},
	} {
		ledger := prefix + ":{default.0}:ledger"
		c.HSet(t.Context(), ledger, row.stored)
		_, err := openPrefix(t, "redis://"+redistest.Shared(t), prefix, nil).Check(t.Context())
		rejected(t, err, append(row.texts, "default")...)
		if got := c.HGetAll(t.Context(), ledger).Val(); !maps.Equal(got, row.stored) {
			t.Errorf("the rejected store was written to: %v", got)
		}
	}
}

func TestCheckRecordsFormatAndShards(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := server.Client()
	if _, err := open(t, server.URL(), func(p *partition.Policy) { p.Shards = 2 }).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"sw:{default.0}:ledger", backend.ShardPrefix("sw", "default", 1, 2) + "ledger"} {
		if got := c.HGetAll(t.Context(), key).Val(); got["format"] != "1" || got["shards"] != "2" {
			t.Errorf("%s: %v", key, got)
		}
	}
	for _, shards := range []int{1, 3, 8} {
		s := open(t, server.URL(), func(p *partition.Policy) { p.Shards = shards })
		if _, err := s.Check(t.Context()); !errors.Is(err, partition.ErrIncompatible) || !strings.Contains(err.Error(), "fixed at first use, which was with 2") {
			t.Errorf("configured with %d: %v", shards, err)
		}
		if err := s.produce("kart", "x"); !errors.Is(err, partition.ErrIncompatible) {
			t.Errorf("produce, configured with %d: %v", shards, err)
		}
	}
	auto := open(t, server.URL(), func(p *partition.Policy) { p.Shards = partition.AutoShards })
	if _, err := auto.Check(t.Context()); err != nil || auto.ns.Shards() != 2 {
		t.Errorf("auto: %d shards, %v", auto.ns.Shards(), err)
	}
	if keys := c.Keys(t.Context(), "*").Val(); len(keys) != 2 {
		t.Errorf("another setting left keys: %v", keys)
	}
	if _, err := open(t, server.URL(), func(p *partition.Policy) { p.Shards = 2 }).Check(t.Context()); err != nil {
		t.Errorf("the same setting again: %v", err)
	}
}

// Where nothing of a shard works the store is not ready, at the start and later. The
// error names the key, its type and what to do.
func TestCheckNamesAForeignKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"sw:{default.0}:ledger", "sw:{default.0}:ready"} {
		for _, later := range []bool{false, true} {
			server := redistest.Start(t)
			s, c := open(t, server.URL(), nil), server.Client()
			if later {
				if _, err := s.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			c.Del(t.Context(), key)
			c.Set(t.Context(), key, "x", 0)
			_, err := s.Check(t.Context())
			if !errors.Is(err, partition.ErrBroken) {
				t.Fatalf("%s: got %v, want ErrBroken", key, err)
			}
			for _, text := range []string{"namespace default", key, "string", "RENAME"} {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			c.Rename(t.Context(), key, key+".foreign")
			if _, err := s.Check(t.Context()); err != nil {
				t.Errorf("%s, once it is away: %v", key, err)
			}
		}
	}
}

// Most entries never need their shard's dead letters, so a foreign value there
// is a warning, at the start and later, and the ledger can still be read.
func TestCheckWarnsOfForeignDeadLetters(t *testing.T) {
	t.Parallel()
	const key = "sw:{default.0}:dead"
	for _, later := range []bool{false, true} {
		server := redistest.Start(t)
		s, c := open(t, server.URL(), nil), server.Client()
		if later {
			if _, err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		c.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{"a", "b"}})
		warnings, err := s.Check(t.Context())
		if err != nil {
			t.Fatalf("check: %v", err)
		}
		if text := strings.Join(warnings, "\n"); !strings.Contains(text, key) || !strings.Contains(text, "stream") || !strings.Contains(text, "RENAME") {
			t.Errorf("warnings: %q", warnings)
		}
		if err := s.produce("kart", "x"); err != nil {
			t.Errorf("produce: %v", err)
		}
		if o, err := s.Overview(t.Context(), s.ns); err != nil || o.Ledger.Accepted != 1 {
			t.Errorf("overview: %+v %v", o, err)
		}
	}
}

// A wrong password is ErrBroken, and no error repeats it.
func TestAWrongPasswordIsBrokenAndNeverRepeated(t *testing.T) {
	t.Parallel()
	const right, wrong = "right-horse-battery", "wrong-staple-hunter2"
	server := redistest.Start(t, "--requirepass", right)
	down := redistest.FreeAddr(t)
	for name, row := range map[string]struct {
		url   string
		class error
	}{
		"wrong":                  {"redis://:" + wrong + "@" + server.Addr, partition.ErrBroken},
		"wrong user":             {"redis://someone:" + wrong + "@" + server.Addr, partition.ErrBroken},
		"none":                   {"redis://" + server.Addr, partition.ErrBroken},
		"wrong on a cluster":     {"redis-cluster://:" + wrong + "@" + server.Addr, partition.ErrBroken},
		"no such server":         {"redis://:" + wrong + "@" + down, partition.ErrUnavailable},
		"no such cluster":        {"redis-cluster://:" + wrong + "@" + down, partition.ErrUnavailable},
		"no such sentinel":       {"redis-sentinel://:" + wrong + "@" + down + "/spill", partition.ErrUnavailable},
		"right":                  {"redis://:" + right + "@" + server.Addr, nil},
		"right, but no cluster":  {"redis-cluster://:" + right + "@" + server.Addr, partition.ErrBroken},
		"right, but no sentinel": {"redis-sentinel://:" + right + "@" + server.Addr + "/spill", partition.ErrBroken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, row.url, nil)
			_, checked := s.Check(t.Context())
			_, _, due := s.Due(t.Context(), s.ns, 0, 0, 1)
			for call, err := range map[string]error{"check": checked, "produce": s.produce("kart", "x"), "due": due, "ping": s.Ping(t.Context())} {
				if !errors.Is(err, row.class) {
					t.Errorf("%s: got %v, want %v", call, err, row.class)
				}
				if err != nil && (strings.Contains(err.Error(), wrong) || strings.Contains(err.Error(), right)) {
					t.Errorf("%s: %v holds the password", call, err)
				}
			}
		})
	}
}

// The error that rejected a connection is the error of the calls that needed it.
func TestARejectionWhileConnectingIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right")
	for url, reason := range map[string]string{
		"redis://:wrong@" + server.Addr:         "WRONGPASS",
		"redis://:right@" + server.Addr + "/99": "DB index is out of range",
	} {
		s := open(t, url, nil)
		if err := s.produce("kart", "x"); !errors.Is(err, partition.ErrBroken) || !strings.Contains(err.Error(), reason) {
			t.Errorf("got %v, want ErrBroken and %q", err, reason)
		}
	}
}

// The sentinels are up and know no master of that name.
func TestAnUnknownMasterNameIsBroken(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartLoneSentinel(t)
	s := open(t, "redis-sentinel://"+sentinel.Addr+"/nobody", nil)
	if _, err := s.Check(t.Context()); err == nil {
		t.Error("check passes")
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("ping passes")
	}
	if _, _, err := s.Due(t.Context(), s.ns, 0, 0, 1); err == nil {
		t.Error("due passes")
	}
	if err := s.produce("kart", "x"); !errors.Is(err, partition.ErrBroken) || !strings.Contains(err.Error(), "sentinel") {
		t.Errorf("produce: got %v, want ErrBroken and where to look", err)
	}
}

func TestAStoreThatIsClosedIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"embedded:", "redis://" + redistest.Shared(t)} {
		s := open(t, url, nil)
		if err := s.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.produce("kart", "x"); !errors.Is(err, partition.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", url, err)
		}
	}
}

// Every failed script is counted under what is known of its outcome.
func TestFailuresAreCountedUnderTheirClass(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := server.Client()
	policy := partition.DefaultPolicy()
	reg := prometheus.NewRegistry()
	store, err := partition.Open(partition.Config{URL: server.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy}}, reg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s := &site{Store: store, t: t, ns: store.Namespace("default")}
	counted := func(class string) float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "spillway_store_errors_total" && m.GetLabel()[0].GetValue() == class {
					return m.GetCounter().GetValue()
				}
			}
		}
		return -1
	}
	for _, row := range []struct {
		class    string
		is       error
		do, undo []any
	}{
		{"full", partition.ErrFull, []any{"config", "set", "maxmemory", "1"}, []any{"config", "set", "maxmemory", "0"}},
		{"broken", partition.ErrBroken, []any{"set", "sw:{default.0}:q:kart", "x"}, []any{"del", "sw:{default.0}:q:kart"}},
		{"unavailable", partition.ErrUnavailable, []any{"config", "set", "min-replicas-to-write", "1"}, []any{"config", "set", "min-replicas-to-write", "0"}},
		{"unknown", partition.ErrUnknown, []any{"client", "pause", "3600000", "all"}, nil},
	} {
		before := counted(row.class)
		if err := c.Do(t.Context(), row.do...).Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.produce("kart", "x"); !errors.Is(err, row.is) {
			t.Errorf("%s: got %v, want %v", row.class, err, row.is)
		}
		if got := counted(row.class) - before; got != 1 {
			t.Errorf("%s: counted %v times, want once", row.class, got)
		}
		if row.undo != nil {
			if err := c.Do(t.Context(), row.undo...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAForeignResultUnderAnIdempotencyKeyIsBroken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	c := server.Client()
	g := &partition.Group{Namespace: s.ns, Partition: "kart", Entries: [][]byte{entry("x")}, IdempotencyKey: "k"}
	s.Produce(t.Context(), []*partition.Group{g})
	keys := c.Keys(t.Context(), "sw:{default.0}:dd:kart:*").Val()
	if g.Err != nil || len(keys) != 1 {
		t.Fatalf("%v %v", g.Err, keys)
	}
	c.Set(t.Context(), keys[0], "foreign", time.Hour)
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("produce panics: %v", v)
		}
	}()
	s.Produce(context.Background(), []*partition.Group{g})
	if !errors.Is(g.Err, partition.ErrBroken) {
		t.Errorf("got %v, want ErrBroken", g.Err)
	}
}

func TestACheckReadsTheVersionOfRedis(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL(), nil)
	if v := s.ServerVersion(); v != "" {
		t.Errorf("before a check: %q", v)
	}
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := s.ServerVersion(); !regexp.MustCompile(`^\d+\.\d+\.\d+`).MatchString(v) {
		t.Errorf("got %q", v)
	}
}
