package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// recorded is a call of a script.
type recorded struct {
	script *lua.Script
	keys   []string
	argv   []any
}

// recordedCalls are the calls of all verbs on a scene, and those that only read.
func recordedCalls(c *scene) []recorded {
	var calls []recorded
	c.called = func(script *lua.Script, keys []string, argv []any) {
		calls = append(calls, recorded{script, slices.Clone(keys), slices.Clone(argv)})
	}
	for _, verb := range verbs {
		_, _ = verb(c)
	}
	c.peek("a")
	c.get("a", c.ready["a"][0])
	c.counts(10, "a", "b")
	c.reschedule("a", c.far["a"], 60_000, "new")
	c.must(luajob.DeadPage, []string{c.key("j:a"), c.key("d:a"), c.key("u:a")}, 0, 10, 1000)
	c.called = nil
	return calls
}

// Whatever an argument is, the call is rejected as a whole with a word for it, or it runs
// and the ledger is exact: no script ends half done.
func TestWrongArgumentsNeverLeaveACallHalfDone(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		values := []string{"", "x", "1.5", "nan", "9007199254740992", "1001"}
		for _, call := range recordedCalls(newScene(s)) {
			before := ""
			try := func(what string, keys []string, argv []any) {
				t.Helper()
				if before == "" {
					before = s.snapshot()
				}
				_, err := s.try(call.script, keys, argv...)
				if err == nil {
					// A claim that ran may have been told to keep what it handed out for a second.
					for _, key := range s.c.Keys(ctx, s.key("out:*")).Val() {
						s.c.Persist(ctx, key)
					}
					before = ""
					return
				}
				if !strings.Contains(err.Error(), "bad arguments") && !strings.Contains(err.Error(), "ERR the ledger") && !strings.Contains(err.Error(), "invalid cursor") {
					t.Errorf("%s, %s: %v", call.script.Name, what, err)
				}
				s.same(call.script.Name+" changed the shard: "+what, s.snapshot(), before)
			}
			for i := range call.argv {
				try(fmt.Sprint("only ", i, " arguments"), call.keys, call.argv[:i])
				if text, ok := call.argv[i].(string); ok && (text == "a" || text == "b" || text == s.channel() || text == "publish") {
					continue // a name may be anything
				}
				for k, value := range values {
					if testing.Short() && (i+k)%3 > 0 {
						continue
					}
					argv := slices.Clone(call.argv)
					argv[i] = value
					try(fmt.Sprintf("argument %d is %q", i+1, value), call.keys, argv)
				}
			}
			try("a key too few", call.keys[:len(call.keys)-1], call.argv)
			s.exact("a", "b")
			if t.Failed() {
				return
			}
		}
	})
}

// memory is what the server uses for its data, in bytes.
func (s *shard) memory() int64 {
	s.t.Helper()
	for line := range strings.SplitSeq(s.c.Info(ctx, "memory").Val(), "\r\n") {
		if text, ok := strings.CutPrefix(line, "used_memory_dataset:"); ok {
			return num(text)
		}
	}
	s.t.Fatal("INFO tells no used_memory_dataset")
	return 0
}

// What a job of 200 bytes takes in Redis decides how many fit: these are the figures of
// DESIGN.md, with 100,000 of them.
func TestBytesOfAJob(t *testing.T) {
	t.Parallel()
	for state, row := range map[string]struct {
		delay int64
		most  int64
	}{"ready": {0, 320}, "delayed": {3_600_000, 440}} {
		s := newShard(t, server(t))
		s.maxJobs = 1 << 40
		keys, argv := s.publishCall(group{queue: "mail", delay: row.delay, bodies: slices.Repeat([]string{strings.Repeat("x", 200)}, 500)})
		before := s.memory()
		repeat(t, s.c, 200, luajob.Publish, func(int) ([]string, []any) { return keys, argv })
		each := (s.memory() - before) / 100_000
		t.Logf("%s: %d bytes", state, each)
		if each > row.most {
			t.Errorf("%s: %d bytes, want at most %d", state, each, row.most)
		}
	}
}

// A server that rejects writes rejects every verb whole, and runs it once it accepts
// writes again.
func TestVerbsAreRejectedWholeByAServerThatRejectsWrites(t *testing.T) {
	t.Parallel()
	for _, fault := range redistest.Rejections {
		t.Run(fault.Word, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client()
			for name, verb := range verbs {
				if name == "revert" {
					continue // it claims first
				}
				c := newScene(newShard(t, client))
				before := c.snapshot()
				fault.Begin(t, server)
				_, err := verb(c)
				if err == nil || !strings.HasPrefix(err.Error(), fault.Word+" ") {
					t.Errorf("%s: got %v, want %s", name, err, fault.Word)
				}
				c.same(name+" changed the shard", c.snapshot(), before)
				fault.End(t, server)
				if _, err := verb(c); err != nil {
					t.Errorf("%s, later: %v", name, err)
				}
				c.exact("a", "b")
			}
		})
	}
}

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(luajob.All()), scripttest.Includes(t, "..", "."))
}

func TestNoScriptHasWhatTheEmbeddedStoreMiscompiles(t *testing.T) {
	t.Parallel()
	scripttest.NothingMiscompiled(t, luajob.All())
}

func (s *shard) probe(queue string) []any {
	s.t.Helper()
	keys := []string{s.key("r:" + queue), s.key("j:" + queue), s.key("d:" + queue), s.key("dd:" + queue + ":probe")}
	return s.must(luajob.PermissionProbe, keys, s.channel()+queue, "publish")
}

func TestPermissionProbeRunsAndLeavesNothing(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.put("a", bodies(3)...)
		before := s.snapshot()
		if reply := s.probe("!permission-probe"); len(reply) != 2 || reply[1] != int64(0) {
			t.Errorf("got %v, want {now, 0}", reply)
		}
		s.same("the shard", s.snapshot(), before)
	})
}

func TestPermissionProbeTriesEveryCommandOfTheScripts(t *testing.T) {
	t.Parallel()
	scripttest.ProbeTries(t, luajob.PermissionProbe, luajob.All(), 100)
}

func TestPermissionProbeNamesEachMissingRight(t *testing.T) {
	t.Parallel()
	s := newShard(t, redistest.Start(t).Client())
	for _, right := range []string{"hscan", "lpos", "publish", "hrandfield", "del", "zmscore"} {
		s.do("acl", "setuser", "default", "reset", "on", "nopass", "~*", "&*", "+@all", "-"+right)
		reply := s.probe("!permission-probe")
		if num(reply[1]) != 1 || !strings.EqualFold(fmt.Sprint(reply[2]), right) {
			t.Errorf("without %s: got %v", right, reply[1:])
		}
	}
	s.do("acl", "setuser", "default", "reset", "on", "nopass", "~*", "+@all", "resetchannels", "&other:*")
	if reply := s.probe("!permission-probe"); num(reply[1]) != 1 || reply[2] != "publish" {
		t.Errorf("without the channels: got %v", reply[1:])
	}
}
