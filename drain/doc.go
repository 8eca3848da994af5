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
// DESIGN.md holds the invariants, the failure table and what a sink may see
// twice.
package drain
