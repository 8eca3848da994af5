package job_test

import (
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

// A full store refuses publish whole. Every other verb runs, so that jobs are worked off.
func TestAFullStoreRefusesOnlyPublish(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	for name, verb := range verbs {
		sc := newScene(newShard(t, c))
		control := newScene(newShard(t, c))
		want, err := verb(control)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := sc.snapshot()
		sc.do("config", "set", "maxmemory", "1")
		got, err := verb(sc)
		sc.do("config", "set", "maxmemory", "0")
		switch {
		case name == "publish":
			if err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("publish: got %v, want OOM", err)
			}
			sc.same("publish changed the shard", sc.snapshot(), before)
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			sc.same(name, got, want)
		}
		sc.exact("a", "b")
	}
}

// Each verb alone, as the first write of its call decides.
func TestEachVerbAloneRunsInAFullStore(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	full := func(on bool) {
		limit := "0"
		if on {
			limit = "1"
		}
		if err := c.ConfigSet(ctx, "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, verb := range []string{"nack", "bury", "requeue", "touch"} {
		for _, ms := range []int64{0, 5000} {
			if verb == "requeue" {
				ms = 0 // not a time to wait, but a deadline
			}
			s := newShard(t, c)
			seqs := s.put("a", "one", "two")
			s.claim("a", 1)
			full(true)
			got := s.settle(settle{"a", seqs[0], 1, verb, ms})
			full(false)
			if got[0] <= 0 {
				t.Errorf("%s %d: got %v", verb, ms, got)
			}
			s.exact("a")
		}
	}
	for name, f := range map[string]func(s *shard, seqs []int64) bool{
		"claim of nothing": func(s *shard, _ []int64) bool { return len(s.claim("none", 1)) == 0 },
		"claim":            func(s *shard, _ []int64) bool { return len(s.claim("a", 5)) == 2 },
		"ack of a ready":   func(s *shard, seqs []int64) bool { return s.ack("a", seqs[1])[0] == 2 },
		"ack of a leased":  func(s *shard, seqs []int64) bool { s.claim("a", 1); return s.ack("a", seqs[0])[0] == 1 },
		"ack of several":   func(s *shard, seqs []int64) bool { s.claim("a", 2); return s.ack("a", seqs[0], seqs[1])[1] == 1 },
		"ack of none":      func(s *shard, _ []int64) bool { return s.ack("a", 5)[0] == 0 },
		"respawn of none":  func(s *shard, _ []int64) bool { return s.respawn("a", "respawn", 5, 0) == 0 },
		"purge":            func(s *shard, _ []int64) bool { return s.purge("a", "ready", 5)[1] == 2 },
		"purge of all":     func(s *shard, _ []int64) bool { s.claim("a", 1); return s.purge("a", "all", 5)[1] == 2 },
		"expire":           func(s *shard, _ []int64) bool { return s.expire("a") == 0 },
		"promote, lapsed": func(s *shard, seqs []int64) bool {
			full(false)
			s.claim("a", 1)
			s.past("lease", "a", seqs[0])
			full(true)
			return s.promote(due{"a", "lease", seqs[:1]})[0] == 1
		},
		"promote of nothing": func(s *shard, seqs []int64) bool { return s.promote(due{"a", "delay", seqs})[0] == 0 },
		"revert": func(s *shard, _ []int64) bool {
			s.claimAll("lane", "lost", request{queues: []string{"a"}, count: 2})
			return s.revert("lane", "lost", "a") == 2
		},
		"reads": func(s *shard, seqs []int64) bool {
			s.must(luajob.Ledger, []string{s.ledger(), s.key("lease"), s.key("delay")})
			s.must(luajob.DeadPage, []string{s.key("j:a"), s.key("d:a")}, 0, 10, 1000)
			return num(s.peek("a")[1]) == 1 && num(s.get("a", seqs[0])[1]) == 1 && num(s.counts(10, "a")[0]) == 2
		},
	} {
		s := newShard(t, c)
		seqs := s.put("a", "one", "two")
		full(true)
		ok := f(s, seqs)
		full(false)
		if !ok {
			t.Errorf("%s does not run", name)
		}
		s.exact("a")
	}
}
