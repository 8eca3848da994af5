package lua_test

import (
	"fmt"

	"pgregory.net/rapid"
)

// pausable is a partition of the walk, one that never has entries, or all of them. Of
// these the last is the rarest: it hides what the others do.
func (w *walker) pausable(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c", "a", "b", "c", "none", "*"}).Draw(t, "what is paused")
}

func (w *walker) pause(t *rapid.T) {
	name, since := w.pausable(t), int64(0)
	if rapid.Bool().Draw(t, "said since when") {
		since = w.m.ms() - rapid.Int64Range(-5, 5).Draw(t, "since")
	}
	w.made++
	text := fmt.Sprint("why ", w.made)
	maxPaused := rapid.IntRange(1, 4).Draw(t, "most")
	got := w.eval(w.sources["pause"], []string{w.ledger()}, name, since, text, maxPaused)
	w.answers("pause", got, [][]any{w.m.pause(name, text, since, maxPaused)})
}

func (w *walker) resume(t *rapid.T) {
	name := w.pausable(t)
	keys := []string{w.ready(), w.ledger()}
	if name != "*" {
		keys = append(keys, w.key("m:", name))
	}
	w.answers("resume", w.eval(w.sources["resume"], keys, name), [][]any{w.m.resume(name)})
}
