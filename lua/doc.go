// Package lua holds the scripts of buffers that run in Redis: one atomic verb per file.
// Package lua/job holds those of queues, and lua/php those over the queues of PHP's
// libraries; both use the loader and includes of this one.
//
//	produce           append entries, evict the overflow, make partitions due
//	claim             expire stale entries, lease the oldest entries
//	commit            settle the oldest part of a leased range, once
//	release           end a lease; its range waits and is presented again
//	repair            repair partitions for the janitor, expire their stale entries
//	purge             drop the oldest entries, for an operator
//	discard           remove dead letters, for an operator
//	page              list active partitions
//	stats             describe partitions
//	pause             stop the drain of a partition or of a namespace
//	resume            end a pause
//	peek              read a few entries or dead letters
//	permission_probe  try every command that a store needs
//
// The first five take several partitions of one shard per call. Each partition has
// its own answer, in the order of the call, so a rejection affects that partition only.
// A bad argument rejects the whole call.
//
// A file opens with its interface: what it does, KEYS, ARGV, every RETURNS, and the
// functions of include/ that it USES. header_test.go compares each file with its header. Nothing
// here knows anything outside Redis: package partition spells the keys and turns
// replies into types, with one Go caller per script.
//
// To add a script, write verb.lua with its header, name it in script.go, test it on a
// real server, and give it one caller in partition. The hash of a partition is written
// by few includes: create_meta and read_meta for its fields, end_range for the fields
// of a range. A new field belongs there.
package lua
