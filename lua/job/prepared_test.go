package job_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

// prepared is what a publish says of a prepared job: its publisher is asked after a second, times times.
func prepared(times int, delay int64, more string) string {
	return fmt.Sprintf("p1000 %d %d check\n%s", times, delay, more)
}

// decide gives the status and when the job is ready.
func (s *shard) decide(queue, verb string, job any) []any {
	s.t.Helper()
	keys, argv := s.decideCall(queue, verb, job)
	return s.must(luajob.Decide, keys, argv...)[1:]
}

func (s *shard) decideCall(queue, verb string, job any) (keys []string, argv []any) {
	keys = append(s.common(queue), s.key(fmt.Sprint("dd:", queue, ":", job)))
	return keys, []any{queue, job, verb, 86_400_000, s.maxKeys, s.channel(), "publish"}
}

// waiting gives {prepared, delayed} of the ledger.
func (s *shard) waiting() []any {
	s.t.Helper()
	reply := s.must(luajob.Ledger, []string{s.ledger(), s.key("lease"), s.key("delay")})
	return []any{reply[12], reply[9]}
}

func TestAPreparedJobWaitsForItsCommit(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		seq := s.stored(group{queue: "a", delay: 1000, id: "x-y", bodies: bodies(1), watch: prepared(2, 0, heard+"cx-y\n")})[0]
		s.stored(group{queue: "a", delay: 9000, bodies: bodies(1)})
		mine := fmt.Sprint(seq, ":x-y")
		s.same("prepared and delayed", s.waiting(), []any{1, 1})
		s.same("claimed", len(s.claim("a", 9)), 0)
		s.same("not due", s.promote(due{"a", "delay", []int64{seq}})[0], 0)
		s.same("its state", s.get("a", seq)[2:4], []any{"prepared", s.now() + 1000})
		s.same("acked", s.ack("a", mine), []int64{3})
		s.same("rescheduled", s.reschedule("a", mine, 0), []any{2, 0})
		s.same("its id", s.publish(group{queue: "a", id: "x-y", bodies: bodies(1)})[0], []any{3, seq, 1})
		s.same("without its id", s.decide("a", "commit", seq), []any{0, 0})
		s.same("another", s.decide("a", "commit", seq+99), []any{0, 0})
		s.exact("a")
		s.same("committed", s.decide("a", "commit", mine), []any{1, 0})
		s.same("again", s.decide("a", "commit", mine), []any{2, 0})
		s.same("rolled back", s.decide("a", "rollback", mine), []any{3, 0})
		s.same("prepared and delayed", s.waiting(), []any{0, 1})
		s.same("claimed", len(s.claim("a", 9)), 1)
		s.same("again", s.decide("a", "commit", mine), []any{2, 0})
		s.same("acked", s.ack("a", mine), []int64{1})
		s.same("told", s.told(), []string{fmt.Sprintf("done %d x-y acked ", seq)})
		s.same("left behind", s.c.HLen(ctx, s.key("on_end")).Val(), 0)
		s.exact("a", "_out")
	})
}

// The delay counts from the publish, as a ttl does.
func TestACommittedJobWaitsForItsDelay(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		seqs := s.stored(group{queue: "a", delay: 1000, bodies: bodies(2), watch: prepared(2, 5000, "")})
		s.clock += 2e6
		s.same("committed", s.decide("a", "commit", seqs[0]), []any{1, start/1000 + 5000})
		s.same("its state", s.get("a", seqs[0])[2:4], []any{"delayed", start/1000 + 5000})
		s.clock += 3e6
		s.same("committed late", s.decide("a", "commit", seqs[1]), []any{1, 0})
		s.same("is due", s.promote(due{"a", "delay", seqs[:1]})[0], 1)
		s.same("claimed", len(s.claim("a", 9)), 2)
		s.same("watched", s.c.HLen(ctx, s.key("on_end")).Val(), 0)
		s.exact("a")
	})
}

func TestARollbackDeletesThePreparedJob(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		seq := s.stored(group{queue: "a", delay: 1000, bodies: bodies(1), watch: prepared(2, 0, heard)})[0]
		s.same("rolled back", s.decide("a", "rollback", seq), []any{1, 0})
		s.same("again", s.decide("a", "rollback", seq), []any{2, 0})
		s.same("committed", s.decide("a", "commit", seq), []any{3, 0})
		s.same("told", s.told(), []string{fmt.Sprintf("done %d  deleted ", seq)})
		s.same("deleted", s.total("deleted"), 1)
		s.exact("a", "_out")
	})
}

