// Package job is the store of durable jobs: queues that keep each job until it is acked,
// expires by its own TTL, or is deleted. Nothing is evicted.
//
//	store, err := job.Open(job.Config{Prefix: "sw", Namespaces: policies}, backend, metrics, log)
//	lane, mail := store.NewLane(), store.Namespace("mail")
//	p := &job.Publish{Namespace: mail, Queue: "out", Shard: mail.Shards("out")[0], Tries: 3, Messages: messages}
//	c := &job.Claim{Namespace: mail, Queues: []string{"out"}, TTR: time.Minute, Count: 10}
//	store.Run(ctx, lane, &job.Batch{Publishes: []*job.Publish{p}, Claims: []*job.Claim{c}})
//
// A job is ready, prepared, delayed, leased or dead. A claim leases ready jobs, for a time to
// run (TTR). Who holds a job acks it, gives it back for later (nack), gives it up (bury),
// leases it for longer (touch), or gives it back uncounted (requeue). A lease that lapses ends
// as a nack does. After as many claims as its tries allow, a job becomes a dead letter. An
// operator respawns or deletes those.
//
//	publish ─delay▶ delayed ─due▶ ready ─claim▶ leased ─ack▶ gone
//	                   ▲           ▲  ▲            │
//	                   └─ nack ────│──┴─ lapse ────┤
//	                               └─ respawn ─ dead ◀─ tries used up, bury
//
// A prepared job is ready once its publisher commits it; a rollback deletes it.
//
// DESIGN.md says how it works and what it costs.
package job
