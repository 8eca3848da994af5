package job_test

import (
	"fmt"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

// limited claims from one queue under a limit: most leases, of the queue or of each value of an attribute.
func (s *shard) limited(queue string, count, most int, by string) (seqs []int64, left int64) {
	s.t.Helper()
	keys, argv := s.limitedCall(queue, count, most, by)
	got := parseClaims(s.must(luajob.Claim, keys, argv...), []string{queue})
	for _, j := range got.jobs[0] {
		seqs = append(seqs, j.seq)
	}
	return seqs, got.left[0]
}

func (s *shard) limitedCall(queue string, count, most int, by string) (keys []string, argv []any) {
	keys, argv, _ = s.claimCall("lane", "t", true, request{queues: []string{queue}, count: count})
	argv[5] = fmt.Sprintf("1 0 0 %d publish w: %s", most, by)
	return append(keys, s.spare()...), argv
}

const noSlot = -1 << 50

// tenant is the records of n jobs that have an attribute.
func (s *shard) tenant(name string, n int) []int64 {
	s.t.Helper()
	attributes := fmt.Sprintf(`{"tenant":%q}`, name)
	return s.stored(group{queue: "a", bodies: bodies(n), attributes: attributes})
}

// Jobs of a group that is full hold nobody up, however many they are, and come in their order.
func TestAGroupThatIsFullHoldsNobodyUp(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		red := s.tenant("red", 300)
		long := strings.Repeat("blue | \n1", 8) // is not written out for each that waits
		blue := s.tenant(long, 2)
		none := s.put("a", "x", "y")
		seqs, left := s.limited("a", 10, 1, "tenant")
		s.same("of the first 200, which is what a call sends to wait", seqs, red[:1])
		s.same("left, at least", left > 0, true)
		seqs, left = s.limited("a", 10, 1, "tenant")
		s.same("one of each", seqs, []int64{blue[0], none[0]})
		s.same("left", left, 0)
		s.same("fields of the long name", len(s.c.HGetAll(ctx, s.key("slots")).Val()["#a "+long]), 0)
		s.ack("a", red[0])
		seqs, _ = s.limited("a", 10, 1, "tenant")
		s.same("the next of red", seqs, red[1:2])
		s.ack("a", red[2]) // it waits no more
		s.ack("a", red[1])
		seqs, _ = s.limited("a", 10, 1, "tenant")
		s.same("the next but one", seqs, red[3:4])
		s.exact("a")

		s.clock += 300_000_000
		s.groups = " 1 tenant"
		s.same("none after 5 minutes", s.promote(due{"a", "delay", red[4:6]}), []int64{0, 0, 0, 0})
		s.same("looked at again within 5 minutes more", s.c.ZCount(ctx, s.key("delay"), fmt.Sprint(s.now()+1), fmt.Sprint(s.now()+300_000)).Val(), 2)
		s.clock += 300_000_000
		s.groups = " 2 tenant"
		s.same("one under a higher limit", s.promote(due{"a", "delay", red[4:7]}), []int64{1, 0, 0, 0})
		seqs, left = s.limited("a", 10, 2, "tenant")
		s.same("the oldest", seqs, red[4:5])
		s.same("left", left, 0)
		s.same("the others wait", s.c.ZCard(ctx, s.key("parked")).Val(), len(red)-5+2)
		s.purge("a", "all", 1000)
		s.same("nothing is left", s.c.Exists(ctx, s.key("parked"), s.key("delay"), s.key("lease")).Val(), 0)
		s.exact("a")
	})
}

func TestTooManyGroupsAreRejected(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.tenant("red", 2)
		blue := s.tenant("blue", 1)
		s.limited("a", 1, 2, "tenant")
		s.do("hset", s.key("slots"), "@a", 10_000)
		seqs, left := s.limited("a", 5, 2, "tenant")
		s.same("of the groups that have leases", len(seqs), 1)
		s.same("the others stay", []int64{left, s.c.LLen(ctx, s.key("r:a")).Val()}, []int64{noSlot, 1})
		reply := s.publish(group{queue: "a", bodies: bodies(1)}, group{queue: "b", bodies: bodies(1)})
		s.same("publishes", []int64{reply[0][0], reply[1][0]}, []int64{8, 1})
		s.do("hset", s.key("slots"), "@a", 1)
		seqs, _ = s.limited("a", 5, 2, "tenant")
		s.same("once there are fewer", seqs, blue)
		s.exact("a", "b")
	})
}

// What another program wrote under the keys rejects the claims that need them, and no end of a lease.
func TestForeignKeysOfLimitsRejectClaims(t *testing.T) {
	for _, key := range []string{"slots", "parked"} {
		t.Run(key, func(t *testing.T) {
			on(t, func(t *testing.T, s *shard) {
				seqs := s.put("a", bodies(3)...)
				s.limited("a", 1, 1, "")
				s.do("del", s.key(key))
				s.do("set", s.key(key), "foreign")
				before := s.snapshot()
				keys, argv := s.limitedCall("a", 1, 1, "tenant")
				if _, err := s.try(luajob.Claim, keys, argv...); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("claim: got %v", err)
				}
				s.same("the shard", s.snapshot(), before)
				keys, argv = s.ackCall("a", seqs[0])
				if reply, err := s.try(luajob.Ack, keys, argv...); err != nil || fmt.Sprint(reply[1:]) != "[1]" {
					t.Errorf("ack: got %v, %v", reply, err)
				}
			})
		})
	}
}

