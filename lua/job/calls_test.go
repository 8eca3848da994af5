package job_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
)

var callsLine = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// costs runs a call and compares the Redis commands that it sends.
func (s *shard) costs(script *lua.Script, keys []string, argv []any, want int) {
	s.t.Helper()
	if err := s.c.ConfigResetStat(ctx).Err(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.c.EvalSha(ctx, script.SHA, keys, argv...).Err(); err != nil {
		s.t.Fatalf("%s: %v", script.Name, err)
	}
	total, each := 0, ""
	for _, m := range callsLine.FindAllStringSubmatch(s.c.Info(ctx, "commandstats").Val(), -1) {
		if m[1] != "evalsha" && m[1] != "config|resetstat" {
			n, _ := strconv.Atoi(m[2])
			total += n
			each += " " + m[1] + "×" + m[2]
		}
	}
	if total != want {
		s.t.Errorf("%s: got %d Redis calls, want %d:%s", script.Name, total, want, each)
	}
}

// wide is a shard with n queues of k ready jobs; none is ever empty.
func wide(t *testing.T, c *redis.Client, n, k int) (*shard, []string, map[string][]int64) {
	s := newShard(t, c)
	queues, seqs := make([]string, n), map[string][]int64{}
	for i := range queues {
		queues[i] = fmt.Sprint("q", i)
		seqs[queues[i]] = s.put(queues[i], bodies(k)...)
		s.stored(group{queue: queues[i], delay: 1e9, bodies: bodies(1)})
	}
	return s, queues, seqs
}

// A call costs what it shares and a fixed number more for each queue, for up to 500 jobs.
// Redis takes so many at once from Lua.
func TestRedisCallsOfPublishDependOnQueuesOnly(t *testing.T) {
	t.Parallel()
	c := server(t)
	for _, n := range []int{1, 2, 16} {
		for _, k := range []int{1, 5, 31} {
			s, queues, _ := wide(t, c, n, 1)
			groups := func(g group, prefix string) (all []group) {
				for _, q := range queues {
					g.queue, g.bodies = prefix+q, bodies(k)
					all = append(all, g)
				}
				return all
			}
			for _, row := range []struct {
				groups []group
				want   int
			}{
				{groups(group{}, ""), 3 + 3*n},
				{groups(group{delay: 5}, ""), 4 + 2*n},
				{append(groups(group{}, ""), groups(group{delay: 5}, "")...), 4 + 4*n},
				{groups(group{}, "new"), 4 + 5*n}, // the queue is registered, and whoever waits is told
				{groups(group{key: "k"}, ""), 4 + 6*n},
				{groups(group{key: "k"}, ""), 2 + 3*n}, // repeated
			} {
				keys, argv := s.publishCall(row.groups...)
				s.costs(luajob.Publish, keys, argv, row.want)
			}
			if k == 1 {
				keys, argv := s.publishCall(groups(group{id: "mine"}, "")...)
				s.costs(luajob.Publish, keys, argv, 3+6*n)
			}
		}
	}
}

func TestRedisCallsOfClaim(t *testing.T) {
	t.Parallel()
	c := server(t)
	for _, n := range []int{1, 2, 3} {
		for k, pieces := range map[int]int{1: 1, 16: 1, 17: 2, 144: 2, 145: 3} {
			s, queues, _ := wide(t, c, n, 400)
			var each []request
			for _, q := range queues {
				each = append(each, request{queues: []string{q}, count: k})
			}
			keys, argv, _ := s.claimCall("lane", "t", false, each...)
			s.costs(luajob.Claim, keys, argv, 4+2*pieces*n)
			keys, argv, _ = s.claimCall("lane", "t", true, each...)
			s.costs(luajob.Claim, keys, argv, 4+2*pieces*n+n)
			s.do("hset", s.key("attempts"), "somebody else", 1)
			s.put(queues[0], bodies(400)...)
			keys, argv, _ = s.claimCall("lane", "t", false, each[0])
			s.costs(luajob.Claim, keys, argv, 4+3*pieces)
		}
		s := newShard(t, c)
		keys, argv, each := s.claimCall("lane", "t", false, request{queues: []string{"a", "b", "c"}, count: 9})
		s.costs(luajob.Claim, keys, argv, 2+len(each)) // nothing is there
	}
}

func TestRedisCallsOfAck(t *testing.T) {
	t.Parallel()
	c := server(t)
	for _, n := range []int{1, 2, 16} {
		for _, k := range []int{1, 2, 300} {
			s, queues, seqs := wide(t, c, n, k)
			call := func() ([]string, []any) {
				argv := append([]any{n}, anys(queues)...)
				for i, q := range queues {
					argv = append(argv, i+1, k)
					for _, seq := range seqs[q] {
						argv = append(argv, seq)
					}
				}
				return s.common(queues...), argv
			}
			several := bit(k > 1)
			for _, q := range queues {
				s.claim(q, k)
			}
			keys, argv := call()
			s.costs(luajob.Ack, keys, argv, 4+(3+several)*n)
			for _, q := range queues {
				seqs[q] = s.put(q, bodies(k)...)
				s.claim(q, k)
				s.do("zremrangebyrank", s.key("delay"), 0, -1)
			}
			for _, q := range queues { // now the queues end
				s.do("del", s.key("j:"+q))
				record := []any{"hset", s.key("j:" + q)}
				for _, seq := range seqs[q] {
					record = append(record, seq, "0000000000000 3 x")
				}
				s.do(record...)
			}
			s.do("hset", s.key("attempts"), "somebody else", 1)
			keys, argv = call()
			s.costs(luajob.Ack, keys, argv, 4+(3+several+1+4)*n)
		}
	}
}

func TestRedisCallsOfSettle(t *testing.T) {
	t.Parallel()
	c := server(t)
	for verb, cost := range map[string]struct {
		ms                int64
		shared, each, job int
	}{
		"nack later": {5000, 9, 1, 0},
		"nack now":   {0, 8, 2, 0},
		"requeue":    {0, 6, 2, 0},
		"touch":      {5000, 6, 0, 0},
		"touch 40 7": {5000, 7, 2, 0},
		"bury":       {0, 7, 4, 2},
	} {
		for _, n := range []int{1, 2, 16} {
			for _, k := range []int{1, 2, 31} {
				s, queues, seqs := wide(t, c, n, 2*k)
				var jobs []settle
				for _, q := range queues {
					s.claim(q, k)
					for _, seq := range seqs[q][:k] {
						jobs = append(jobs, settle{q, seq, 1, regexp.MustCompile(` [a-z]*$`).ReplaceAllString(verb, ""), cost.ms})
					}
				}
				keys, argv := s.settleCall(jobs...)
				s.costs(luajob.Settle, keys, argv, cost.shared+cost.each*n+cost.job*n*k)
			}
		}
	}
}

// Where lapsed jobs are all that a list has, promote looks at its head, too.
func TestRedisCallsOfALapseIntoEmptyLists(t *testing.T) {
	t.Parallel()
	c := server(t)
	for _, n := range []int{1, 2, 16} {
		s, queues, seqs := wide(t, c, n, 2)
		var lapsed []due
		for _, q := range queues {
			s.claim(q, 2)
			s.past("lease", q, seqs[q]...)
			lapsed = append(lapsed, due{q, "lease", seqs[q]})
		}
		keys, argv := s.promoteCall(lapsed...)
		s.costs(luajob.Promote, keys, argv, 11+11*n)
	}
}

func TestRedisCallsOfPromoteAndRevert(t *testing.T) {
	t.Parallel()
	c := server(t)
	for _, n := range []int{1, 2, 16} {
		for _, k := range []int{1, 2, 31} {
			s, queues, seqs := wide(t, c, n, 2*k)
			var delayed, lapsed, heads []due
			for _, q := range queues {
				later := s.stored(group{queue: q, delay: 1000, bodies: bodies(k)})
				s.past("delay", q, later...)
				s.claim(q, k)
				s.past("lease", q, seqs[q][:k]...)
				delayed, lapsed = append(delayed, due{q, "delay", later}), append(lapsed, due{q, "lease", seqs[q][:k]})
				heads = append(heads, due{q, "head", nil})
				s.do("zadd", s.key("queues"), 1, q)
			}
			for _, row := range []struct {
				groups []due
				want   int
			}{{delayed, 9 + 2*n}, {lapsed, 11 + 2*n}, {heads, 7 + 9*n}} {
				keys, argv := s.promoteCall(row.groups...)
				s.costs(luajob.Promote, keys, argv, row.want)
			}
			var each []request
			for _, q := range queues {
				each = append(each, request{queues: []string{q}, count: k})
			}
			s.claimAll("lane", "t", each...)
			keys := []string{s.key("attempts"), s.key("lease"), s.key("out:lane")}
			for _, q := range queues {
				keys = append(keys, s.key("r:"+q))
			}
			s.costs(luajob.Revert, keys, append([]any{"t", s.channel(), "publish"}, anys(queues)...), 6+2*n)
		}
	}
}
