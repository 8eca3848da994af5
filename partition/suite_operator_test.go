package partition_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// purge runs a request that must succeed.
func (b *bench) purge(r partition.PurgeRequest) partition.PurgeResult {
	b.Helper()
	result, err := b.store.Purge(b.Context(), b.ns, r)
	b.is("purge", err, nil)
	return result
}

// purged checks the ledger's part that purges wrote.
func (b *bench) purged(want int64) {
	b.Helper()
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("purged", o.Purged, want)
}

func aPurgeDropsWhatIsOld(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 3 })
	for i := range 20 {
		name := fmt.Sprint("p", i)
		b.produce(name, append(b.aged(i%4, 10*time.Minute), b.entries(2)...))
	}
	request := partition.PurgeRequest{OlderThan: 5 * time.Minute, DryRun: true}
	want := partition.PurgeResult{Entries: 30, Partitions: 15, Complete: true}
	b.same("dry run", b.purge(request), want)
	b.ledgerIs(partition.Ledger{Accepted: 70, Buffered: 70})
	request.DryRun = false
	b.same("purge", b.purge(request), want)
	b.same("again", b.purge(request), partition.PurgeResult{Complete: true})
	b.ledgerIs(partition.Ledger{Accepted: 70, Evicted: 30, Buffered: 40})
	b.purged(30)
	b.same("one partition", b.purge(partition.PurgeRequest{Partition: "p3"}), partition.PurgeResult{Entries: 2, Partitions: 1, Complete: true})
	b.same("nothing there", b.purge(partition.PurgeRequest{Partition: "p3"}), partition.PurgeResult{Complete: true})
	b.same("all", b.purge(partition.PurgeRequest{}), partition.PurgeResult{Entries: 38, Partitions: 19, Complete: true})
	b.ledgerIs(partition.Ledger{Accepted: 70, Evicted: 70})
	b.purged(70)
	b.produce("p3", b.entries(4))
	b.same("nothing is left behind", b.lease("p3", 1, time.Hour).Attempt, 1)
}

func aPurgeHasALimit(b *bench) {
	b.open(func(p *partition.Policy) { p.Capacity = 3000 })
	for range 3 {
		b.produce("deep", b.aged(1000, time.Minute))
	}
	b.produce("p", b.aged(5, time.Minute))
	for _, dry := range []bool{true, false} {
		for _, age := range []time.Duration{0, time.Second} {
			if dry {
				r := partition.PurgeRequest{OlderThan: age, Limit: 3005, DryRun: true}
				b.same("all", b.purge(r), partition.PurgeResult{Entries: 3005, Partitions: 2, Complete: true})
			}
			for _, limit := range []int64{1, 1400} {
				r := partition.PurgeRequest{OlderThan: age, Limit: limit, DryRun: dry}
				got := b.purge(r)
				b.same(fmt.Sprintf("%+v", r), []any{got.Entries, got.Complete}, []any{limit, false})
			}
		}
	}
	left := int64(3005 - 2802)
	b.same("as many as are left", b.purge(partition.PurgeRequest{Limit: left}).Complete, true)
	b.ledgerIs(partition.Ledger{Accepted: 3005, Evicted: 3005})
}

func aPurgeLeavesLeasesAlone(b *bench) {
	b.open(nil)
	b.produce("held", b.entries(6))
	b.produce("lapsed", b.entries(6))
	b.produce("free", b.entries(6))
	held := b.lease("held", 1, time.Hour)
	lapsed := b.lease("lapsed", 1, 10*time.Millisecond)
	b.await(b.Context(), "lapsed")
	b.same("purge", b.purge(partition.PurgeRequest{}), partition.PurgeResult{Entries: 12, Partitions: 2, Leased: 1, Complete: true})
	b.delivered(held, held.From, held.To)
	b.is("commit after the lease", b.commit(&partition.Commit{Lease: lapsed, Lo: lapsed.From, Hi: lapsed.To, Delivered: 4}), partition.ErrGone)
	b.ledgerIs(partition.Ledger{Accepted: 18, Delivered: 4, Evicted: 12, Buffered: 2})
}

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
	b.same("payloads", texts(l), `[{"n":1} {"n":2} {"n":3} {"n":4}]`)
	for i, e := range l.Entries {
		if e.Occurred < before || string(e.ID) == "" {
			b.Errorf("entry %d: got %+v, want the time of the replay and the id", i, e)
		}
	}
}

var sinkMoves = partition.Pause{By: "alice", Reason: `the "sink" moves`}

func (b *bench) pause(name string) {
	b.Helper()
	err := b.store.Pause(b.Context(), b.ns, name, sinkMoves)
	if errors.Is(err, partition.ErrUnknown) { // a connection broke: it may be repeated
		err = b.store.Pause(b.Context(), b.ns, name, sinkMoves)
	}
	b.is("pause", err, nil)
}

func (b *bench) resume(name string, want bool) {
	b.Helper()
	was, err := b.store.Resume(b.Context(), b.ns, name)
	b.same("resume "+name, []any{was, err}, []any{want, nil})
}

// claims are what claims of the partitions are answered: leased, idle, or why not.
func (b *bench) claims(names ...string) (answers []string) {
	b.Helper()
	for _, name := range names {
		switch c := b.claim(name, 1, time.Hour); {
		case c.Lease != nil:
			b.is("release", b.release(&partition.Release{Lease: c.Lease}), nil)
			answers = append(answers, "leased")
		case c.Paused == partition.PartitionPaused:
			answers = append(answers, "partition paused")
		case c.Paused == partition.NamespacePaused:
			answers = append(answers, "namespace paused")
		default:
			answers = append(answers, "idle")
		}
	}
	return answers
}

