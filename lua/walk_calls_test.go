package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// eval runs a script.
func (w *walker) eval(script *redis.Script, keys []string, argv ...any) []any {
	v, err := script.Run(context.Background(), w.c, keys, argv...).Result()
	if err != nil {
		w.fail("%v", err)
	}
	return v.([]any)
}

// keys are those that all partitions of a call share, then those of each.
func (w *walker) keys(names ...string) []string {
	all := []string{w.ready(), w.ledger()}
	for _, name := range names {
		all = append(all, w.key("q:", name), w.key("m:", name))
	}
	return all
}

// someNames are the partitions of a call.
func (w *walker) someNames() []string {
	if w.inRound {
		return walkNames
	}
	return rapid.Permutation(walkNames).Draw(w.t, "partitions")[:rapid.IntRange(1, len(walkNames)).Draw(w.t, "how many")]
}

func (w *walker) same(what string, got, want any) {
	if g, wanted := fmt.Sprint(got), fmt.Sprint(want); g != wanted {
		w.fail("%s: got %s, want %s", what, g, wanted)
	}
}

// answers compares the values in a reply.
func (w *walker) answers(what string, got []any, want [][]any) {
	w.same(what, got, append([]any{w.m.ms()}, slices.Concat(want...)...))
}

// foreign puts a value of another type under one key of one partition, now and then,
// for one call. done removes it again.
func (w *walker) foreign(call []string, kinds ...string) (victim, kind string, done func()) {
	ctx := context.Background()
	if rapid.IntRange(0, 7).Draw(w.t, "a foreign value") != 0 {
		return "", "", func() {}
	}
	victim, kind = rapid.SampledFrom(call).Draw(w.t, "foreign of"), rapid.SampledFrom(kinds).Draw(w.t, "foreign kind")
	key, aside := w.key(kind, victim), w.prefix+"aside"
	w.c.Rename(ctx, key, aside) // fails where there is no key
	w.c.SAdd(ctx, key, "foreign")
	return victim, kind, func() {
		w.same("the foreign value", w.c.SMembers(ctx, key).Val(), []string{"foreign"})
		w.c.Del(ctx, key)
		w.c.Rename(ctx, aside, key)
	}
}

// rejection is the answer for a partition with a foreign value.
var rejection = []any{"WRONGTYPE Operation against a key holding the wrong kind of value"}

func (w *walker) entries(k int) (list []string, argv []any) {
	for range k {
		w.made++
		age := rapid.Int64Range(-10, modelMaxAge+100).Draw(w.t, "age")
		e := fmt.Sprintf("%013d e%d", w.m.ms()-age, w.made)
		if rapid.IntRange(0, 30).Draw(w.t, "form") == 0 {
			e = fmt.Sprintf("garbage%d", w.made)
		} else if rapid.IntRange(0, 7).Draw(w.t, "length") == 0 {
			e += strings.Repeat("x", 100)
		}
		list, argv = append(list, e), append(argv, e)
	}
	return list, argv
}

func (w *walker) produce(t *rapid.T) {
	call := w.someNames()
	if rapid.Bool().Draw(t, "one of them twice") {
		call = append(call, call[0])
	}
	argv := []any{w.m.capacity, w.m.full, modelLinger, w.m.maxActive, 120_000, w.m.maxKeys, 100, len(w.key("q:", "")) + 1}
	keys := w.keys()
	var want [][]any
	w.m.beginProduce()
	victim, _, done := w.foreign(call, "q:", "m:")
	for _, name := range call {
		list, args := w.entries(rapid.IntRange(1, 9).Draw(t, "k"))
		k, answer := len(list), func() []any {
			if name == victim {
				return rejection
			}
			return w.m.produce(w.m.parts[name], list)
		}
		keys = append(keys, w.key("q:", name), w.key("m:", name))
		if !w.inRound && rapid.IntRange(0, 3).Draw(t, "under a key") == 0 {
			id := name + rapid.SampledFrom([]string{":1", ":2", ":3"}).Draw(t, "key")
			keys, k = append(keys, w.key("dd:", id)), -k
			want = append(want, w.m.produceOnce(id, answer))
		} else {
			want = append(want, answer())
		}
		argv = append(append(argv, k), args...)
	}
	got := w.eval(w.sources["produce"], keys, argv...)
	done()
	w.answers("produce", got, want)
}

