package lua_test

import (
	"fmt"

	"pgregory.net/rapid"
)

func (w *walker) claim(t *rapid.T) {
	token := fmt.Sprintf("%d.t%d", modelLease, len(w.used))
	w.used = append(w.used, token)
	batches := rapid.Int64Range(1, 3).Draw(t, "batches")
	bytes := rapid.SampledFrom([]int64{1 << 20, 8 << 10, 6 << 10, 4 << 10}).Draw(t, "bytes")
	argv := []any{token, w.batch, batches, bytes, modelMaxAge, w.m.full}
	call := w.someNames()
	for _, name := range call {
		argv = append(argv, name)
	}
	victim, _, done := w.foreign(call, "q:", "m:")
	got := w.eval(w.sources["claim"], w.keys(call...), argv...)
	done()
	answered := claimAnswers(got)
	w.same("answers of claim", len(answered), len(call))
	// Only Redis knows what fits into little room, so the model asks it how much that was:
	// it may be less than a w.batch for the first partition that is read, and beside stale entries.
	var want [][]any
	read := false
	for i, name := range call {
		p := w.m.parts[name]
		due := p.active && p.due <= w.m.ms() && w.m.pauses["*"] == ""
		answer := answered[i]
		tight := bytes < 1<<20 && len(answer) > 0
		switch {
		case tight && answer[0] == int64(3) && due && read:
			want = append(want, answer)
			continue
		case due && name == victim:
			want = append(want, refusal)
			continue
		}
		fits := int64(1 << 20)
		if tight && answer[0] == int64(2) {
			fits = 0
			for _, list := range answer[5:] {
				fits += int64(len(list.([]any)))
			}
			if read && answer[1] == int64(0) {
				fits = max(fits, w.batch)
			}
		}
		want = append(want, w.m.claim(name, token, w.batch, batches, fits))
		read = read || due
	}
	w.same("time", got[0], w.m.ms())
	w.same("claim", answered, want)
	w.checkSequences(call, answered)
}

// checkSequences checks that a sequence is never used for two entries.
func (w *walker) checkSequences(call []string, answered [][]any) {
	for i, name := range call {
		answer := answered[i]
		if answer[0] != int64(2) {
			continue
		}
		seq := answer[2].(int64)
		for _, b := range answer[5:] {
			for _, e := range b.([]any) {
				ref := fmt.Sprintf("%s/%d", name, seq)
				if old, ok := w.bySequence[ref]; ok && old != e.(string) && !w.ambiguous[name] {
					w.fail("sequence %s was %q and is %q", ref, old, e)
				}
				w.bySequence[ref] = e.(string)
				seq++
			}
		}
	}
}

func (w *walker) commit(t *rapid.T) {
	argv := []any{w.m.full, modelLinger, modelDead, 1 << 20}
	var call []string
	var want [][]any
	letters := false
	some := w.someNames()
	victim, kind, done := w.foreign(some, "q:", "m:")
	defer done()
	for _, name := range some {
		p := w.m.parts[name]
		token, lo, hi := p.token, p.from, p.to
		switch rapid.IntRange(0, 8).Draw(t, "what") {
		case 0:
			token = rapid.SampledFrom(w.used).Draw(t, "token")
		case 5:
			if last, ok := w.settled[name]; ok {
				lo, hi = last[0], last[1]
			}
		case 1:
			lo += rapid.Int64Range(-2, 2).Draw(t, "lo")
		case 2, 3, 4:
			if len(p.cuts) > 0 {
				hi = rapid.SampledFrom(p.cuts).Draw(t, "hi")
			}
		}
		if lo < 0 || lo >= hi || hi-lo > 100 {
			continue
		}
		expired := rapid.Int64Range(0, hi-lo).Draw(t, "expired")
		gone := rapid.Int64Range(0, hi-lo-expired).Draw(t, "dead")
		// What the sink accepted before is delivered: the holder says so.
		expired = min(expired, hi-lo-p.accepted(lo, hi))
		gone = min(gone, hi-lo-expired-p.accepted(lo, hi))
		argv = append(argv, name, token, lo, hi, expired, gone)
		for i := range gone {
			argv = append(argv, fmt.Sprintf("dead %d", lo+i))
			letters = true
		}
		call = append(call, name)
		w.settled[name] = [2]int64{lo, hi}
		switch {
		case name == victim && kind == "m:", name == victim && p.token != "" && p.token == token:
			want = append(want, refusal)
		default:
			want = append(want, w.m.commit(p, token, lo, hi, hi-lo-expired-gone, expired, gone))
		}
	}
	if len(call) == 0 {
		return
	}
	all := w.keys(call...)
	if letters {
		all = append(all, w.dead())
	}
	w.answers("commit", w.eval(w.sources["commit"], all, argv...), want)
}
