package job_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
		s.setClock()
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
		walks := uint64(12)
		if testing.Short() {
			walks = 3
		}
		for seed := range walks {
			walkPrepared(newShard(t, s.c), rand.New(rand.NewPCG(seed, 0)))
		}
	})
}

// fate is what a walk knows of a job.
type fate struct {
	decided string // no, commit or rollback
	told    bool   // its end is
	heard   bool   // its end sets off a follow-up
	times   int    // that its publisher is asked, if need be
	asked   int
	after   int64 // ms when it may be asked again, or die
	expires int64 // ms; 0: never
}

func walkPrepared(s *shard, r *rand.Rand) {
	s.t.Helper()
	s.clock = start
	jobs := map[int64]*fate{}
	var seqs []int64
	pick := func() int64 { return seqs[r.IntN(len(seqs))] }
	state := func(seq int64) string {
		if reply := s.get("a", seq); len(reply) > 2 {
			return reply[2].(string)
		}
		return "none"
	}
	publish := func() {
		times, delay := r.IntN(4), r.Int64N(3000)
		g := group{queue: "a", delay: 1000, bodies: bodies(1 + r.IntN(3)), watch: prepared(times, delay, ""), tries: 2}
		f := fate{decided: "no", times: times, after: s.now() + 1000, heard: r.IntN(3) > 0}
		if f.heard {
			g.watch += heard
		}
		if r.IntN(4) == 0 {
			g.ends = s.now() + 2000 + r.Int64N(5000)
			f.expires = g.ends
		}
		if r.IntN(5) == 0 {
			g.watch, g.delay = heard, r.Int64N(2000)
			f.decided, f.heard = "commit", true
		}
		for _, seq := range s.stored(g) {
			one := f
			jobs[seq] = &one
			seqs = append(seqs, seq)
		}
	}
	decide := func(seq int64, verb string) {
		f, before := jobs[seq], state(seq)
		over := f.expires > 0 && f.expires <= s.now()
		status, want := num(s.decide("a", verb, seq)[0]), int64(1)
		switch {
		case s.c.Exists(ctx, s.key(fmt.Sprint("dd:a:", seq))).Val() == 1 && f.decided == verb && before != "prepared":
			want = 2
		case before != "prepared" && f.decided != "no" && f.decided != verb && s.c.Exists(ctx, s.key(fmt.Sprint("dd:a:", seq))).Val() == 1:
			want = 3
		case before == "none" || before == "prepared" && over:
			want = 0
		case before != "prepared":
			want = 4
		}
		if status != want || status == 1 && f.decided != "no" {
			s.t.Errorf("%s of a %s job with %q: %d, want %d", verb, before, f.decided, status, want)
		}
		if status != 1 {
			return
		}
		f.decided = verb
		if s.c.Exists(ctx, s.key(fmt.Sprint("dd:a:", seq))).Val() == 0 {
			s.t.Errorf("a %s is not remembered", verb)
		}
		if !f.heard && s.c.HExists(ctx, s.key("on_end"), fmt.Sprint(seq, " a")).Val() {
			s.t.Errorf("a %s leaves something behind", verb)
		}
	}
	hear := func() {
		for _, line := range s.told() {
			words := strings.Split(line, " ")
			seq := num(words[1])
			f := jobs[seq]
			switch event := words[3]; {
			case event == "prepared":
				if f.asked++; f.decided != "no" || f.asked > f.times || s.now() < f.after {
					s.t.Errorf("question %d of %d at %d, not before %d", f.asked, f.times, s.now(), f.after)
				}
				f.after = s.now() + 1000<<f.asked
			case f.told || !f.heard:
				s.t.Errorf("%q is told again, or to nobody", line)
			default:
				f.told = true
				if event == "dead" && f.decided == "no" && (f.asked != f.times || s.now() < f.after) {
					s.t.Errorf("dead after %d of %d questions at %d, not before %d", f.asked, f.times, s.now(), f.after)
				}
			}
		}
	}
	for step := 0; step < 150 && !s.t.Failed(); step++ {
		s.clock += r.Int64N(800_000)
		what := r.IntN(10)
		if len(seqs) == 0 {
			what = 0
		}
		switch what {
		case 0, 1:
			publish()
		case 2, 3:
			decide(pick(), []string{"commit", "rollback"}[r.IntN(2)])
		case 4:
			for _, j := range s.claim("a", 1+r.IntN(3)) {
				if jobs[j.seq].decided != "commit" {
					s.t.Errorf("a job with %q is claimed", jobs[j.seq].decided)
				}
			}
		case 5:
			seq := pick()
			before, done := state(seq), s.ack("a", seq)[0]
			if over := jobs[seq].expires > 0 && jobs[seq].expires <= s.now(); (before == "prepared" && !over) != (done == 3) {
				s.t.Errorf("ack of a %s job: %d", before, done)
			}
		case 6:
			s.settle(settle{"a", pick(), 0, []string{"nack", "bury", "touch"}[r.IntN(3)], 1000})
		case 7, 8:
			s.promote(due{"a", "delay", seqs}, due{"a", "lease", seqs}, due{"a", "head", nil})
		case 9:
			s.expire("a")
		}
		hear()
		s.exact("a", "_out")
	}
	waits, dead := [2]int64{}, 0
	s.clock -= 1e10 // so that what expired is shown, too
	for _, seq := range seqs {
		switch state(seq) {
		case "prepared":
			waits[0]++
		case "delayed":
			waits[1]++
		case "dead":
			if dead++; jobs[seq].heard && !jobs[seq].told {
				s.t.Errorf("a death is not told")
			}
		}
	}
	s.clock += 1e10
	s.same("prepared and delayed", s.waiting(), waits)
	s.purge("a", "all", 1000)
	hear()
	for seq, f := range jobs {
		if f.heard && !f.told {
			s.t.Errorf("the end of %d is not told", seq)
		}
	}
	s.same("left behind", s.c.HLen(ctx, s.key("on_end")).Val(), 0)
	s.exact("a", "_out")
}

