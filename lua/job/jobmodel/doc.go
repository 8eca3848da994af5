// Package jobmodel is the rules of lua/job once more, in Go, and a world around
// them: processes with lanes and long polls, clients, operators, time and faults.
// All of it is tests: nothing else needs it.
//
// A Shard is the model of one shard, on plain maps and slices. A World takes
// random steps on one or more shards and holds each against what it knows of
// every job from outside. The same walk runs on the model alone, where 100,000
// take some minutes, and beside the Lua scripts (see lua/job), where every reply
// and every key must be equal.
package jobmodel
