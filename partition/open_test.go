package partition

import (
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	namespaces := map[string]Policy{"default": DefaultPolicy()}
	broken := DefaultPolicy()
	broken.Batch = 1000
	for field, cfg := range map[string]Config{
		"prefix":     {URL: "embedded:", Prefix: "{a}", Namespaces: namespaces},
		"namespaces": {URL: "embedded:", Prefix: "sw"},
		"batch":      {URL: "embedded:", Prefix: "sw", Namespaces: map[string]Policy{"default": broken}},
		"redis":      {URL: "ftp://h", Prefix: "sw", Namespaces: namespaces},
	} {
		reg := prometheus.NewRegistry()
		var wrong *FieldError
		if _, err := Open(cfg, reg, zap.NewNop()); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
		// The caller corrects it and tries again.
		func() {
			defer func() {
				if v := recover(); v != nil {
					t.Errorf("%s: Open after a failed Open panics: %v", field, v)
				}
			}()
			s, err := Open(Config{URL: "embedded:", Prefix: "sw", Namespaces: namespaces}, reg, zap.NewNop())
			if err != nil {
				t.Errorf("%s: %v", field, err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close twice: %v", err)
			}
		}()
	}
}

func TestDefaultPolicyIsUsable(t *testing.T) {
	t.Parallel()
	if err := DefaultPolicy().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestPolicyNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	for field, changes := range map[string][]func(*Policy){
		"capacity": {func(p *Policy) { p.Capacity = 0 }, func(p *Policy) { p.Capacity = 10_000_001 }},
		"max_age":  {func(p *Policy) { p.MaxAge = 0 }, func(p *Policy) { p.MaxAge = 13 * time.Hour }, func(p *Policy) { p.MaxAge = 99 * time.Millisecond }},
		"batch":    {func(p *Policy) { p.Batch = 0 }, func(p *Policy) { p.Batch = 129 }},
		"linger":   {func(p *Policy) { p.Linger = -1 }, func(p *Policy) { p.Linger = 4 * time.Minute }},
		"delivery": {func(p *Policy) { p.Delivery = "" }, func(p *Policy) { p.Delivery = "exactly-once" }},
		"shards":   {func(p *Policy) { p.Shards = 0 }, func(p *Policy) { p.Shards = 1025 }},

		"max_keys":       {func(p *Policy) { p.MaxKeys = 0 }, func(p *Policy) { p.MaxKeys = 1_000_000_001 }},
		"max_partitions": {func(p *Policy) { p.MaxPartitions = 0 }, func(p *Policy) { p.MaxPartitions = 10_000_001 }, func(p *Policy) { p.MaxPartitions = math.MaxInt }},
		"max_dead":       {func(p *Policy) { p.MaxDead = 0 }, func(p *Policy) { p.MaxDead = 1_000_001 }},
		"max_dead_bytes": {func(p *Policy) { p.MaxDeadBytes = 1<<20 - 1 }, func(p *Policy) { p.MaxDeadBytes = 1<<40 + 1 }},
	} {
		for i, change := range changes {
			p := DefaultPolicy()
			change(&p)
			var wrong *FieldError
			if err := p.Validate(); !errors.As(err, &wrong) || wrong.Field != field || !strings.HasPrefix(err.Error(), field+": ") || wrong.Want == "" {
				t.Errorf("%s, change %d: got %v", field, i, err)
			}
		}
	}
}

func TestAStoreThatFollowsAnEmbeddedOneHasItsEntries(t *testing.T) {
	t.Parallel()
	open := func(follows *Store, namespaces ...string) *Store {
		policies := map[string]Policy{}
		for _, name := range namespaces {
			policies[name] = DefaultPolicy()
		}
		s, err := Open(Config{URL: "embedded:", Prefix: "sw", Namespaces: policies, Follows: follows}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := open(nil, "kart")
	g := &Group{Namespace: first.Namespace("kart"), Partition: "p", Entries: [][]byte{AppendEntry(nil, time.Now().UnixMilli(), nil, []byte("x"))}}
	first.Produce(t.Context(), []*Group{g})
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	second := open(first, "kart", "chess")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third := open(second, "kart")
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if o, err := third.Overview(t.Context(), third.Namespace("kart")); err != nil || o.Ledger.Buffered != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
	address := third.backend.Out.(*redis.Client).Options().Addr
	if err := errors.Join(third.Close(), third.Close()); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		_ = c.Close()
		t.Error("the server outlives its stores")
	}
}
