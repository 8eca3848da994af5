package partitiontest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition"
)

var holdOn = partition.Pause{By: "alice", Reason: `the "sink" moves`}

func (b *bench) pause(name string) {
	b.Helper()
	err := b.store.Pause(b.Context(), b.ns, name, holdOn)
	if errors.Is(err, partition.ErrUnknown) { // a connection broke: it may be repeated
		err = b.store.Pause(b.Context(), b.ns, name, holdOn)
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
		b.same("paused", []any{p.Partition, p.By, p.Reason}, []any{partitions[i], holdOn.By, holdOn.Reason})
		if age := time.Duration(b.now()-p.Since.UnixMilli()) * time.Millisecond; age < -time.Second || age > 2*most {
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
	b.same("the oldest", payloads(b.lease("kart", 1, time.Hour)), "[3 4 9 10]")
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
	b.same("the rest", payloads(b.lease("kart", 1, time.Hour)), "[4 5]")
}

func pausesAreBounded(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 2 })
	for i := range partition.MaxPauses {
		b.pause(fmt.Sprint("p", i))
	}
	b.is("one more", b.store.Pause(b.Context(), b.ns, "more", holdOn), partition.ErrTooManyPauses)
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
