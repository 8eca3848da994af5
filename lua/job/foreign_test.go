package job_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
)

// scene is two queues, a and b, with jobs in every state.
type scene struct {
	*shard
	ready, delayed, lapsed, leased, named map[string][]int64
	far                                   map[string]int64 // delayed by an hour
}

// newScene gives each queue 4 ready jobs, of which one has expired and one has been
// removed; 2 delayed ones that are due and 1 that is not; 2 lapsed ones, one of which was
// on its last try; 3 leased and 2 dead ones; one with a caller's id, and one that has expired.
func newScene(s *shard) *scene {
	c := &scene{s, map[string][]int64{}, map[string][]int64{}, map[string][]int64{}, map[string][]int64{}, map[string][]int64{}, map[string]int64{}}
	claim := func(q string, n int, tries int) []int64 {
		seqs := s.stored(group{queue: q, tries: tries, bodies: bodies(n)})
		s.claim(q, n)
		return seqs
	}
	for _, q := range []string{"a", "b"} {
		c.lapsed[q] = append(claim(q, 1, 3), claim(q, 1, 1)...)
		c.leased[q] = claim(q, 3, 3)
		for _, seq := range claim(q, 2, 3) {
			s.settle(settle{q, seq, 1, "bury", 0})
		}
		c.delayed[q] = s.stored(group{queue: q, delay: 60_000, bodies: bodies(2)})
		c.far[q] = s.stored(group{queue: q, delay: 3_600_000, bodies: bodies(1)})[0]
		c.ready[q] = append(s.put(q, "one"), s.stored(group{queue: q, ends: s.now() - 1, bodies: []string{"late"}})...)
		c.ready[q] = append(c.ready[q], s.put(q, "gone", "last")...)
		s.ack(q, c.ready[q][2])
		c.named[q] = s.stored(group{queue: q, id: "mine", bodies: []string{"named"}})
		s.stored(group{queue: q, id: "over", ends: s.now() - 1, bodies: []string{"late"}})
		s.past("delay", q, c.delayed[q]...)
		s.past("lease", q, c.lapsed[q]...)
		s.do("zadd", s.key("queues"), 1, q)
	}
	return c
}

