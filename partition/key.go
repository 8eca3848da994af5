package partition

import (
	"strings"
	"sync/atomic"

	"github.com/spillway-io/spillway/partition/space"
)

// Every Redis key of the buffer is spelled in this file only.
//
//	sw:{ns.N}:q:<partition>          list    entries, oldest first
//	sw:{ns.N}:ready                  zset    active partitions by due time, ms
//	sw:{ns.N}:m:<partition>          hash    sequences; the range and lease
//	sw:{ns.N}:ledger                 hash    exact totals, high-water mark, format, shards, epoch, pauses
//	sw:{ns.N}:dead                   list    dead letters, oldest first
//	sw:{ns.N}:dd:<partition>:<hash>  string  result of an idempotent produce
//
// The hash tag {ns.N} keeps a shard in one cluster slot. A name holds neither a brace
// nor a colon, so no two keys are equal and no caller chooses a slot.
type shard struct {
	*space.Shard // with the prefix "sw:{ns.N}:"
	ready, dead  string
	alarm        alarm
	// claimed is the length of the last answer to a claim, in bytes: the initial
	// capacity for the next one.
	claimed atomic.Int64
}

// The text between the prefix of a shard and the name of a partition.
const (
	listInfix = "q:"
	metaInfix = "m:"
)

func (sh *shard) list(partition string) string { return sh.Prefix + listInfix + partition }
func (sh *shard) meta(partition string) string { return sh.Prefix + metaInfix + partition }
func (sh *shard) produceResult(partition, hash string) string {
	return sh.Prefix + "dd:" + partition + ":" + hash
}

// partitionKeys matches the list and hash keys of every partition under prefix.
func partitionKeys(prefix string) string { return prefix + ":{*}:[qm]:*" }

// splitPartitionKey splits a key that partitionKeys matches.
func splitPartitionKey(key string) (shardPrefix, partition string, ok bool) {
	i := strings.Index(key, "}:") + len("}:")
	if i < len("}:") || len(key) < i+len("q:") {
		return "", "", false
	}
	partition = key[i+len("q:"):]
	return key[:i], partition, ValidPartition(partition)
}
