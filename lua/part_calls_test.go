package lua_test

import (
	"fmt"
	"slices"

	"github.com/spillway-io/spillway/lua"
)

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