// verbs call each script on both queues and give what it answered for b, without what
// depends on the clock.
var verbs = map[string]func(c *scene) (b string, err error){
	"publish": func(c *scene) (string, error) {
		keys, argv := c.publishCall(
			group{queue: "a", bodies: bodies(2)}, group{queue: "b", bodies: bodies(2)},
			group{queue: "a", delay: 5000, bodies: bodies(1)}, group{queue: "b", delay: 5000, bodies: bodies(1)},
			group{queue: "a", id: "mine", bodies: bodies(1)}, group{queue: "b", id: "mine", bodies: bodies(1)},
			group{queue: "a", id: "new", bodies: bodies(1)}, group{queue: "b", id: "new", bodies: bodies(1)},
			group{queue: "a", id: "over", bodies: bodies(1)}, group{queue: "b", id: "over", bodies: bodies(1)},
			group{queue: "a", key: "k", bodies: bodies(1)}, group{queue: "b", key: "k2", bodies: bodies(1)})
		reply, err := c.try(luajob.Publish, keys, argv...)
		b := ""
		for i := 4; i < len(reply); i += 6 {
			b += fmt.Sprint(reply[i], " ")
		}
		return b, err
	},
	"claim": func(c *scene) (string, error) {
		keys, argv, each := c.claimCall("lane", "t", true, request{queues: []string{"a", "b"}, count: 2}, request{queues: []string{"b"}, count: 9})
		reply, err := c.try(luajob.Claim, keys, argv...)
		if err != nil {
			return "", err
		}
		b := 0
		for _, jobs := range parseClaims(reply, each).jobs {
			for _, job := range jobs {
				b += bit(job.queue == "b")
			}
		}
		return fmt.Sprint(b, reply[4]), nil
	},
	"ack": func(c *scene) (string, error) {
		argv := []any{2, "a", "b"}
		for i, q := range []string{"a", "b"} {
			argv = append(argv, i+1, 2, c.leased[q][0], c.leased[q][1])
			argv = append(argv, i+1, 3, c.ready[q][0], c.delayed[q][0], fmt.Sprint(c.named[q][0], ":mine"))
		}
		reply, err := c.try(luajob.Ack, c.common("a", "b"), argv...)
		return tail(reply, 6), err
	},
	"settle": func(c *scene) (string, error) {
		var jobs []settle
		for _, q := range []string{"a", "b"} {
			jobs = append(jobs, settle{q, c.leased[q][0], 0, "nack", 1000}, settle{q, c.leased[q][1], 0, "bury", 0},
				settle{q, c.lapsed[q][0], 0, "touch", 9000}, settle{q, c.leased[q][2], 0, "requeue", 0}, settle{q, c.lapsed[q][1], 0, "nack", 0})
		}
		keys, argv := c.settleCall(jobs...)
		reply, err := c.try(luajob.Settle, keys, argv...)
		return tail(reply, 6), err
	},
	"promote": func(c *scene) (string, error) {
		keys, argv := c.promoteCall(due{"a", "delay", c.delayed["a"]}, due{"b", "delay", c.delayed["b"]}, due{"a", "lease", c.lapsed["a"]},
			due{"b", "lease", c.lapsed["b"]}, due{"a", "head", nil}, due{"b", "head", nil})
		_, err := c.try(luajob.Promote, keys, argv...)
		left := 0
		for zset, seqs := range map[string][]int64{"delay": c.delayed["b"], "lease": c.lapsed["b"]} {
			for _, seq := range seqs {
				left += bit(c.c.ZScore(ctx, c.key(zset), fmt.Sprintf("%d b", seq)).Err() == nil)
			}
		}
		return fmt.Sprint(left, " left"), err
	},
	"revert": func(c *scene) (string, error) {
		c.claimAll("other", "lost", request{queues: []string{"a"}, count: 1}, request{queues: []string{"b"}, count: 1})
		before := c.c.ZCard(ctx, c.key("lease")).Val()
		keys := []string{c.key("attempts"), c.key("lease"), c.key("out:other"), c.key("r:a"), c.key("r:b")}
		_, err := c.try(luajob.Revert, keys, "lost", c.channel(), "publish", "a", "b")
		return fmt.Sprint(before-c.c.ZCard(ctx, c.key("lease")).Val() > 0), err
	},
}

func init() {
	// These serve one queue a call: b first, then a.
	for name, single := range map[string]struct {
		script *lua.Script
		argv   func(c *scene, q string) []any
	}{
		"respawn":      {luajob.Respawn, func(c *scene, q string) []any { return c.respawnArgs(q, "respawn") }},
		"delete":       {luajob.Respawn, func(c *scene, q string) []any { return c.respawnArgs(q, "delete") }},
		"purge":        {luajob.Purge, func(c *scene, q string) []any { return []any{q, "ready", 3} }},
		"purge of all": {luajob.Purge, func(c *scene, q string) []any { return []any{q, "all", 8} }},
		"expire":       {luajob.Expire, func(c *scene, q string) []any { return []any{q, "0", 100, 1, c.channel(), "publish"} }},
	} {
		verbs[name] = func(c *scene) (string, error) {
			reply, err := c.try(single.script, c.common("b"), single.argv(c, "b")...)
			if err != nil {
				return "", err
			}
			before := c.snapshot()
			if _, err := c.try(single.script, c.common("a"), single.argv(c, "a")...); err != nil {
				c.same(name+" of the rejected queue changed the shard", c.snapshot(), before)
			}
			return fmt.Sprint(reply[1:]), nil
		}
	}
}

// tail is a reply from a value on.
func tail(reply []any, from int) string {
	if len(reply) < from {
		return fmt.Sprint(reply)
	}
	return fmt.Sprint(reply[from:])
}

