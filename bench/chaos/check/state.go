package check

import "fmt"

// capacity is C9 as far as a sample shows it.
func (r *run) capacity() {
	var over tally
	for _, s := range r.Samples {
		for _, p := range s.Partitions {
			if p.Length > int64(r.Policy.Capacity) {
				over.add("%s has %d, its capacity is %d", p.Partition, p.Length, r.Policy.Capacity)
			}
		}
	}
	r.failAll("C9", over, "samples show more than the capacity")
}

// liveness is C10.
func (r *run) liveness() {
	var orphans, ghosts tally
	for _, s := range r.Samples {
		for _, p := range s.Partitions {
			if p.Length > 0 && !p.Active {
				orphans.add("%s with %d entries", p.Partition, p.Length)
			}
			if p.Length == 0 && p.Active {
				ghosts.add("%s", p.Partition)
			}
		}
	}
	r.failAll("C10", orphans, "samples show a partition with entries that is not active")
	r.failAll("C10", ghosts, "samples show an active partition without entries")
	if n := r.Final.Ledger.Buffered; n != 0 {
		r.fail("C10", "%d entries are still buffered long after the last fault", n)
	}
	if left := r.Final.Leftover; len(left) > 0 {
		r.fail("C10", "%d traces of partitions are left, such as %s", len(left), left[0])
	}
}

// What an idle process may have more than at its birth: workers that fasthttp
// keeps for a while, connections to Redis, buffers in pools.
//
// Goroutines: a process is born when its port answers. Of role all it has 21 to 46
// then. Right after a run it has up to 119: what begins later, such as lanes, settlers
// and links to Redis, and workers that end when they have been idle for 10 to 20 s,
// 24 of fasthttp and 44 of the drains of four namespaces.
// A goroutine left behind by each request would be thousands. All of that is per master.
const (
	moreGoroutines = 84
	moreFiles      = 48
	moreHeap       = 24 << 20
)

// leaks is C11 for the processes that lived to the end.
func (r *run) leaks() {
	for _, p := range r.Processes {
		if p.Alive && p.Garbage {
			for _, leak := range p.Leaks() {
				r.fail("C11", "%s: %s", p.Name, leak)
			}
		}
	}
}

// Leaks says what an idle process still has more of than when it was ready.
func (p *Process) Leaks() (leaks []string) {
	for _, limit := range []struct {
		metric string
		more   float64
	}{
		{"go_goroutines", moreGoroutines * max(1, p.Masters)},
		{"process_open_fds", moreFiles * max(1, p.Masters)},
		{"go_memstats_heap_inuse_bytes", moreHeap},
	} {
		if was, is := p.Birth[limit.metric], p.Last[limit.metric]; is > was+limit.more {
			leaks = append(leaks, fmt.Sprintf("%s was %.0f when it started and is %.0f with nothing to do", limit.metric, was, is))
		}
	}
	return leaks
}

// sum is a counter over all lives of all processes.
func (r *run) sum(name string) (n int64) {
	for _, p := range r.Processes {
		n += int64(p.Last[name])
	}
	return n
}

// metrics is C11 for the counters. One process knows less than the ledger, never
// more, for it counts what the store confirmed. Where every process lived to the
// end, what it could not confirm is all the difference.
func (r *run) metrics() {
	const of = `{namespace="default",outcome="`
	whole := len(r.Processes) > 0
	for _, p := range r.Processes {
		whole = whole && p.Alive && !p.Afresh
		if n := p.Last[`spillway_ingest_panics_total`] + p.Last[`spillway_drain_panics_total{namespace="default"}`]; n > 0 {
			r.fail("C11", "%s panicked %.0f times", p.Name, n)
		}
	}
	unconfirmed := r.sum(`spillway_drain_entries_total` + of + `unconfirmed"}`)
	l := r.Final.Ledger
	// A janitor does not say whose entries it drops, so all namespaces are one sum.
	expired, stale := r.sum(`spillway_store_janitor_expired_total{pool="default"}`)+r.sum(`spillway_drain_entries_total`+of+`expired"}`), l.Expired
	for _, n := range r.All {
		if len(n.Sent) > 0 {
			expired += r.sum(`spillway_drain_entries_total{namespace="` + n.Name + `",outcome="expired"}`)
			stale += n.Ledger["expired"]
		}
	}
	for _, row := range []struct {
		class           string
		counted, ledger int64
	}{
		{"accepted", r.sum(`spillway_ingest_entries_total{namespace="default",result="accepted"}`), l.Accepted},
		{"delivered", r.sum(`spillway_drain_entries_total` + of + `delivered"}`), l.Delivered},
		{"expired", expired, stale},
		{"dead", r.sum(`spillway_drain_entries_total` + of + `dead"}`), l.Dead},
	} {
		if row.counted > row.ledger {
			r.fail("C11", "metrics count %d %s, the ledgers %d", row.counted, row.class, row.ledger)
		}
		slack := unconfirmed
		if row.class == "accepted" {
			// A keyed repeat of what a server did not know counts as repeated.
			slack = int64(r.unknown) + r.sum(`spillway_ingest_entries_total{namespace="default",result="unknown"}`)
		}
		if whole && row.class != "expired" && row.counted+slack < row.ledger {
			r.fail("C11", "metrics count %d %s and %d in doubt, the ledger %d", row.counted, row.class, slack, row.ledger)
		}
	}
}

// void is C12: a run in which too little happened proves nothing.
func (r *run) void() {
	planned := 0
	for _, f := range r.Faults {
		if f.Target != Machine {
			planned++
		}
	}
	for _, floor := range []struct {
		what      string
		got, want int
	}{
		{"acknowledged entries", len(r.acked), r.Floor.Acks},
		{"entries of unknown outcome", r.unknown, r.Floor.Unknowns},
		{"entries taken by the sink", r.taken, r.Floor.Taken},
		{"faults", planned, r.Floor.Faults},
	} {
		if floor.got < floor.want {
			r.fail("C12", "void: %d %s, at least %d are needed", floor.got, floor.what, floor.want)
		}
	}
	if len(r.Samples) == 0 {
		r.fail("C12", "void: no sample of the store")
	}
}