func (b *bench) pausesAre(all bool, partitions ...string) {
	b.Helper()
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("overview", []any{o.Paused != nil, o.PausedPartitions}, []any{all, len(partitions)})
	if all {
		partitions = append([]string{""}, partitions...)
	}
	list, err := b.store.Pauses(b.Context(), b.ns)
	b.is("pauses", err, nil)
	b.same("how many", len(list), len(partitions))
	for i, p := range list {
		b.same("paused", []any{p.Partition, p.By, p.Reason}, []any{partitions[i], sinkMoves.By, sinkMoves.Reason})
		if age := time.Duration(b.now()-p.Since.UnixMilli()) * time.Millisecond; age < -time.Second || age > 2*patience {
			b.Errorf("paused since %v ago", age)
		}
	}
}

func aPausedPartitionIsNotLeased(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(4))
	b.produce("ski", b.entries(4))
	b.pausesAre(false)
	b.pause("kart")
	b.pause("empty")
	b.pausesAre(false, "empty", "kart")
	b.same("claims", b.claims("kart", "kart", "ski", "empty"), []string{"partition paused", "idle", "leased", "idle"})
	b.produce("kart", b.entries(8)) // evicts 2
	b.same("claim of what is produced meanwhile", b.claims("kart"), []string{"idle"})
	b.ledgerIs(partition.Ledger{Accepted: 16, Evicted: 2, Buffered: 14})
	b.resume("empty", true)
	b.resume("empty", false)
	b.resume("kart", true)
	b.pausesAre(false)
	b.same("the oldest", texts(b.lease("kart", 1, time.Hour)), "[3 4 9 10]")
}

func aPausedNamespaceIsNotLeased(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 3 })
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	for _, name := range names {
		b.produce(name, b.entries(4))
	}
	held := b.lease("a", 1, time.Hour)
	b.pause("b")
	b.pause("")
	b.pause("") // as after a lost reply
	b.pausesAre(true, "b")
	for _, name := range names {
		b.same("claim of "+name, b.claims(name), []string{"namespace paused"})
	}
	b.delivered(held, held.From, held.To)
	b.ledgerIs(partition.Ledger{Accepted: 28, Delivered: 4, Buffered: 24})
	b.resume("", true)
	b.resume("", false)
	b.pausesAre(false, "b")
	b.same("claims", b.claims("b", "c", "g"), []string{"partition paused", "leased", "leased"})
}

func pausedEntriesExpire(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxAge, p.Linger = time.Hour, 0 })
	b.pause("kart")
	b.produce("kart", append(b.aged(3, 2*time.Hour), b.entries(2)...))
	c := b.claim("kart", 1, time.Hour)
	b.same("claim", []any{c.Lease == nil, c.Expired, c.Paused}, []any{true, 3, partition.PartitionPaused})
	b.ledgerIs(partition.Ledger{Accepted: 5, Expired: 3, Buffered: 2})
	b.resume("kart", true)
	b.same("the rest", texts(b.lease("kart", 1, time.Hour)), "[4 5]")
}

func pausesAreBounded(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 2 })
	for i := range partition.MaxPauses {
		b.pause(fmt.Sprint("p", i))
	}
	b.is("one more", b.store.Pause(b.Context(), b.ns, "more", sinkMoves), partition.ErrTooManyPauses)
	b.pause("p7")
	b.pause("")
	b.resume("p7", true)
	b.pause("more")
	o, err := b.store.Overview(b.Context(), b.ns)
	b.same("paused", []any{o.PausedPartitions, o.Paused.By, err}, []any{partition.MaxPauses, "alice", nil})

	for name, p := range map[string]partition.Pause{
		"no name": {}, "kart": {By: strings.Repeat("x", 129)}, "ski": {Reason: strings.Repeat("x", 513)},
	} {
		var wrong *partition.FieldError
		if err := b.store.Pause(b.Context(), b.ns, name, p); !errors.As(err, &wrong) {
			b.Errorf("pause %q: got %v", name, err)
		}
	}
	var wrong *partition.FieldError
	if _, err := b.store.Resume(b.Context(), b.ns, "*"); !errors.As(err, &wrong) {
		b.Errorf("resume *: got %v", err)
	}
}

func pausesOutliveAProcess(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(4))
	b.pause("kart")
	b.pause("")
	b.restart()
	b.pausesAre(true, "kart")
	b.same("claim", b.claims("kart"), []string{"namespace paused"})
	b.resume("", true)
	b.same("claim", b.claims("kart"), []string{"partition paused"})
	b.resume("kart", true)
	b.same("claim", b.claims("kart"), []string{"leased"})
}

func anotherProcessObeysAPause(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(4))
	other := b.another(map[string]partition.Policy{"default": b.ns.Policy})
	ns := other.Namespace("default")
	claim := func() partition.ClaimResult {
		return other.Claim(b.Context(), []partition.ClaimRequest{{Namespace: ns, Partition: "kart", MaxBatches: 1}}, time.Hour)[0]
	}
	b.pause("")
	b.same("the namespace", claim().Paused, partition.NamespacePaused)
	b.resume("", true)
	b.pause("kart")
	b.same("the partition", claim().Paused, partition.PartitionPaused)
	b.resume("kart", true)
	b.same("leased", claim().Lease != nil, true)
}
