// Package lua holds every script that runs in Redis: one atomic verb a file.
//
//	produce  append entries, evict the overflow, make partitions due
//	claim    drop what went stale, lease the oldest entries
//	commit   settle the oldest part of a leased range, once
//	release  give a lease back until its back-off ends
//	repair   repair partitions for the janitor, drop what went stale in them
//	stats    describe one partition
//	canary   try every command that a store needs
//
// The first five take several partitions of one shard a call. Each partition has
// its own answer, in the order of the call: what is refused concerns that
// partition only. A call with a bad argument is refused whole.
//
// A file opens with its interface: what it does, KEYS, ARGV, every RETURNS and
// the includes it USES. header_test.go holds each file to that, so the prose
// stays true. Nothing here is known outside Redis: package partition spells the
// keys and turns replies into types, one Go caller a script.
//
// To add a script: write verb.lua with its header, name it in script.go, write
// its test on a real server, and its one caller in partition.
package lua