// A shard without limits has neither keys nor commands of them.
func TestOnlyLimitedShardsCountLeases(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.put("a", bodies(3)...)
		s.ack("a", s.claim("a", 1)[0].seq)
		s.same("asked", s.spared, 0)
		seqs, left := s.limited("a", 2, 1, "")
		s.same("jobs and left", []int64{int64(len(seqs)), left}, []int64{1, noSlot})
		s.ack("a", seqs[0])
		s.same("asked", s.spared, 1)
		s.same("counted", s.c.HGetAll(ctx, s.key("slots")).Val(), map[string]string{})
	})
}

// Walks of the model meet these too rarely to find a bug in them by themselves.
func TestScenesThatWalksRarelyMeet(t *testing.T) {
	t.Parallel()
	client := redistest.SharedClient(t)
	ready := func(s *shard) string { return fmt.Sprint(s.c.LRange(ctx, s.key("r:a"), 0, -1).Val()) }
	for name, row := range map[string]struct {
		bug  seeded
		play func(s *shard)
	}{
		"an audit gives back the slot of a lease that is gone": {seeded{"expire", "totals.slots.free(name, k.r, seq)", ""}, func(s *shard) {
			red := s.tenant("red", 2)
			s.limited("a", 2, 1, "tenant")
			s.do("zrem", s.key("lease"), fmt.Sprint(red[0], " a"))
			s.must(luajob.Expire, s.common("a"), "a", "0", 200, 1, s.channel(), "publish")
			s.same("ready", ready(s), []int64{red[1], red[0]})
		}},
		"a job waits no more for those of an attribute that the limit had": {seeded{"promote", "group_text(record, k.by) ~= text", "false"}, func(s *shard) {
			red := s.tenant("red", 9)
			s.limited("a", 9, 1, "tenant")
			s.groups = " 1 place"
			s.clock += 300e6
			s.same("ready, of 8", s.promote(due{"a", "delay", red[1:]}), []int64{8, 0, 0, 0})
			s.same("ready", ready(s), red[1:])
		}},
		"a job waits no more where nothing tells of it": {seeded{"promote", "not place or foreign(place) or record", "record"}, func(s *shard) {
			red := s.tenant("red", 9)
			s.limited("a", 9, 1, "tenant")
			s.ack("a", red[0])
			s.do("del", s.key("parked"))
			s.do("set", s.key("parked"), "foreign")
			s.groups = " 1 tenant"
			s.clock += 300e6
			s.promote(due{"a", "delay", red[2:]})
			s.same("ready", ready(s), red[1:])
		}},
		"the oldest passes, whichever is due": {seeded{"promote", " and not moved[members[x]]", ""}, func(s *shard) {
			red := s.tenant("red", 4)
			s.limited("a", 4, 1, "tenant")
			s.groups = " 2 tenant"
			s.clock += 300e6
			s.promote(due{"a", "delay", []int64{red[3], red[1], red[2]}})
			s.same("ready", ready(s), red[1:2])
		}},
		"beside ready jobs one passes, of a group that has leases": {seeded{"promote", "used > 0 and math.min(1, group.room) or 0", "group.room"}, func(s *shard) {
			red := s.tenant("red", 4)
			s.limited("a", 4, 1, "tenant")
			blue := s.tenant("blue", 1)
			s.groups = " 3 tenant"
			s.clock += 300e6
			s.promote(due{"a", "delay", red[1:]})
			s.same("ready", ready(s), []int64{blue[0], red[1]})
		}},
		"a head that expires gives its slot to the next": {seeded{"promote", "totals.slots.free(k.name, k.r, seq)\n", "\n"}, func(s *shard) {
			first := s.tenant("red", 1)
			s.stored(group{queue: "a", bodies: bodies(1), attributes: `{"tenant":"red"}`, ends: s.now() + 1000})
			last := s.tenant("red", 1)
			s.limited("a", 3, 1, "tenant")
			s.ack("a", first[0])
			s.clock += 2e6
			s.do("zadd", s.key("queues"), 0, "a")
			s.promote(due{"a", "head", nil})
			s.same("ready", ready(s), last)
		}},
		"a purge of a ready job gives its slot to the next": {seeded{"purge", "totals.slots.free(name, r, seq)", ""}, func(s *shard) {
			red := s.tenant("red", 3)
			s.limited("a", 3, 1, "tenant")
			s.ack("a", red[0])
			s.purge("a", "ready", 1)
			s.same("ready", ready(s), red[2:])
		}},
		"three errors of a job are kept": {seeded{"settle", `(string.match(older, '^[^\n]*\n[^\n]*') or older)`, "older"}, func(s *shard) {
			seq := s.stored(group{queue: "a", bodies: bodies(1), tries: 9})[0]
			for x := range 5 {
				s.claim("a", 1)
				s.settle(settle{"a", seq, 0, fmt.Sprint("nack why", x), 0})
			}
			kept := s.c.HGet(ctx, s.key("u:a"), fmt.Sprint("!", seq)).Val()
			s.same("errors", []any{strings.Count(kept, "why"), strings.Contains(kept, "why2")}, []any{3, true})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, client)
			s.clock = start
			row.play(s)
			quiet := &tolerant{TB: t}
			s = newShard(quiet, client)
			s.clock, s.bug = start, row.bug
			if row.play(s); !quiet.failed {
				t.Error("it does not see the bug")
			}
		})
	}
}
