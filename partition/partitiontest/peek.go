package partitiontest

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// peeked is what a peek found, as text: depth, then sequence minus first and payload of each entry.
func (b *bench) peeked(r partition.PeekRequest, first int64) string {
	b.Helper()
	p, err := b.store.Peek(b.Context(), b.ns, "kart", r)
	b.is("peek", err, nil)
	text := fmt.Sprint(p.Depth)
	for _, e := range p.Entries {
		text += fmt.Sprintf(" %d:%s", e.Seq-first, e.Payload)
	}
	return text
}

func aPeekChangesNothing(b *bench) {
	b.open(nil)
	_, err := b.store.Peek(b.Context(), b.ns, "kart", partition.PeekRequest{Limit: 1})
	b.is("nothing there", err, partition.ErrNoPartition)
	b.produce("kart", b.entries(13))
	l := b.lease("kart", 1, time.Hour)
	oldest, newest := partition.PeekRequest{Limit: 3}, partition.PeekRequest{FromNewest: true, Limit: 3}
	b.same("the oldest", b.peeked(oldest, l.From), "10 0:4 1:5 2:6")
	b.same("the newest", b.peeked(newest, l.From), "10 7:11 8:12 9:13")
	b.same("all", b.peeked(partition.PeekRequest{Limit: 1000}, l.From), "10 0:4 1:5 2:6 3:7 4:8 5:9 6:10 7:11 8:12 9:13")
	b.same("none is one", b.peeked(partition.PeekRequest{}, l.From), "10 0:4")
	b.delivered(l, l.From, l.To)
	b.same("after a commit", b.peeked(oldest, l.From), "6 4:8 5:9 6:10")
	b.ledgerIs(partition.Ledger{Accepted: 13, Delivered: 4, Evicted: 3, Buffered: 6})
}

func aPeekIsBoundedInBytes(b *bench) {
	b.open(func(p *partition.Policy) { p.Capacity = 1000 })
	large := strings.Repeat("x", 100<<10)
	entries := b.entries(60)
	for i, e := range entries {
		if i%2 == 0 {
			entries[i] = append(e, large...)
		}
	}
	b.produce("kart", entries)
	for _, newest := range []bool{false, true} {
		p, err := b.store.Peek(b.Context(), b.ns, "kart", partition.PeekRequest{FromNewest: newest, Limit: 128})
		b.is("peek", err, nil)
		bytes := 0
		for _, e := range p.Entries {
			bytes += len(e.Payload)
		}
		if bytes < 900<<10 || bytes > 1<<20+len(large) || len(p.Entries) < 18 {
			b.Errorf("newest %v: got %d entries of %d bytes, want about 1 MiB", newest, len(p.Entries), bytes)
		}
	}
}