// A key of another type is rejected with its own queue, or with the whole call where all
// queues share it. Nothing is left half done: with the key put right again the ledger is
// exact.
func TestAKeyOfAnotherTypeFailsItsOwnGroup(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		for name, verb := range verbs {
			want, err := verb(newScene(newShard(t, s.c)))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, key := range []string{"r:a", "j:a", "d:a", "u:a", "ledger", "lease", "attempts", "delay", "queues", "tombstones", "dd:a:k", "out:lane"} {
				c := newScene(newShard(t, s.c))
				own := strings.HasSuffix(key, ":a") || strings.Contains(key, "dd:") || strings.Contains(key, "out:")
				if name == "revert" {
					continue // it claims first: below
				}
				there := c.c.Exists(ctx, c.key(key)).Val() == 1
				if there {
					c.do("rename", c.key(key), c.key(key)+".saved")
				}
				if key == "dd:a:k" {
					c.do("rpush", c.key(key), "foreign")
				} else {
					c.do("set", c.key(key), "foreign")
				}
				before := c.snapshot()
				got, err := verb(c)
				if err != nil {
					if own {
						t.Errorf("%s, %s: rejected whole: %v", name, key, err)
					}
					if !strings.Contains(err.Error(), "WRONGTYPE") {
						t.Errorf("%s, %s: %v", name, key, err)
					}
					c.same(name+", "+key+": rejected, but changed the shard", c.snapshot(), before)
				} else if own {
					c.same(name+", "+key+": the other queue", got, want)
				}
				if key != "out:lane" && key != "dd:a:k" {
					c.same(name+", "+key+" is left alone", c.c.Get(ctx, c.key(key)).Val(), "foreign")
				}
				if there {
					c.do("rename", c.key(key)+".saved", c.key(key))
				} else {
					c.do("del", c.key(key))
				}
				if failed := t.Failed(); !failed {
					c.exact("a", "b")
					if t.Failed() {
						t.Errorf("that was %s, %s", name, key)
					}
				}
			}
		}
	})
}

func TestRevertPassesOverAKeyOfAnotherType(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		for _, key := range []string{"r:a", "lease", "attempts", "out:lane"} {
			c := newScene(newShard(t, s.c))
			c.claimAll("lane", "lost", request{queues: []string{"a"}, count: 1}, request{queues: []string{"b"}, count: 1})
			there := c.c.Exists(ctx, c.key(key)).Val() == 1
			if there {
				c.do("rename", c.key(key), c.key(key)+".saved")
			}
			c.do("hset", c.key(key), "foreign", 1)
			if key == "attempts" {
				c.do("del", c.key(key))
				c.do("set", c.key(key), "foreign")
			}
			before := c.snapshot()
			keys := []string{c.key("attempts"), c.key("lease"), c.key("out:lane"), c.key("r:a"), c.key("r:b")}
			reply, err := c.try(luajob.Revert, keys, "lost", c.channel(), "publish", "a", "b")
			switch {
			case key == "r:a" && (err != nil || num(reply[1]) != 1):
				t.Errorf("%s: got %v %v, want the job of the other queue given back", key, reply, err)
			case key == "out:lane" && (err != nil || num(reply[1]) != 0):
				t.Errorf("%s: got %v %v", key, reply, err)
			case key == "lease" || key == "attempts":
				if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("%s: got %v %v", key, reply, err)
				}
				c.same(key+": rejected, but changed the shard", c.snapshot(), before)
			}
			if there {
				c.do("rename", c.key(key)+".saved", c.key(key))
			} else {
				c.do("del", c.key(key))
			}
			c.exact("a", "b")
		}
	})
}

// The ledger's own values are read before anything is written.
func TestAForeignValueInTheLedgerRejectsTheCall(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		for name, verb := range verbs {
			if name == "revert" {
				continue // writes no totals
			}
			for _, field := range []string{"acked", "dead"} {
				for _, value := range []string{"abc", "9007199254740992", ""} {
					c := newScene(newShard(t, s.c))
					c.do("hset", c.ledger(), field, value)
					before := c.snapshot()
					if _, err := verb(c); err == nil && (name != "publish" || field != "dead") || err != nil && !strings.Contains(err.Error(), "ERR the ledger holds a foreign value") {
						t.Errorf("%s, %s %q: got %v", name, field, value, err)
					} else if err != nil {
						c.same(name+" changed the shard", c.snapshot(), before)
					}
				}
			}
		}
	})
}
