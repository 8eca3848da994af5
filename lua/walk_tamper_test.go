package lua_test

import (
	"context"
	"slices"

	"pgregory.net/rapid"
)

// These steps do what something other than Spillway may do to the keys.

func (w *walker) pick() (string, *modelPart) {
	name := rapid.SampledFrom(walkNames).Draw(w.t, "partition")
	return name, w.m.parts[name]
}

func (w *walker) tamper(name string, p *modelPart) {
	if p.known && p.tail-p.head != int64(len(p.entries)) {
		w.ambiguous[name] = true
	}
}

func (w *walker) entriesVanish(t *rapid.T) {
	name, p := w.pick()
	n := min(rapid.IntRange(1, 4).Draw(t, "n"), len(p.entries))
	if !p.known || p.lacks != "" {
		return // nothing knows how many there were
	}
	w.tamper(name, p)
	w.c.LTrim(context.Background(), w.key("q:", name), int64(n), -1)
	p.entries = p.entries[n:]
}

func (w *walker) listVanishes(*rapid.T) {
	name, p := w.pick()
	if !p.known || p.lacks != "" {
		return
	}
	w.c.Del(context.Background(), w.key("q:", name))
	p.entries = nil
}

func (w *walker) hashVanishes(*rapid.T) {
	name, p := w.pick()
	if len(p.entries) == 0 || !p.active || p.tail-p.head != int64(len(p.entries)) {
		return // two losses at once cannot be told apart
	}
	w.ambiguous[name] = true // the clock may step back before it is adopted
	w.c.Del(context.Background(), w.key("m:", name))
	*p = modelPart{entries: p.entries, active: p.active, due: p.due}
}

func (w *walker) hashLosesAField(t *rapid.T) {
	name, p := w.pick()
	if len(p.entries) == 0 || !p.known || p.lacks != "" || !p.active || p.tail-p.head != int64(len(p.entries)) {
		return
	}
	w.ambiguous[name] = true
	p.lacks = rapid.SampledFrom([]string{"head", "tail"}).Draw(t, "field")
	w.c.HDel(context.Background(), w.key("m:", name), p.lacks)
}

func (w *walker) memberVanishes(*rapid.T) {
	name, p := w.pick()
	if !p.known || p.lacks != "" {
		return // adopting without hash or member would count twice
	}
	w.c.ZRem(context.Background(), w.ready(), name)
	p.active, p.due = false, 0
}

func (w *walker) anotherProgramPushes(*rapid.T) {
	name, p := w.pick()
	if (!p.known || p.lacks != "") && p.active {
		return // the hash is lost: pushed entries cannot be told from the others
	}
	w.tamper(name, p)
	w.c.RPush(context.Background(), w.key("q:", name), "0 pushed")
	p.entries = append(slices.Clone(p.entries), "0 pushed")
}