// Where the namespace keeps as many keys as it may, decisions are made and not remembered.
func TestADecisionIsRememberedWhileThereIsRoom(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.maxKeys = 1
		seqs := s.stored(group{queue: "a", delay: 1000, bodies: bodies(2), watch: prepared(2, 0, "")})
		for _, seq := range seqs {
			s.same("rolled back", s.decide("a", "rollback", seq), []any{1, 0})
		}
		s.same("remembered", s.decide("a", "commit", seqs[0]), []any{3, 0})
		s.same("not remembered", s.decide("a", "commit", seqs[1]), []any{0, 0})
	})
}

// The publisher is asked after a pause, twice that and so on; then the job is dead, and may be respawned.
func TestAPublisherIsAskedAndThenTheJobIsDead(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		seq := s.stored(group{queue: "a", delay: 1000, id: "mine", bodies: bodies(1), watch: prepared(2, 0, heard+"cmine\n")})[0]
		asks := func(after int64) []int64 {
			s.clock += after*1000 - 1000
			s.same("early", s.promote(due{"a", "delay", []int64{seq}}), []any{0, 0, 0, 0})
			s.clock += 1000
			return s.promote(due{"a", "delay", []int64{seq}})
		}
		for _, pause := range []int64{1000, 2000} {
			s.same("asked", asks(pause), []any{0, 0, 0, 0})
			s.same("told", s.told(), []string{fmt.Sprintf("check %d mine prepared ", seq)})
			s.exact("a", "_out")
		}
		s.same("given up", asks(4000), []any{0, 1, 0, 0})
		s.same("told", s.told(), []string{fmt.Sprintf("done %d mine dead ", seq)})
		s.same("its state", s.get("a", seq)[2:5], []any{"dead", s.now(), 4})
		s.same("among the dead", s.must(luajob.DeadPage, []string{s.key("j:a"), s.key("d:a")}, 0, 9, 1000)[2:5], []any{seq, s.now(), 4})
		s.same("committed", s.decide("a", "commit", fmt.Sprint(seq, ":mine")), []any{4, 0})
		s.same("respawned", s.respawn("a", "respawn", 9, 0), 1)
		s.same("claimed", len(s.claim("a", 9)), 1)
		s.exact("a", "_out")
	})
}

func TestAPauseBetweenQuestionsIsAnHourAtMost(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		for pause, next := range map[int64]int64{3_000_000: 3_600_000, 86_400_000: 86_400_000} {
			seq := s.stored(group{queue: "a", delay: pause, bodies: bodies(1), watch: fmt.Sprintf("p%d 3 0 check\n", pause)})[0]
			s.clock += pause * 1000
			s.promote(due{"a", "delay", []int64{seq}})
			s.same("asked again", s.get("a", seq)[3], s.now()+next)
		}
	})
}

func TestOnlyPreparedJobsAreDecided(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.clock = start
		over := s.stored(group{queue: "a", delay: 1000, ends: s.now() + 1, bodies: bodies(1), watch: prepared(2, 0, heard)})[0]
		s.clock += 1e6
		c := newScene(s)
		before := s.snapshot()
		for _, verb := range []string{"commit", "rollback"} {
			s.same("expired", s.decide("a", verb, over), []any{0, 0})
			for _, seq := range []int64{c.ready["a"][0], c.delayed["a"][0], c.leased["a"][0], num(s.c.ZRange(ctx, s.key("d:a"), 0, 0).Val()[0])} {
				s.same(verb, s.decide("a", verb, seq), []any{4, 0})
			}
		}
		s.same("after", s.snapshot(), before)
		for what, argv := range map[string][]any{
			"verb":     {"a", 1, "cancel", 1000, 10, "w:", "publish"},
			"sequence": {"a", "x", "commit", 1000, 10, "w:", "publish"},
			"time":     {"a", 1, "commit", 0, 10, "w:", "publish"},
			"too few":  {"a", 1, "commit", 1000, 10, "w:"},
		} {
			keys, _ := s.decideCall("a", "commit", 1)
			if _, err := s.try(luajob.Decide, keys, argv...); err == nil {
				t.Errorf("%s: no error", what)
			}
		}
	})
}