// tolerant is a test that may fail.
type tolerant struct {
	testing.TB
	failed bool
}

func (t *tolerant) Helper()               {}
func (t *tolerant) Errorf(string, ...any) { t.failed = true }
func (t *tolerant) Failed() bool          { return t.failed }
func (t *tolerant) Fatalf(format string, args ...any) {
	t.failed = true
	panic(t)
}

func TestTheWalkOfPreparedJobsFindsEverySeededBug(t *testing.T) {
	t.Parallel()
	c := redistest.Shared(t)
	for name, bug := range map[string]seeded{
		"a prepared job is delayed":                {"publish", "at_ms = '-' .. at_ms", ""},
		"a due one becomes ready":                  {"promote", "last, sign = true, '-'", ""},
		"a question has no end":                    {"promote", "if not pause or times == '0' then", "if not pause then"},
		"nobody is asked":                          {"promote", "pause = totals.ends and totals.ends.ask(k.name, seqs[x])", ""},
		"a question is asked at once again":        {"promote", "int(now + (pause or put_off))", "int(now - 1)"},
		"an ack ends it":                           {"ack", "totals.ends and not over and is_prepared(delay, members[x])", "false"},
		"a commit is decided twice":                {"decide", "redis.call('SET', KEYS[11], verb, 'PX', keep)", ""},
		"a rollback after a commit":                {"decide", "decided == verb and 2 or 3", "2"},
		"a commit of any job":                      {"decide", "elseif not is_prepared(delay, member) then", "elseif false then"},
		"a commit leaves it prepared":              {"decide", "redis.call('ZREM', delay, member)\n  if rest", "if rest"},
		"a commit forgets who hears of its end":    {"decide", "if rest and string.find('\\n' .. rest, '\\n[sqw]') then", "if false then"},
		"a commit leaves the questions":            {"decide", "redis.call('HDEL', totals.ends.on_end, member)", ""},
		"a rollback is not counted":                {"decide", "totals.deleted = totals.deleted + 1", ""},
		"a rollback tells nobody":                  {"decide", "totals.ends.ended(name, seq, 'deleted')", ""},
		"a rollback keeps the job":                 {"decide", "remove(k, totals, name, seq, id ~= '' and id)", ""},
		"a rollback leaves the queue in the index": {"decide", "totals.lost = totals.lost + forget(queues, tombstones, k.r, k.j, name)", ""},
		"an undecided job dies without a word":     {"promote", "totals.ends.ended(k.name, seq, 'dead')", ""},
		"an expired one is committed":              {"decide", "if is_over(record, now) and", "if false and"},
		"the ledger has it as delayed":             {"ledger", "result[10] = result[10] - result[13]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: c, DisableIdentity: true, MaxRetries: -1, ReadTimeout: time.Minute})
			defer func() { _ = client.Close() }()
			for n := range uint64(40) {
				seed := n
				if name == "a rollback leaves the queue in the index" {
					seed += 30 // those before find nothing
				}
				quiet := &tolerant{TB: t}
				s := newShard(quiet, client)
				s.bug = bug
				func() {
					defer func() {
						if p := recover(); p != nil && p != any(quiet) {
							panic(p)
						}
					}()
					walkPrepared(s, rand.New(rand.NewPCG(seed, 0)))
				}()
				if quiet.failed {
					t.Logf("walk %d", seed)
					return
				}
			}
			t.Error("40 walks found nothing")
		})
	}
}

// Who waited for the end of a prepared job waits for that of the committed one.
func TestACommittedJobIsStillAwaited(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		note := "wpublish " + s.channel() + "!ends\n"
		for _, more := range []string{"", heard, heard + "cx-y\n"} {
			seq := s.stored(group{queue: "a", delay: 1000, bodies: bodies(1), watch: prepared(2, 0, more+note)})[0]
			s.same("committed", s.decide("a", "commit", seq)[0], 1)
			s.same("its note", s.c.HGet(ctx, s.key("on_end"), fmt.Sprint(seq, " a")).Val(), more+note)
		}
	})
}
