// Package job holds the scripts of durable jobs: one atomic verb per file.
//
//	publish    store jobs, ready or delayed
//	claim      hand ready jobs out, each under a lease
//	ack        remove jobs whose work is done
//	settle     nack, bury, requeue or touch jobs that are leased
//	revert     take back a claim with an unknown outcome
//	promote    make ready what is due, and again ready or dead what lapsed
//	respawn    make dead letters ready again, or delete them
//	purge      delete jobs of a queue
//	expire     drop jobs whose ttl is over where nothing else meets them; audit
//	peek       read the next ready job
//	get        read one job and its state
//	counts     count the jobs of queues by state
//	dead_page  read dead letters
//	ledger     read the totals of a shard
//
// and permission_probe, which tries every command that a store needs.
//
// The contract of a file is that of package lua, whose includes and loader it shares.
// DESIGN.md tells keys, costs and invariants. Package partition/job spells the keys.
// Import it as luajob.
package job
