package partitiontest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// letter is a dead letter as the drain writes it.
func letter(name string, seq int64, payload string) []byte {
	return fmt.Appendf(nil, `{"namespace":"default","partition":%q,"seq":%d,"ts":1763629675100,"id":"order-%d","batch":"b","attempt":2,%s,"reason":"rejected","error":"422 no such lap","detail":"more"}`+"\n",
		name, seq, seq%10, payload)
}

// bury makes n dead letters of a partition, oldest first.
func (b *bench) bury(name string, n int) (letters [][]byte) {
	b.Helper()
	b.produce(name, b.entries(n))
	for len(letters) < n {
		l := b.lease(name, 1, time.Hour)
		var some [][]byte
		for i := range l.Entries {
			some = append(some, letter(name, l.From+int64(i), fmt.Sprintf(`"data":{"n":%s}`, l.Entries[i].Payload)))
		}
		b.is("commit", b.commit(&partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Dead: len(some), DeadLetters: some}), nil)
		letters = append(letters, some...)
	}
	return letters
}

// written is a letter as bury made it, without the time that the store added.
func written(l partition.Letter) []byte {
	return bytes.Replace(l.Raw, fmt.Appendf(nil, `,"dead_at":%d}`, l.DeadAt), []byte("}"), 1)
}

// deadLetters reads all pages; between calls after each.
func (b *bench) deadLetters(limit int, between func()) (all []partition.Letter) {
	b.Helper()
	cursor := ""
	for pages := 0; ; pages++ {
		page, err := b.store.DeadLetters(b.Context(), b.ns, cursor, limit)
		if err != nil || len(page.Letters) > limit || pages > 1000 {
			b.Fatalf("page %d: %d letters, %v", pages, len(page.Letters), err)
		}
		all = append(all, page.Letters...)
		if cursor = page.Next; cursor == "" {
			return all
		}
		between()
	}
}

func deadLettersAreListed(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards, p.Batch = 4, 8 })
	b.same("nothing there", len(b.deadLetters(3, func() {})), 0)
	before := b.now()
	want := map[int][][]byte{} // by shard, newest first
	for i := range 5 {
		name := fmt.Sprint("p", i)
		for _, raw := range b.bury(name, 8) {
			shard := b.ns.ShardOf(name)
			want[shard] = append([][]byte{raw}, want[shard]...)
		}
	}
	for _, limit := range []int{1, 3, 8, 500} {
		list, got := b.deadLetters(limit, func() {}), map[int][][]byte{}
		for _, l := range list {
			got[l.Shard] = append(got[l.Shard], written(l))
			if l.DeadAt < before || l.DeadAt > b.now() {
				b.Errorf("dead at %d, want the time of its commit", l.DeadAt)
			}
		}
		b.same("letters by shard", got, want)
		for _, l := range []partition.Letter{list[0], list[len(list)-1]} {
			found, err := b.store.DeadLetter(b.Context(), b.ns, l.ID)
			b.is("by its id", err, nil)
			b.same("by its id", fmt.Sprintf("%+v", found), fmt.Sprintf("%+v", l))
		}
	}
	_, err := b.store.DeadLetter(b.Context(), b.ns, "0123456789abcdef")
	b.is("an unknown id", err, partition.ErrNoLetter)
	for _, cursor := range []string{"x", "1", ".", "9.1", "-1.1", "0.0", "0.x", "0.1.2"} {
		var field *partition.FieldError
		if _, err := b.store.DeadLetters(b.Context(), b.ns, cursor, 1); !errors.As(err, &field) {
			b.Errorf("cursor %q: got %v, want a *FieldError", cursor, err)
		}
	}
}

// Letters that come and go between two pages hide no other.
func aListOfDeadLettersMissesNone(b *bench) {
	b.open(func(p *partition.Policy) { p.Batch, p.MaxDead = 10, 45 })
	old := append(b.bury("p", 10), b.bury("p", 10)...)
	old = append(old, append(b.bury("p", 10), b.bury("p", 10)...)...)
	pages := 0
	list := b.deadLetters(4, func() {
		switch pages++; pages {
		case 2:
			b.bury("q", 10) // the list drops 5
		case 5:
			all := b.deadLetters(100, func() {})
			_, err := b.store.Discard(b.Context(), b.ns, all[20:25])
			b.is("discard", err, nil)
		}
	})
	for i, raw := range old {
		if i >= 5 && !slices.ContainsFunc(list, func(l partition.Letter) bool { return bytes.Equal(written(l), raw) }) {
			if kept := b.deadLetters(100, func() {}); slices.ContainsFunc(kept, func(l partition.Letter) bool { return bytes.Equal(written(l), raw) }) {
				b.Errorf("letter %d was in no page", i)
			}
		}
	}
}

func deadLettersAreDiscarded(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 2 })
	b.bury("p1", 4)
	b.bury("p2", 4)
	list := b.deadLetters(10, func() {})
	removed, err := b.store.Discard(b.Context(), b.ns, list[1:6])
	b.is("discard", err, nil)
	b.same("removed", removed, 5)
	removed, err = b.store.Discard(b.Context(), b.ns, list)
	b.is("discard", err, nil)
	b.same("of which were left", removed, 3)
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("kept", []int64{o.DeadLetters, o.DeadBytes, o.DeadEvicted}, []int64{0, 0, 0})
	b.ledgerIs(partition.Ledger{Accepted: 8, Dead: 8})
}

func deadLettersAreReplayed(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 2 })
	b.bury("p1", 4)
	b.bury("p2", 4)
	list := b.deadLetters(10, func() {})
	slices.Reverse(list)
	before := b.now()
	for range 2 {
		for i, o := range b.store.Replay(b.Context(), b.ns, list) {
			b.is("replay", o.Err, nil)
			b.same("id", o.ID, list[i].ID)
		}
	}
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("kept", o.DeadLetters, 0)
	b.ledgerIs(partition.Ledger{Accepted: 16, Dead: 8, Buffered: 8})
	l := b.lease("p1", 1, time.Hour)
	b.same("payloads", payloads(l), `[{"n":1} {"n":2} {"n":3} {"n":4}]`)
	for i, e := range l.Entries {
		if e.Occurred < before || string(e.ID) == "" {
			b.Errorf("entry %d: got %+v, want the time of the replay and the id", i, e)
		}
	}
}
