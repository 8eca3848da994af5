package job_test

import (
	"fmt"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

// limited claims from one queue under a limit of most leases.
func (s *shard) limited(queue string, count, most int) (seqs []int64, left int64) {
	s.t.Helper()
	keys, argv := s.limitedCall(queue, count, most)
	got := parseClaims(s.must(luajob.Claim, keys, argv...), []string{queue})
	for _, j := range got.jobs[0] {
		seqs = append(seqs, j.seq)
	}
	return seqs, got.left[0]
}

func (s *shard) limitedCall(queue string, count, most int) (keys []string, argv []any) {
	keys, argv, _ = s.claimCall("lane", "t", true, request{queues: []string{queue}, count: count})
	argv[5] = fmt.Sprintf("1 0 0 %d publish w:", most)
	return append(keys, s.spare()...), argv
}

const noSlot = -1 << 50

// What another program wrote under the key rejects the claims that need it, and no end of a lease.
func TestAForeignKeyOfLimitsRejectsClaims(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seqs := s.put("a", bodies(3)...)
		s.limited("a", 1, 1)
		s.do("del", s.key("slots"))
		s.do("set", s.key("slots"), "foreign")
		before := s.snapshot()
		keys, argv := s.limitedCall("a", 1, 1)
		if _, err := s.try(luajob.Claim, keys, argv...); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("claim: got %v", err)
		}
		s.same("the shard", s.snapshot(), before)
		keys, argv = s.ackCall("a", seqs[0])
		if reply, err := s.try(luajob.Ack, keys, argv...); err != nil || fmt.Sprint(reply[1:]) != "[1]" {
			t.Errorf("ack: got %v, %v", reply, err)
		}
	})
}

// A shard without limits has neither keys nor commands of them.
func TestOnlyLimitedShardsCountLeases(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.put("a", bodies(3)...)
		s.ack("a", s.claim("a", 1)[0].seq)
		s.same("asked", s.spared, 0)
		seqs, left := s.limited("a", 2, 1)
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
	for name, row := range map[string]struct {
		bug  seeded
		play func(s *shard)
	}{
		"an audit gives back the slot of a lease that is gone": {seeded{"expire", "totals.slots.free(name, k.r, seq)", ""}, func(s *shard) {
			seqs := s.put("a", bodies(2)...)
			s.limited("a", 2, 1)
			s.do("zrem", s.key("lease"), fmt.Sprint(seqs[0], " a"))
			s.must(luajob.Expire, s.common("a"), "a", "0", 200, 1, s.channel(), "publish")
			again, _ := s.limited("a", 2, 1)
			s.same("claimed", again, seqs[1:])
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
