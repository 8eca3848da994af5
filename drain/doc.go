// Package drain moves entries from the store to the sinks.
//
// A Drainer claims what is due, hands each lease to a worker of its namespace,
// and settles what became of every entry:
//
//	store.Due ─▶ claimer ─▶ store.Claim ─▶ lease worker ─▶ sink guard ─▶ sink.Write
//	     ▲     (one a shard)              (pool a namespace)    │
//	     └──────────── store.Settle ◀── settler ◀── account ◀──┘
//
// An entry of a lease ends in exactly one of delivered, expired and dead, in a
// commit that names its sequence, or stays buffered for a later attempt:
//
//	d, err := drain.New(drain.DefaultConfig(), store, []drain.Target{{
//		Namespace: store.Namespace("default"), Sink: out, Label: "stdout:",
//	}}, registry, log)
//	…
//	err = d.Start(ctx)
//	defer d.Stop(ctx)
//
// Words of this package, beside those of package partition:
//
//	room          one of three parts: claimers, lease worker, sink guard (DESIGN.md)
//	slot          the right to hold one more lease; a namespace has as many as workers can start at once, a
//	              coalescing one as many as fill two Writes
//	unit          what goes into one Write: one batch, several of one lease, or part of a rejected one
//	pace          how long the sink lately took for a Write: a moving average
//	minLife       the life an entry must have left to be worth a Write: about twice the pace
//	trial         a Write of entries with less life than minLife, made to learn the pace again
//	probe         a claim that a tripped breaker lets through to learn whether the sink answers
//	tripped       the breaker saw only failures, and lets nothing but probes through
//	fenced        rejected by the store, because another drainer has the lease now
//	group         pending Writes of several leases that go out in one Write, where the sink coalesces
//	member        one of them
//	suspect       a partition whose Write failed in a group, so that it may be the cause
//	poison entry  the entry for which the sink rejects its batch; bisecting finds it
//
// DESIGN.md holds the invariants, the failure table and what a sink may see
// twice.
package drain
