package check

import (
	"fmt"
	"time"
)

// law is C1: the ledger of every shard against a count of its lists, taken at
// one moment, and each list against its sequences.
func (r *run) law() {
	var shards, lists tally
	for _, s := range r.Samples {
		l := s.Ledger
		held := l["accepted"] - l["delivered"] - l["evicted"] + l["reclaimed"] - l["expired"] - l["dead"] - l["lost"]
		var counted int64
		for _, p := range s.Partitions {
			counted += p.Length
			if p.Known && p.Length != p.Tail-p.Head || !p.Known && p.Length > 0 {
				lists.add("%s has %d entries, its sequences say %d", p.Partition, p.Length, p.Tail-p.Head)
			}
		}
		if held != counted {
			shards.add("shard %d: the ledger says %d buffered, the lists hold %d", s.Shard, held, counted)
		}
	}
	r.failAll("C1", shards, "samples of a shard break the law")
	r.failAll("C1", lists, "samples of a partition break LLEN = tail - head")
	f := r.Final
	if f.Residual != 0 {
		r.fail("C1", "the audit at the end has a residual of %d", f.Residual)
	}
	if sum := f.Ledger.Delivered + f.Ledger.Evicted + f.Ledger.Expired + f.Ledger.Dead + f.Ledger.Lost + f.Ledger.Buffered; sum != f.Ledger.Accepted {
		r.fail("C1", "accepted %d, but the classes sum up to %d", f.Ledger.Accepted, sum)
	}
	if l := f.Ledger; min(l.Accepted, l.Delivered, l.Evicted, l.Expired, l.Dead, l.Buffered) < 0 {
		r.fail("C1", "a class is below 0: %+v", l)
	}
	if f.Ledger.Lost != 0 {
		r.fail("C1", "%d are counted lost, and nobody deleted keys", f.Ledger.Lost)
	}
	if f.Ledger.Dead != f.DeadLetters+f.DeadEvicted {
		r.fail("C1", "%d are counted dead, but there are %d letters and %d evicted", f.Ledger.Dead, f.DeadLetters, f.DeadEvicted)
	}
}

// outer is C2: the store's account against the clients'. Where the store may
// forget, the servers must say that it did.
func (r *run) outer() {
	acks, accepted := int64(len(r.acked)), r.Final.Ledger.Accepted
	switch {
	case accepted >= acks:
	case r.Policy.Forgets && !r.Policy.Replicated && r.sum(`spillway_store_rolled_back_entries_total{pool="default"}`) == 0:
		r.fail("C2", "%d acknowledged, only %d accepted, and no server noticed", acks, accepted)
	case !r.Policy.Forgets || r.Policy.Replicated:
		r.fail("C2", "%d acknowledged, only %d accepted: %d are gone", acks, accepted, acks-accepted)
	}
	if most := acks + int64(r.unknown); accepted > most {
		r.fail("C2", "%d accepted, but at most %d were sent (%d acknowledged, %d unknown)", accepted, most, acks, r.unknown)
	}
}

// stepsBack reports whether a ledger counts less in a sample than in one before: a failover lost writes.
func (r *run) stepsBack() bool {
	back := false
	last := map[string]int64{}
	count := func(kind string, shard int, ledger map[string]int64, fields ...string) {
		for _, field := range fields {
			key := fmt.Sprint(kind, shard, field)
			back = back || ledger[field] < last[key]
			last[key] = ledger[field]
		}
	}
	for _, s := range r.Samples {
		count("partitions ", s.Shard, s.Ledger, "accepted", "delivered", "evicted", "expired", "dead")
	}
	if r.Jobs != nil {
		for _, s := range r.Jobs.Samples {
			count("jobs ", s.Shard, s.Ledger, "published", "acked", "expired", "deleted")
		}
	}
	return back
}

// pauses is C15. What was leased when a pause began is still delivered, and a process that was frozen
// may send what it was about to.
func (r *run) pauses() {
	if r.Policy.Forgets {
		return
	}
	var shown tally
	for _, p := range r.Pauses {
		if !p.Listed {
			r.fail("C15", "the pause of %s is not listed any more after %v", p.Partition, p.To.Sub(p.From).Round(time.Millisecond))
		}
		for i := range r.Posts {
			post := &r.Posts[i]
			after := post.At.Sub(p.From)
			if post.Partition == p.Partition && after > r.Policy.Lease+tolerance && post.At.Before(p.To) && !r.thawing(post.Worker, post.At) {
				shown.add("%v, %v after it was paused", post, after.Round(time.Millisecond))
			}
		}
	}
	r.failAll("C15", shown, "batches were presented of a paused partition")
}

// namespaces is C13 and C14. It counts keys, because ready jobs and buffered entries are what a
// ledger has left.
func (r *run) namespaces() {
	for _, n := range r.All {
		l := n.Ledger
		stated := l["buffered"] + l["delayed"] + l["leased"]
		if ready, jobs := l["ready"]; jobs {
			stated += ready + l["dead"]
		}
		if n.Counted != stated {
			r.fail("C13", "%s: the ledger says %d, the keys hold %d", n.Name, stated, n.Counted)
		}
		if len(n.Sent) == 0 || r.Policy.Forgets {
			continue
		}
		presented, kept := map[uint64]int{}, map[uint64]bool{}
		for _, p := range n.Posts {
			for _, line := range p.Lines {
				presented[line.Data.UID]++
				kept[line.Data.UID] = kept[line.Data.UID] || p.Kept
			}
		}
		var outcomes [Acked + 1]int64
		var twice, missing tally
		for _, s := range n.Sent {
			if outcomes[s.Outcome]++; s.Outcome == Acked && !kept[s.UID] {
				missing.add("uid %d of %s", s.UID, s.Partition)
			}
			if times := presented[s.UID]; times > 1 {
				twice.add("uid %d of %s, %d times", s.UID, s.Partition, times)
			}
		}
		if acked := outcomes[Acked]; l["accepted"] < acked || l["accepted"] > acked+outcomes[Unknown] {
			r.fail("C14", "%s: accepted %d, but %d were acknowledged and %d are unknown", n.Name, l["accepted"], acked, outcomes[Unknown])
		}
		if n.Once {
			r.failAll("C14", twice, "entries that go out at most once were presented again")
		} else if int64(missing.n) > l["evicted"]+l["expired"]+l["dead"]+l["buffered"] {
			r.failAll("C14", missing, "entries did not arrive, more than the ledger has")
		}
	}
}

// deliveries is C6. What the sink took and the ledger does not call delivered
// was evicted, expired or rejected before it could be settled.
func (r *run) deliveries() {
	l := r.Final.Ledger
	if l.Delivered > int64(r.taken) {
		r.fail("C6", "%d counted delivered, the sink took %d", l.Delivered, r.taken)
	}
	if r.Policy.Forgets {
		return
	}
	if most := l.Delivered + l.Evicted + l.Expired + l.Dead + l.Lost + l.Buffered; int64(r.taken) > most {
		r.fail("C6", "the sink took %d, the ledger knows of %d", r.taken, most)
	}
}
