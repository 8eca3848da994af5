// Package lua holds every script that runs in Redis: one atomic verb a file.
//
//	produce  append entries, evict the overflow, mark the partition active
//	claim    lease the oldest entries, or take them under at-most-once
//	commit   settle the oldest part of a leased range, once
//	release  give a lease back until its back-off ends
//	repair   mend one partition for the janitor, drop what went stale in it
//	stats    describe one partition
//
// A file opens with its interface: what it does, KEYS, ARGV, every RETURNS and
// the includes it USES. header_test.go holds each file to that, so the prose
// stays true. Nothing here is known outside Redis: package partition spells the
// keys and turns replies into types, one Go caller a script.
//
// To add a script: write verb.lua with its header, name it in script.go, write
// its test on a real server, and its one caller in partition.
package lua
