package job_test

import (
	"fmt"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

// told takes the follow-ups out of the outbox: queue that hears, sequence, caller's id, event, result.
func (s *shard) told() (list []string) {
	s.t.Helper()
	for _, j := range s.claim("_out", 1000) {
		lines := strings.SplitN(strings.TrimPrefix(j.record, "0000000000000 2000000000 "), "\n", 7)
		if len(lines) != 7 || num(lines[0]) < s.now()-60_000 {
			s.t.Fatalf("%q in the outbox", j.record)
		}
		list = append(list, strings.Join(append(lines[1:2], lines[3:]...), " "))
		s.ack("_out", j.seq)
	}
	return list
}

const heard = "qdone\n"

func TestAMovedJobCountsAsDeletedAndItsEndIsForItsNewPlace(t *testing.T) {
	for name, end := range map[string]func(s *shard, seq int64){
		"leased": func(s *shard, seq int64) { s.claim("a", 1) },
		"lapsed": func(s *shard, seq int64) {
			s.claim("a", 1)
			s.past("lease", "a", seq)
			s.promote(due{"a", "head", nil})
		},
		"ready":   func(*shard, int64) {},
		"deleted": func(s *shard, seq int64) { s.ack("a", seq); s.told() },
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(t *testing.T, s *shard) {
				seq := s.stored(group{queue: "a", bodies: []string{"body"}, watch: heard + "wpublish " + s.channel() + "!ends\n"})[0]
				end(s, seq)
				done := int64(2)
				if name == "deleted" {
					done = 0
				}
				hears := s.listen()
				s.same("done", s.ack("a", fmt.Sprintf("%d!!!:", seq)), []int64{done})
				s.same("told", len(s.told()), 0)
				s.same("left behind", s.c.HLen(ctx, s.key("on_end")).Val(), 0)
				s.same("who waits hears it", strings.Count(" "+hears()+" ", fmt.Sprintf(" !ends:%d ", seq)), int(done/2))
				s.same("deleted", num(s.c.HGet(ctx, s.ledger(), "deleted").Val()), 1)
			})
		})
	}
}

// Whatever ends a job, its follow-up is in the outbox once, and nothing of the job stays behind.
func TestEveryEndOfAJobIsToldOnce(t *testing.T) {
	for name, row := range map[string]struct {
		event string
		group group
		end   func(s *shard, seq int64)
	}{
		"ack":        {"acked", group{}, func(s *shard, seq int64) { s.claim("a", 1); s.ack("a", seq); s.ack("a", seq) }},
		"ack of two": {"acked", group{}, func(s *shard, seq int64) { o := s.put("a", "x")[0]; s.claim("a", 2); s.ack("a", seq, o) }},
		"ack after a lapse": {"acked", group{}, func(s *shard, seq int64) {
			s.claim("a", 1)
			s.past("lease", "a", seq)
			s.promote(due{"a", "head", nil})
			s.ack("a", seq)
		}},
		"delete":              {"deleted", group{}, func(s *shard, seq int64) { s.ack("a", seq) }},
		"delete of a delayed": {"deleted", group{delay: 9999}, func(s *shard, seq int64) { s.ack("a", seq) }},
		"bury":                {"dead", group{}, func(s *shard, seq int64) { s.claim("a", 1); s.settle(settle{"a", seq, 1, "bury", 0}) }},
		"last nack":           {"dead", group{tries: 1}, func(s *shard, seq int64) { s.claim("a", 1); s.settle(settle{"a", seq, 1, "nack", 0}) }},
		"last nack, no letters": {"expired", group{tries: 1}, func(s *shard, seq int64) {
			s.keeps = false
			s.claim("a", 1)
			s.settle(settle{"a", seq, 1, "nack", 0})
		}},
		"last lapse": {"dead", group{tries: 1}, func(s *shard, seq int64) {
			s.claim("a", 1)
			s.past("lease", "a", seq)
			s.promote(due{"a", "lease", []int64{seq}})
		}},
		"expired, claimed": {"expired", group{ends: 1}, func(s *shard, seq int64) { s.claim("a", 1) }},
		"expired at the head": {"expired", group{ends: 1}, func(s *shard, seq int64) {
			s.do("zadd", s.key("queues"), 1, "a")
			s.promote(due{"a", "head", nil})
		}},
		"expired, walked over":  {"expired", group{ends: 1}, func(s *shard, seq int64) { s.expire("a") }},
		"its id is taken":       {"expired", group{ends: 1, id: "mine"}, func(s *shard, seq int64) { s.stored(group{queue: "a", id: "mine", bodies: []string{"new"}}) }},
		"acked when it is over": {"expired", group{ends: 1}, func(s *shard, seq int64) { s.ack("a", seq) }},
		"purge":                 {"deleted", group{}, func(s *shard, seq int64) { s.purge("a", "ready", 9) }},
		"purge of all":          {"deleted", group{delay: 9999}, func(s *shard, seq int64) { s.purge("a", "all", 9) }},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(t *testing.T, s *shard) {
				g := row.group
				g.queue, g.bodies, g.watch = "a", []string{"body"}, heard+"wpublish "+s.channel()+"!ends\n"
				hears := s.listen()
				if g.id != "" {
					g.watch += "c" + g.id + "\n"
				}
				seq := s.stored(g)[0]
				row.end(s, seq)
				s.same("told", s.told(), []string{fmt.Sprintf("done %d %s %s ", seq, g.id, row.event)})
				s.same("left behind", s.c.HLen(ctx, s.key("on_end")).Val(), 0)
				s.same("who waits hears it", strings.Count(" "+hears()+" ", fmt.Sprintf(" !ends:%d ", seq)), 1)
				s.exact("a", "_out")
			})
		})
	}
}