func (w *walker) release(t *rapid.T) {
	var argv []any
	var want [][]any
	all := []string{w.ready()}
	call := w.someNames()
	victim, _, done := w.foreign(call, "m:")
	defer done()
	for _, name := range call {
		p := w.m.parts[name]
		token := p.token
		if rapid.IntRange(0, 4).Draw(t, "what") == 0 {
			token = rapid.SampledFrom(w.used).Draw(t, "token")
		}
		delay := rapid.Int64Range(0, 300).Draw(t, "delay")
		if w.inRound {
			delay = 0 // the claim that follows gets it
		}
		attempt := rapid.Int64Range(-1, 3).Draw(t, "attempt")
		mask := ""
		if p.token != "" && (w.inRound || rapid.Bool().Draw(t, "some done")) {
			for seq := p.from; seq < p.to; seq++ {
				mask += rapid.SampledFrom([]string{"0", "1"}).Draw(t, "done")
			}
		}
		all = append(all, w.key("m:", name))
		argv = append(argv, name, token, delay, attempt, mask)
		if name == victim {
			want = append(want, rejection)
		} else {
			want = append(want, w.m.release(p, token, delay, attempt, mask))
		}
	}
	w.answers("release", w.eval(w.sources["release"], all, argv...), want)
}

func (w *walker) repair(t *rapid.T) {
	ahead := rapid.Int64Range(0, 250).Draw(t, "ahead")
	argv := []any{modelMaxAge, ahead}
	var want [][]any
	call := w.someNames()
	victim, _, done := w.foreign(call, "q:", "m:")
	defer done()
	for _, name := range call {
		argv = append(argv, name)
		if name == victim {
			want = append(want, rejection)
		} else {
			want = append(want, w.m.repair(name, ahead))
		}
	}
	w.answers("repair", w.eval(w.sources["repair"], w.keys(call...), argv...), want)
}

func (w *walker) discard(t *rapid.T) {
	left := w.c.LRange(context.Background(), w.dead(), 0, -1).Val()
	var letters []any
	var want []any
	for range rapid.IntRange(1, 3).Draw(t, "letters") {
		letter := rapid.SampledFrom(append(left, "none")).Draw(t, "letter")
		removed := int64(0)
		if i := slices.Index(left, letter); i >= 0 {
			left, removed = slices.Delete(left, i, i+1), 1
		}
		w.m.ledger["dead_kept"] -= removed
		letters, want = append(letters, rapid.IntRange(0, 9).Draw(t, "place"), letter), append(want, removed)
	}
	w.answers("discard", w.eval(w.sources["discard"], []string{w.dead(), w.ledger()}, letters...), [][]any{want})
}

func (w *walker) purge(t *rapid.T) {
	cutoff := w.m.ms() - rapid.Int64Range(-10, modelMaxAge).Draw(t, "age")
	if rapid.IntRange(0, 3).Draw(t, "all") == 0 {
		cutoff = 1e13
	}
	limit, drop := rapid.IntRange(1, 12).Draw(t, "limit"), rapid.IntRange(0, 3).Draw(t, "drop") > 0
	counted := 0
	if !drop {
		counted = rapid.IntRange(0, 3).Draw(t, "counted before")
	}
	argv := []any{cutoff, limit, 1 << 20, map[bool]int{true: 1}[drop], counted}
	var want [][]any
	call := w.someNames()
	victim, _, done := w.foreign(call, "q:", "m:")
	defer done()
	for _, name := range call {
		argv = append(argv, name)
		if name == victim {
			want = append(want, rejection)
		} else {
			want = append(want, w.m.purge(w.m.parts[name], cutoff, &limit, drop, counted))
		}
	}
	w.answers("purge", w.eval(w.sources["purge"], w.keys(call...), argv...), want)
}
