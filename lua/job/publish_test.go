package job_test

import (
	"fmt"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

func TestAnIdempotencyKeyStoresOnce(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		first := s.publish(group{queue: "a", key: "k", bodies: bodies(3)})[0]
		s.same("again, with another number of jobs", s.publish(group{queue: "a", key: "k", bodies: bodies(2)})[0], [3]int64{2, first[1], 3})
		for _, seq := range []int64{first[1], first[1] + 1, first[1] + 2} {
			s.ack("a", seq)
		}
		s.same("though they are gone", s.publish(group{queue: "a", key: "k", bodies: bodies(3)})[0][0], 2)
		s.same("of another queue", s.publish(group{queue: "b", key: "k", bodies: bodies(1)})[0][0], 1)
		got := s.publish(group{queue: "a", key: "l", keep: 5000, bodies: bodies(2)}, group{queue: "a", key: "l", bodies: bodies(2)})
		s.same("twice in a call", got, [][3]int64{{1, got[0][1], 2}, {2, got[0][1], 2}})
		if ttl := s.c.PTTL(ctx, s.key("dd:a:l")).Val().Milliseconds(); ttl <= 0 || ttl > 5000 {
			t.Errorf("the key is kept for %d ms, want 5000", ttl)
		}
		s.exact("a", "b")
	})
}

// Without a job a publish says what is under its key or id, and stores nothing.
func TestAPublishOfNothingFindsWhatIsStored(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.same("nothing is", s.publish(group{queue: "a", key: "k"}, group{queue: "a", id: "i"}), [][3]int64{{9, 0, 0}, {9, 0, 0}})
		s.same("nothing is written", s.c.Exists(ctx, s.ledger(), s.key("queues"), s.key("dd:a:k"), s.key("u:a")).Val(), 0)
		got := s.publish(group{queue: "a", key: "k", bodies: bodies(3)}, group{queue: "a", id: "i", bodies: bodies(1)})
		s.same("asked again", s.publish(group{queue: "a", key: "k"}, group{queue: "a", id: "i"}), [][3]int64{{2, got[0][1], 3}, {3, got[1][1], 1}})
		if _, err := s.tryPublish(group{queue: "a"}); err == nil {
			t.Error("it asks for nothing, and is no bad call")
		}
		s.exact("a")
	})
}

// The jobs that callers' ids name are read. So that small publishes cannot read large jobs without end, a call
// rejects what is beyond 4 MiB.
func TestAPublishReadsABoundedNumberOfBytes(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		var again []group
		for i := range 6 {
			g := group{queue: "a", id: fmt.Sprint("id", i), bodies: []string{strings.Repeat("x", 1<<20)}}
			s.stored(g)
			g.bodies = bodies(1)
			again = append(again, g)
		}
		var got []int64
		for _, r := range s.publish(append(again, group{queue: "a", id: "new", bodies: bodies(1)})...) {
			got = append(got, r[0])
		}
		s.same("statuses", got, []int64{3, 3, 3, 3, 5, 5, 1})
		s.exact("a")
	})
}

// Attributes and ids may hold what separates a record elsewhere.
func TestRecordsKeepTheirIds(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		for i, rest := range []string{"@id1 x", `@id2#9,{"a":"@b"}payload`, "@id3#2,{} @other x", ` @id4 no id`, `#2,{}@id5 no id`} {
			ends := int64(0)
			if i < 3 {
				ends = s.now() + 1
			}
			id := ""
			if i < 3 {
				id = fmt.Sprint("id", i+1)
			}
			keys, argv := s.publishCall(group{queue: "a", id: id, bodies: []string{""}})
			argv[len(argv)-1] = fmt.Sprintf("%013d 3%s", ends, rest)
			s.must(luajob.Publish, keys, argv...)
		}
		s.same("ids", s.c.HLen(ctx, s.key("u:a")).Val(), 3)
		s.clock += 1000
		s.same("claimed", len(s.claim("a", 9)), 2)
		s.same("ids of expired jobs", s.c.HLen(ctx, s.key("u:a")).Val(), 0)
		s.exact("a")
	})
}

// Redis takes about 8,000 values at once from Lua, miniredis 5,000.
func TestCallsOfManyThousandJobs(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		const n = 8500
		s.bytes = 1 << 30
		got := s.publish(group{queue: "a", bodies: bodies(n)}, group{queue: "b", delay: 5, bodies: bodies(n)}, group{queue: "a", delay: 5, bodies: bodies(3)})
		s.same("stored", got[1][2], n)
		seqs := make([]int64, n)
		for i := range seqs {
			seqs[i] = got[1][1] + int64(i)
		}
		s.past("delay", "b", seqs...)
		s.same("promoted", s.promote(due{"b", "delay", seqs})[0], n)
		s.claimAll("lane", "t1", request{queues: []string{"a", "b"}, count: n}, request{queues: []string{"b"}, count: n})
		s.same("reverted", s.revert("lane", "t1", "a", "b"), 1000) // a claim hands out no more
		s.same("in order", s.claim("b", 2)[1].seq, seqs[1])
		jobs := make([]settle, 0, n)
		for len(jobs) < n {
			for _, c := range s.claim("a", n-len(jobs)) {
				jobs = append(jobs, settle{"a", c.seq, 1, "nack", 0})
			}
		}
		s.same("settled", len(s.settle(jobs...)), n)
		s.same("again", s.claim("a", 1000)[999].attempt, 2)
		s.same("purged", s.purge("b", "all", 1000), []int64{1000, 1000})
		s.exact("a", "b")
	})
}

// A namespace that is being deleted takes no job, whoever asks, until it is taken back.
func TestPublishRejectsAClosedShard(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.do("hset", s.ledger(), "closed", int64(1e15))
		if got := s.publish(group{queue: "a", bodies: bodies(1)})[0]; got != [3]int64{7, 0, 0} || s.total("published") != 0 {
			t.Errorf("got %v", got)
		}
		s.do("hset", s.ledger(), "closed", 1)
		if got := s.publish(group{queue: "a", bodies: bodies(1)})[0]; got[0] != 1 {
			t.Errorf("once that is over: got %v", got)
		}
	})
}

// A full store rejects publish whole. Every other verb runs, so that jobs are worked off.
func TestAFullStoreRejectsOnlyPublish(t *testing.T) {
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
			s.must(luajob.DeadPage, []string{s.key("j:a"), s.key("d:a"), s.key("u:a")}, 0, 10, 1000)
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