// Whoever waits for the end of a job has it told, once for all of them, whatever state the job is in.
func TestTheEndOfAnAwaitedJobIsTold(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		await := func(seq int64) string {
			s.must(luajob.Get, []string{s.key("lease"), s.key("delay"), s.key("attempts"), s.key("j:a"), s.key("d:a"), s.key("u:a"), s.ledger(), s.key("on_end")},
				"a", seq, 0, "publish "+s.channel()+"!ends")
			return s.c.HGet(ctx, s.key("on_end"), fmt.Sprint(seq, " a")).Val()
		}
		note := "wpublish " + s.channel() + "!ends\n"
		seqs := s.stored(group{queue: "a", bodies: bodies(3)})
		s.same("ready", await(seqs[0]), note)
		s.same("again", await(seqs[0]), note)
		s.claim("a", 1)
		s.same("leased", await(seqs[0]), note)
		watched := s.stored(group{queue: "a", delay: 9999, bodies: bodies(1), watch: heard})[0]
		s.same("beside a follow-up", await(watched), heard+note)
		s.claim("a", 1)
		s.settle(settle{"a", seqs[1], 1, "bury", 0})
		s.same("dead", await(seqs[1]), "")
		s.same("none", await(1), "")
		hears := s.listen()
		s.ack("a", seqs[0], seqs[2])
		s.same("told", hears(), fmt.Sprint("!ends:", seqs[0]))
		s.exact("a", "_out")
	})
}

// Where the note cannot be made the job is shown nevertheless.
func TestAForeignKeyOfEndsTakesNoNote(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seq := s.put("a", "x")[0]
		s.do("set", s.key("on_end"), "foreign")
		r := s.must(luajob.Get, []string{s.key("lease"), s.key("delay"), s.key("attempts"), s.key("j:a"), s.key("d:a"), s.key("u:a"), s.ledger(), s.key("on_end")},
			"a", seq, 0, "publish c")
		s.same("state", r[2], "ready")
		s.same("watched", s.c.HGet(ctx, s.ledger(), "watched").Val(), "")
	})
}

func TestWhatIsNoEndTellsNothing(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seq := s.stored(group{queue: "a", bodies: bodies(1), watch: heard})[0]
		s.claim("a", 1)
		s.settle(settle{"a", seq, 1, "touch", 5000}, settle{"a", seq, 1, "defer", 5000}, settle{"a", seq, 1, "requeue", 0})
		s.claim("a", 1)
		s.settle(settle{"a", seq, 1, "nack", 0})
		s.same("told", len(s.told()), 0)
		s.same("watched", s.c.HLen(ctx, s.key("on_end")).Val(), 1)
		s.exact("a", "_out")
	})
}

// The result of the work goes with the follow-up, also with a caller's id, and of many jobs in one call.
func TestAFollowUpHasTheResult(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		a := s.stored(group{queue: "a", bodies: bodies(2), watch: heard})
		b := s.stored(group{queue: "a", id: "x-y", bodies: bodies(1), watch: heard + "cx-y\n"})[0]
		other := s.put("a", "nobody hears of it")[0]
		s.claim("a", 9)
		s.ack("a", fmt.Sprintf("%d: {\"ok\":1, \"b\":\"two\nlines\"}", a[0]), a[1], fmt.Sprintf("%d:x-y 7", b), fmt.Sprintf("%d: unheard", other))
		s.same("told", s.told(), []string{
			fmt.Sprintf("done %d  acked {\"ok\":1, \"b\":\"two\nlines\"}", a[0]),
			fmt.Sprintf("done %d  acked ", a[1]), fmt.Sprintf("done %d x-y acked 7", b)})
		s.exact("a", "_out")
	})
}

// A shard that has no watched job never asks for more keys; one that has asks each call once.
func TestOnlyWatchedShardsAskForTheSpareKeys(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seq := s.put("a", "x")[0]
		s.claim("a", 1)
		s.ack("a", seq)
		s.same("asked", s.spared, 0)
		s.stored(group{queue: "a", bodies: bodies(1), watch: heard})
		s.same("asked", s.spared, 1)
		s.put("a", "y")
		s.same("asked", s.spared, 2)
	})
}