func TestPreparedJobsAreDecidedInAFullStore(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	for name, f := range map[string]func(s *shard, seq int64) bool{
		"commit":   func(s *shard, seq int64) bool { return num(s.decide("a", "commit", seq)[0]) == 1 },
		"rollback": func(s *shard, seq int64) bool { return num(s.decide("a", "rollback", seq)[0]) == 1 },
		"ask":      func(s *shard, seq int64) bool { s.promote(due{"a", "delay", []int64{seq}}); return len(s.told()) == 1 },
	} {
		s := newShard(t, c)
		s.clock = start
		seq := s.stored(group{queue: "a", delay: 1000, bodies: bodies(1), watch: prepared(2, 0, "")})[0]
		s.clock += 1e6
		s.do("config", "set", "maxmemory", "1")
		ok := f(s, seq)
		s.do("config", "set", "maxmemory", "0")
		if !ok {
			t.Errorf("%s does not run", name)
		}
		s.exact("a", "_out")
	}
}

// Whatever happens to prepared jobs, each is in one state, none is claimed before its commit or after its rollback,
// and each end is told once.
func TestPreparedJobsWalk(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		for seed := range uint64(12) {
			walkPrepared(newShard(t, s.c), rand.New(rand.NewPCG(seed, 0)))
		}
	})
}

func walkPrepared(s *shard, r *rand.Rand) {
	s.t.Helper()
	s.clock = start
	decided, ends := map[int64]string{}, map[string]int{}
	var seqs []int64
	pick := func() int64 { return seqs[r.IntN(len(seqs))] }
	hear := func() {
		for _, line := range s.told() {
			if line[:4] == "done" {
				ends[line]++
			}
		}
	}
	for step := range 150 {
		s.clock += r.Int64N(800_000)
		what := r.IntN(10)
		if len(seqs) == 0 {
			what = 0
		}
		switch what {
		case 0, 1:
			g := group{queue: "a", delay: 1000, bodies: bodies(1 + r.IntN(3)), watch: prepared(r.IntN(4), r.Int64N(3000), heard), tries: 2}
			if r.IntN(4) == 0 {
				g.ends = s.now() + 2000 + r.Int64N(5000)
			}
			if r.IntN(5) == 0 {
				g.watch, g.delay = heard, r.Int64N(2000)
			}
			got := s.stored(g)
			for _, seq := range got {
				decided[seq] = "no"
				if g.watch == heard {
					decided[seq] = "commit"
				}
			}
			seqs = append(seqs, got...)
		case 2, 3:
			seq, verb := pick(), []string{"commit", "rollback"}[r.IntN(2)]
			status := num(s.decide("a", verb, seq)[0])
			switch {
			case status == 1 && decided[seq] != "no", status == 2 && decided[seq] != verb, status == 3 && decided[seq] == verb:
				s.t.Errorf("step %d: %s of a job with %q: %d", step, verb, decided[seq], status)
			case status == 1:
				decided[seq] = verb
			}
		case 4:
			for _, j := range s.claim("a", 1+r.IntN(3)) {
				if decided[j.seq] != "commit" {
					s.t.Errorf("step %d: a job with %q is claimed", step, decided[j.seq])
				}
			}
		case 5:
			s.ack("a", pick())
		case 6:
			s.settle(settle{"a", pick(), 0, []string{"nack", "bury", "touch"}[r.IntN(3)], 1000})
		case 7, 8:
			s.promote(due{"a", "delay", seqs}, due{"a", "lease", seqs}, due{"a", "head", nil})
		case 9:
			s.expire("a")
		}
		hear()
		s.exact("a", "_out")
		if s.t.Failed() {
			return
		}
	}
	s.purge("a", "all", 1000)
	hear()
	for line, n := range ends {
		if n > 1 {
			s.t.Errorf("%q was told %d times", line, n)
		}
	}
	if len(ends) != len(seqs) {
		s.t.Errorf("%d jobs, %d ends", len(seqs), len(ends))
	}
	s.same("left behind", s.c.HLen(ctx, s.key("on_end")).Val(), 0)
	s.exact("a", "_out")
}
