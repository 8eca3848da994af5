package job_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

func TestADelayedJobGetsAnotherTimeOrPayload(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		plain := s.stored(group{queue: "a", delay: 60_000, bodies: []string{"before"}})[0]
		named := s.stored(group{queue: "a", delay: 60_000, id: "mi-ne", tries: 7, ends: s.now() + 90_000, bodies: []string{""}})[0]
		at := func(seq int64) int64 {
			return int64(s.c.ZScore(ctx, s.key("delay"), fmt.Sprint(seq, " a")).Val())
		}
		record := func(seq int64) string { return s.c.HGet(ctx, s.key("j:a"), fmt.Sprint(seq)).Val() }
		s.clock += 1e6
		s.same("sooner", s.reschedule("a", plain, 5_000), []any{1, s.now() + 5_000})
		s.same("is due", at(plain), s.now()+5_000)
		s.same("its record", record(plain), "0000000000000 3 before")
		s.same("another payload", s.reschedule("a", plain, -1, "a b#1,\x00\n"), []any{1, s.now() + 5_000})
		s.same("its record", record(plain), "0000000000000 3 a b#1,\x00\n")
		s.same("without its id", s.reschedule("a", named, 1000), []any{0, 0})
		s.same("with another", s.reschedule("a", fmt.Sprint(named, ":mine"), 1000), []any{0, 0})
		mine := fmt.Sprint(named, ":mi-ne")
		s.same("to the end of its ttl", s.reschedule("a", mine, 89_000, "x"), []any{3, 0})
		s.same("past it", s.reschedule("a", mine, 1<<40, "x"), []any{3, 0})
		s.same("within it", s.reschedule("a", mine, 88_999, "x"), []any{1, s.now() + 88_999})
		s.same("its record", record(named), fmt.Sprintf("%013d 7@mi-ne x", start/1000+90_000))
		attributes := fmt.Sprintf("%013d 7@mi-ne#9,{\"a\":\"#\"}", start/1000+90_000)
		s.do("hset", s.key("j:a"), named, attributes+"before")
		s.same("beside attributes", s.reschedule("a", mine, 0, ""), []any{1, s.now()})
		s.same("its record", record(named), attributes)
		s.same("promoted", s.promote(due{"a", "delay", []int64{named, plain}})[0], 1)
		s.same("claimed", s.claim("a", 5)[0].record, attributes)
		s.exact("a")
	})
}

func TestAJobThatIsNotDelayedOrWasClaimedStaysAsItIs(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		c := newScene(s)
		waits := s.stored(group{queue: "b", bodies: bodies(1)})[0]
		s.claim("b", 9)
		s.settle(settle{"b", waits, 1, "nack", 60_000})
		over := s.stored(group{queue: "a", delay: 1000, ends: s.now() + 2000, bodies: bodies(1)})[0]
		s.clock += 3e6
		dead := num(s.c.ZRange(ctx, s.key("d:a"), 0, 0).Val()[0])
		foreign := s.now() * 1000
		s.do("hset", s.key("j:a"), foreign, "foreign")
		before := s.snapshot()
		for what, row := range map[string]struct {
			queue string
			job   any
			want  int
		}{
			"ready": {"a", c.ready["a"][0], 2}, "leased": {"a", c.leased["a"][0], 2}, "dead": {"a", dead, 2}, "nacked": {"b", waits, 2},
			"removed": {"a", c.ready["a"][2], 0}, "expired": {"a", over, 0}, "of another queue": {"b", c.far["a"], 0}, "none": {"a", 7, 0},
			"foreign": {"a", foreign, 0},
		} {
			for _, payload := range [][]string{nil, {"x"}} {
				s.same(what, s.reschedule(row.queue, row.job, 5000, payload...), []any{row.want, 0})
			}
		}
		s.same("the shard", s.snapshot(), before)
		s.do("hdel", s.key("j:a"), foreign)
		s.exact("a", "b")
	})
}

// Where another key of the same window was counted until then, and is no more, no count falls below 0.
func TestAWindowThatBeginsAnewIsCountedAsOneKey(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start - start%2_000_000 + 1_000_000 // in the middle of two seconds
		seq := s.stored(group{queue: "a", delay: 60_000, bodies: bodies(1)})[0]
		keys, argv := s.rescheduleCall("a", seq, 60_000)
		keys, argv[3] = append(keys, s.key("ledger"), s.key("dd:a:k")), 8000
		before, far := s.now()/1000+5, s.now()/1000+1000
		for _, row := range []struct{ counted, want string }{
			{fmt.Sprint(before, " 0 ", far, " 7"), fmt.Sprint(before, " 0")},
			{fmt.Sprint(before, " 3 ", far, " 7"), fmt.Sprint(before, " 2")},
		} {
			s.do("set", keys[6], fmt.Sprint(seq, " 1"), "px", 4000)
			s.do("hset", keys[5], "keys", row.counted)
			s.same("done", s.must(luajob.Reschedule, keys, argv...)[1], 1)
			got := s.c.HGet(ctx, keys[5], "keys").Val()
			for _, part := range []string{row.want, fmt.Sprint(far, " 7"), fmt.Sprint(s.now()/1000+9, " 1")} {
				if !strings.Contains(" "+got+" ", " "+part+" ") {
					t.Errorf("from %s: %s lacks %s", row.counted, got, part)
				}
			}
			if left := s.c.PTTL(ctx, keys[6]).Val(); left < 7*time.Second {
				t.Errorf("the key is kept for %v", left)
			}
		}
		s.do("set", keys[6], fmt.Sprint(seq+1, " 1"), "px", 4000)
		s.same("done", s.must(luajob.Reschedule, keys, argv...)[1], 1)
		if left := s.c.PTTL(ctx, keys[6]).Val(); left > 4*time.Second {
			t.Errorf("the key of another job is kept for %v", left)
		}
	})
}

// A larger payload needs memory, another time does not. Nothing is half done.
func TestAFullStoreRejectsAnotherPayloadAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, fault := range append([]redistest.Rejection{redistest.Full}, redistest.Rejections...) {
		s := newShard(t, server.Client())
		seq := s.stored(group{queue: "a", delay: 60_000, bodies: bodies(1)})[0]
		before := s.snapshot()
		fault.Begin(t, server)
		for _, payload := range [][]string{nil, {"x"}} {
			keys, argv := s.rescheduleCall("a", seq, 1<<30, payload...)
			reply, err := s.try(luajob.Reschedule, keys, argv...)
			if passes := fault.Word == redistest.Full.Word && payload == nil; passes {
				if err != nil || num(reply[1]) != 1 {
					t.Errorf("%s: %v %v", fault.Word, reply, err)
				}
				before = s.snapshot()
				continue
			}
			if err == nil || !strings.HasPrefix(err.Error(), fault.Word+" ") {
				t.Errorf("%s %v: got %v", fault.Word, payload, err)
			}
			s.same("the shard", s.snapshot(), before)
		}
		fault.End(t, server)
		s.same("later", s.reschedule("a", seq, 1000, "x")[0], 1)
		s.exact("a")
	}
}

func TestRescheduleRejectsAKeyOfAnotherType(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		for i := range 5 {
			c := newScene(newShard(t, s.c))
			keys, argv := c.rescheduleCall("a", c.far["a"], 5000, "x")
			c.do("del", keys[i])
			c.do("set", keys[i], "foreign")
			before := c.snapshot()
			if _, err := c.try(luajob.Reschedule, keys, argv...); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%s: %v", keys[i], err)
			}
			c.same("the shard", c.snapshot(), before)
		}
	})
}