// Each of the keys may hold a foreign value: then a call that needs them writes nothing.
func TestForeignKeysOfEndsRejectTheCall(t *testing.T) {
	for _, key := range []string{"on_end", "state", "r:_out", "j:_out"} {
		t.Run(key, func(t *testing.T) {
			on(t, func(t *testing.T, s *shard) {
				seq := s.stored(group{queue: "a", bodies: bodies(1), watch: heard})[0]
				s.claim("a", 1)
				s.do("del", s.key(key))
				s.do("set", s.key(key), "foreign")
				before := s.snapshot()
				keys, argv := s.ackCall("a", seq)
				if _, err := s.try(luajob.Ack, keys, argv...); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("got %v", err)
				}
				s.same("after", s.snapshot(), before)
			})
		})
	}
}

func TestAFullStoreTakesAcksAndKeepsNoMore(t *testing.T) {
	t.Parallel()
	s := newShard(t, redistest.Start(t).Client())
	s.put("a", bodies(3)...)
	jobs := s.claim("a", 2)
	ack := func(seq int64) []any {
		keys, argv := s.ackCall("a", fmt.Sprint(seq, ": {}"))
		argv[1] = "a 3600000 10"
		return s.must(luajob.Ack, append(keys, s.key("kept"), s.key("until:a"), s.key("acked:a")), argv...)
	}
	for x, maxmemory := range []string{"0", "1"} {
		s.do("config", "set", "maxmemory", maxmemory)
		s.same("acked", ack(jobs[x].seq)[1], 1)
	}
	s.same("kept", s.c.HLen(ctx, s.key("acked:a")).Val(), 2) // a job and what was said of it
}

// trace notes events: member, ms that its trace is kept, line.
func (s *shard) trace(most int, events ...any) (forgotten int64) {
	s.t.Helper()
	keys := []string{s.key("traces"), s.key("traced")}
	return num(s.must(luajob.Trace, keys, append([]any{most}, events...)...)[1])
}

func (s *shard) traceOf(member string) string { return s.c.HGet(ctx, s.key("traces"), member).Val() }

func TestATraceHasItsEventsInOrderUntilItIsOver(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		s.same("forgotten", s.trace(9, "1 a", 1000, "x", "2 a", 5000, "y", "1 a", 1000, "z"), int64(0))
		s.trace(9, "1 a", 2000, "later")
		s.same("one", s.traceOf("1 a"), "x\nz\nlater\n")
		s.same("another", s.traceOf("2 a"), "y\n")
		s.clock += 2_000_000
		s.same("forgotten", s.trace(9), int64(1))
		s.same("one that is over", s.traceOf("1 a"), "")
		s.trace(9, "1 a", 1000, "again")
		s.same("begun anew", s.traceOf("1 a"), "again\n")
		s.clock += 9_000_000
		s.same("forgotten", s.trace(9), int64(2))
		s.same("keys that are left", s.c.Exists(ctx, s.key("traces"), s.key("traced")).Val(), int64(0))
	})
}

func TestTracesAreBounded(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		var many []any
		for i := range 100 {
			many = append(many, fmt.Sprint(i, " a"), 1000+i, "x")
		}
		s.same("forgotten", s.trace(30, many...), int64(70))
		s.same("the oldest", s.traceOf("69 a"), "")
		s.same("the newest", s.traceOf("99 a")+s.traceOf("70 a"), "x\nx\n")
		s.same("none is kept", s.trace(0, "1 b", 1000, "x"), int64(31))
		line := strings.Repeat("l", 99)
		for range 100 {
			s.trace(9, "1 c", 60_000, "first", "1 c", 60_000, line, "1 c", 60_000, line+"2")
		}
		text := s.traceOf("1 c")
		if len(text) > 4096 || len(text) < 3800 || !strings.HasPrefix(text, "first\n") || !strings.HasSuffix(text, line+"\n"+line+"2\n") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
		s.trace(9, "1 d", 60_000, strings.Repeat("long", 2000), "1 d", 60_000, "x")
		s.same("a first line that is too long stays, alone", len(s.traceOf("1 d")), 8001)
	})
}

func TestAFullStoreForgetsTracesAndNotesNone(t *testing.T) {
	t.Parallel()
	s := newShard(t, redistest.Start(t).Client())
	s.trace(9, "1 a", 1, "x")
	s.do("config", "set", "maxmemory", "1")
	keys := []string{s.key("traces"), s.key("traced")}
	if _, err := s.try(luajob.Trace, keys, 9, "2 a", 1000, "x"); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("an event: got %v, want OOM", err)
	}
	for s.c.HLen(ctx, s.key("traces")).Val() > 0 { // a ms passes
		s.trace(9)
	}
}

func TestATraceRejectsWrongArguments(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		keys := []string{s.key("traces"), s.key("traced")}
		for _, argv := range [][]any{{}, {-1}, {"x"}, {1, "1 a"}, {1, "1 a", 0, "x"}, {1, "1 a", "1.5", "x"}, {1, "1 a", 1, "x", "y"}} {
			if _, err := s.try(luajob.Trace, keys, argv...); err == nil || !strings.Contains(err.Error(), "bad arguments") {
				t.Errorf("%v: got %v", argv, err)
			}
		}
		if _, err := s.try(luajob.Trace, keys[:1], 1); err == nil {
			t.Error("one key: no error")
		}
	})
}
