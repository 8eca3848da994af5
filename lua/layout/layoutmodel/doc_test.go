// Package layoutmodel is the protocol of layouts as a model: what a namespace's shards, its record and
// the programs that use them do while the number of shards changes, without Redis.
//
//	record_test.go  what is recorded of layouts, and how two records join
//	shard_test.go   a shard: each method is one script
//	ingest_test.go, drain_test.go, operate_test.go  the programs: each gives up control at every call
//	queue_test.go, worker_test.go  the same of queues: their shards, and the programs
//	pools_test.go   layouts that lie in two pools, copies of the record, and how a process begins
//	world_test.go   processes that crash and stall, a network that loses, delays and refuses, and what must hold
//	walk_test.go    one walk, from its start until everything has run empty
//
// One difference from the scripts is meant: the model's gone fences, and the script answers that the shard is
// not fenced. Trimming is in the model and has no script yet.
package layoutmodel
