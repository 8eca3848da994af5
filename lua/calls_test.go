package lua_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
)

var callsLine = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// redisCalls are the Redis commands that run while f runs, without the
// EVALSHA that carries them.
func redisCalls(t *testing.T, c *redis.Client, f func()) (total int, each string) {
	t.Helper()
	ctx := context.Background()
	if err := c.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	f()
	text, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range callsLine.FindAllStringSubmatch(text, -1) {
		if m[1] == "evalsha" || m[1] == "config|resetstat" {
			continue
		}
		n, _ := strconv.Atoi(m[2])
		total += n
		each += " " + m[1] + "×" + m[2]
	}
	return total, each
}

// callsServer is a server of the test's own, which knows the scripts: its
// command statistics are the test's.
func callsServer(t *testing.T) *redis.Client {
	t.Helper()
	c := redistest.Start(t).Client()
	for _, s := range lua.All() {
		if err := c.ScriptLoad(context.Background(), s.Source).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// costs runs a call and compares its Redis calls. A sample of what a produce evicted,
// which comes in one ms of 64, costs two more.
func costs(t *testing.T, c *redis.Client, s *lua.Script, keys []string, argv []any, want int) {
	t.Helper()
	total, each := redisCalls(t, c, func() {
		reply, err := c.EvalSha(context.Background(), s.SHA, keys, argv...).Slice()
		if err != nil {
			t.Fatal(err)
		}
		if s == lua.Produce {
			_, samples := withoutSamples(reply)
			want += 2 * samples
		}
	})
	if total != want {
		t.Errorf("%s: got %d Redis calls, want %d:%s", s.Name, total, want, each)
	}
}

// wide is a shard whose partitions take 1,000 entries and whose batches are of 128; all that a claim gives fits.
func wide(t *testing.T, c *redis.Client, n int) group {
	g := partsIn(newPart(t, c), n)
	for _, p := range g {
		p.capacity, p.full, p.batch, p.maxActive, p.bytes = 1000, 128, 128, 100, 64<<20
	}
	return g
}

// A call costs what all its partitions share and, for each of them, a fixed
// number more, however many entries it brings.
func TestRedisCallsOfProduceDependOnPartitionsOnly(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for name, row := range map[string]struct{ before, shared, each int }{
		"new":             {0, 5, 4},
		"living":          {500, 4, 3},
		"full, k evicted": {1000, 4, 5},
	} {
		for _, n := range []int{1, 2, 16} {
			for _, k := range []int{1, 2, 5, 64, 127} {
				t.Run(fmt.Sprintf("%s, %d partitions, %d entries each", name, n, k), func(t *testing.T) {
					g := wide(t, c, n)
					if row.before > 0 {
						g.fill(row.before)
					}
					keys, argv := g.produceCall(k)
					costs(t, c, lua.Produce, keys, argv, row.shared+row.each*n)
				})
			}
		}
	}
}

// The partition whose batch a call completes is asked for its range, and one
// command makes all of them due. A batch that is full from the start costs nothing.
func TestRedisCallsOfTheProduceThatCompletesABatch(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for _, n := range []int{1, 2, 16} {
		for k, before := range map[int]int{1: 127, 128: 1} {
			g := wide(t, c, n)
			g.fill(before)
			keys, argv := g.produceCall(k)
			costs(t, c, lua.Produce, keys, argv, 5+4*n)
		}
		keys, argv := wide(t, c, n).produceCall(128)
		costs(t, c, lua.Produce, keys, argv, 5+4*n)
	}
}

// Under an idempotency key, its result and the number of keys are read and written; a repeat only reads the result.
func TestRedisCallsOfAnIdempotentProduce(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	p := wide(t, c, 1)[0]
	p.produce(p.fresh(1)...)
	keys, argv := append(p.keys(), p.seen), p.produceArgs(1, p.fresh(5)...)
	costs(t, c, lua.Produce, keys, argv, 4+3+3)
	costs(t, c, lua.Produce, keys, argv, 3+1)
}

// The usual life of a sparse partition: created with one entry, claimed, committed, ended.
func TestRedisCallsOfPartitionsWithOneEntry(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for _, n := range []int{1, 2, 16} {
		g := wide(t, c, n)
		g.fill(1)
		g.makeDue()
		keys, argv := g.claimCall("t1")
		costs(t, c, lua.Claim, keys, argv, 5+3*n)
		keys, argv = g.commitCall("t1")
		costs(t, c, lua.Commit, keys, argv, 6+2*n)
		for _, p := range g {
			p.same("the partition is gone", p.due(), -1)
		}
	}
}

// Claim and commit of a full batch, whatever the partition holds beyond it.
func TestRedisCallsOfClaimAndCommitDoNotDependOnDepth(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for _, n := range []int{1, 2, 16} {
		for _, depth := range []int{256, 900} {
			g := wide(t, c, n)
			g.fill(depth)
			keys, argv := g.claimCall("t1")
			costs(t, c, lua.Claim, keys, argv, 5+4*n)
			keys, argv = g.commitCall("t1")
			costs(t, c, lua.Commit, keys, argv, 5+6*n)
		}
	}
}

func TestRedisCallsOfRelease(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	for _, n := range []int{1, 2, 16} {
		g := wide(t, c, n)
		g.fill(1)
		g.makeDue()
		g.claim("t1")
		keys, argv := g.releaseCall("t1", "")
		costs(t, c, lua.Release, keys, argv, 3+3*n)
		g.makeDue()
		g.claim("t2")
		keys, argv = g.releaseCall("t2", "1")
		costs(t, c, lua.Release, keys, argv, 3+4*n)
	}
}

// Each verb has its keys and arguments apart, so that tests can spoil them, and
// calls with several partitions are made of them. Its reply for one partition is
// given as {code, now, values of the answer...}.

// several are the keys that all partitions of a call share, then those of each.
func (p *part) shared() []string { return []string{p.ready, p.ledger} }
func (p *part) own() []string    { return []string{p.q, p.m} }
func (p *part) keys() []string   { return append(p.shared(), p.own()...) }

// one is the reply of a call with one partition whose answer is values in the reply.
func one(reply []any) []any { return append([]any{reply[1], reply[0]}, reply[2:]...) }

func (p *part) produceShared() []any {
	return []any{p.capacity, p.full, p.linger, p.maxActive, int64(120_000), p.maxKeys, int64(64), len(p.q) - len(p.name) + 1}
}

func (p *part) produceOwn(keyed int, entries ...string) []any {
	argv := []any{len(entries) * (1 - 2*keyed)}
	for _, e := range entries {
		argv = append(argv, e)
	}
	return argv
}

func (p *part) produceArgs(keyed int, entries ...string) []any {
	argv := p.produceShared()
	for _, e := range entries {
		argv[6] = max(argv[6].(int64), int64(len(e)))
	}
	return append(argv, p.produceOwn(keyed, entries...)...)
}

func (p *part) produce(entries ...string) []any {
	p.t.Helper()
	return one(p.produceReply(p.keys(), p.produceArgs(0, entries...)))
}

func (p *part) produceOnce(entries ...string) []any {
	p.t.Helper()
	return one(p.produceReply(append(p.keys(), p.seen), p.produceArgs(1, entries...)))
}

// produceReply is a reply of produce without its samples, which come by the clock.
func (p *part) produceReply(keys []string, argv []any) []any {
	p.t.Helper()
	reply, _ := withoutSamples(p.must(lua.Produce, keys, argv...))
	return reply
}

// withoutSamples removes the samples from a reply of produce, and returns their number.
func withoutSamples(reply []any) (without []any, samples int) {
	for at := 1; at < len(reply); at++ {
		switch reply[at] {
		case int64(1), int64(2):
			at += 3
		case int64(3):
			reply[at] = int64(1)
			reply = slices.Delete(reply, at+4, at+5)
			samples++
			at += 3
		}
	}
	return reply, samples
}

// token is what the scripts know a lease by, for the name that a test gives it.
func (p *part) token(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%d.%s", p.lease, name)
}

func (p *part) claimShared(token string) []any {
	return []any{p.token(token), p.batch, p.batches, p.bytes, p.maxAge, p.full}
}

func (p *part) claimArgs(token string) []any { return append(p.claimShared(token), p.name) }

// claim returns {code, now, values}; of a lease code, now, expired, from, attempt, batches.
// What the sink has accepted of it is in p.done.
func (p *part) claim(token string) []any {
	p.t.Helper()
	reply := p.must(lua.Claim, p.keys(), p.claimArgs(token)...)
	answer := claimAnswers(reply)[0]
	if answer[0] == int64(2) {
		p.done = answer[4].(string)
		answer = slices.Delete(answer, 4, 5)
	}
	return slices.Insert(answer, 1, reply[0])
}

// claimAnswers are the answers in a reply to claim, leases in one form: 2, expired,
// from, attempt, done, and an array a batch.
func claimAnswers(reply []any) (answers [][]any) {
	for at := reply[1:]; len(at) > 0; {
		n := 1
		switch at[0] {
		case int64(0), int64(1), int64(5):
			n = 2
		case int64(2), int64(4):
			n = 6 + int(at[5].(int64))
		}
		answer := slices.Clone(at[:n])
		if n >= 6 {
			batches := answer[6:]
			if answer[0] == int64(2) {
				batches = []any{slices.Clone(batches)}
			}
			answer = append([]any{int64(2)}, append(answer[1:5:5], batches...)...)
		}
		answers = append(answers, answer)
		at = at[n:]
	}
	return answers
}

func (p *part) commitShared() []any { return []any{p.full, p.linger, p.maxDead, p.deadBytes} }

func (p *part) commitOwn(token string, lo, hi int64, counts [3]int64, letters ...string) []any {
	argv := []any{p.name, p.token(token), lo, hi, counts[1], counts[2]}
	for _, letter := range letters {
		argv = append(argv, letter)
	}
	return argv
}

func (p *part) commitArgs(token string, lo, hi int64, counts [3]int64, letters ...string) []any {
	return append(p.commitShared(), p.commitOwn(token, lo, hi, counts, letters...)...)
}

func (p *part) commitKeys(letters int) []string {
	if letters == 0 {
		return p.keys()
	}
	return append(p.keys(), p.dead)
}

func (p *part) commit(token string, lo, hi int64, counts [3]int64, letters ...string) []any {
	p.t.Helper()
	return one(p.must(lua.Commit, p.commitKeys(len(letters)), p.commitArgs(token, lo, hi, counts, letters...)...))
}

// delivered settles [lo, hi) as delivered.
func (p *part) delivered(token string, lo, hi int64) []any {
	p.t.Helper()
	return p.commit(token, lo, hi, [3]int64{hi - lo, 0, 0})
}

func (p *part) releaseKeys() []string { return []string{p.ready, p.m} }

func (p *part) releaseArgs(token string, delay, attempt int64) []any {
	return []any{p.name, p.token(token), delay, attempt, ""}
}

func (p *part) release(token string, delay, attempt int64) []any {
	p.t.Helper()
	return one(p.must(lua.Release, p.releaseKeys(), p.releaseArgs(token, delay, attempt)...))
}

// releaseDone releases at once what the sink accepted in part.
func (p *part) releaseDone(token, done string) []any {
	p.t.Helper()
	return one(p.must(lua.Release, p.releaseKeys(), p.name, p.token(token), 0, 1, done))
}

func (p *part) repairArgs() []any {
	return []any{p.maxAge, int64(600_000), p.name}
}

func (p *part) repair() []any {
	p.t.Helper()
	return one(p.must(lua.Repair, p.keys(), p.repairArgs()...))
}

func (p *part) statsKeys() []string { return append([]string{p.ready}, p.own()...) }

// stats returns {depth, now, leased, age, accepted, evicted, expired}; without entries {0, now}.
func (p *part) stats() []any {
	p.t.Helper()
	reply := p.must(lua.Stats, p.statsKeys(), p.name)
	if len(reply) == 2 {
		return one(reply)
	}
	p.same("code", reply[1], 1)
	return append([]any{reply[2], reply[0]}, reply[3:8]...)
}
