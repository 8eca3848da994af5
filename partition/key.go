package partition

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spillway-io/spillway/partition/lifecycle"
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
//	sw:{ns.0}:history                list    a record a minute: see space.History
//	sw:{ns}:drainers                 zset    processes that serve the namespace: see package space
//
// The hash tag {ns.N-x} of shard N, {ns.0} of the first, keeps a shard in one cluster slot: see backend.ShardPrefix. A name holds neither a brace
// nor a colon, so no two keys are equal and no caller chooses a slot.
type shard struct {
	*space.Shard // with the prefix "sw:{ns.N}:"
	ns           *Namespace
	ready, dead  string
	alarm        alarm
	// claimed is the length of the last answer to a claim, in bytes: the initial
	// capacity for the next one.
	claimed atomic.Int64
	quiet   atomic.Bool // the last Due listed none that is due
}

// newShard is what this package keeps of a shard.
func newShard(ns *Namespace, at *space.Shard) *shard {
	sh := &shard{Shard: at, ns: ns, ready: at.Prefix + "ready", dead: at.Prefix + "dead"}
	sh.alarm.wake = lifecycle.NewSignal()
	return sh
}

func own(at *space.Shard) *shard { return at.Own.(*shard) }

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

// Names appear in URLs, Redis keys, file names and logs, so all kinds are a subset of
// ASCII that needs no escaping anywhere. They hold no brace, so the only hash tag of a
// key is that of its shard, and a caller cannot choose a cluster slot.
const (
	MaxNamespaceLen = 64  // bytes
	MaxPartitionLen = 128 // bytes

	maxQueueLen     = 255 // bytes
	maxScheduleLen  = 128
	maxAttributeLen = 128
)

// ValidNamespace reports whether s matches ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$.
func ValidNamespace[T string | []byte](s T) bool { return validName(s, MaxNamespaceLen, "") }

// ValidPartition reports whether s matches ^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$.
func ValidPartition[T string | []byte](s T) bool { return validName(s, MaxPartitionLen, "") }

// Outbox is the name of a queue that no caller can use: a shard has there the follow-ups of jobs that
// ended.
const Outbox = "_out"

// ValidQueue reports whether the store can keep jobs of a queue of that name for a caller:
// ^[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}$, and not Outbox.
func ValidQueue[T string | []byte](s T) bool { return string(s) != Outbox && ValidAnyQueue(s) }

// ValidAnyQueue is ValidQueue, but accepts Outbox.
func ValidAnyQueue[T string | []byte](s T) bool { return validName(s, maxQueueLen, "_-") }

// ValidOwnName is ValidQueue without a leading '_', which is Spillway's: the names of the native API.
func ValidOwnName(s string) bool { return ValidQueue(s) && s[0] != '_' }

// ValidScheduleName reports whether s matches ^[A-Za-z0-9-][A-Za-z0-9._-]{0,127}$.
func ValidScheduleName(s string) bool { return len(s) <= maxScheduleLen && ValidOwnName(s) }

// ValidAttribute reports whether s may name an attribute of a job: 1 to 128 letters, digits, '.', '_'
// and '-'.
func ValidAttribute(s string) bool {
	return validName(s, maxAttributeLen, "._-")
}

// reserved are the attributes that the service sets itself.
var reserved = []string{"shard_index", "shard_total", "schedule", "tick", "cause", "sqs"}

// ReservedAttribute reports whether the service sets an attribute itself, so that clients may not.
func ReservedAttribute(name string) bool { return slices.Contains(reserved, name) }

// validName: first are the characters beside letters and digits that may be the first.
func validName[T string | []byte](s T, maxLen int, first string) bool {
	if len(s) == 0 || len(s) > maxLen || !alphanumeric(s[0]) && strings.IndexByte(first, s[0]) < 0 {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !alphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// MaxZones is the most zones of a store: see space.MaxZones.
const MaxZones = space.MaxZones

// ZoneOf is the zone of a partition's shard, 0 to Zones-1. A zone is an even part of
// the slots of a Redis Cluster, so its shards are most likely on one master, and a slow
// master delays only its own zones. A partition never changes its zone.
// Any other store has a single zone.
func (n *Namespace) ZoneOf(partition string) int {
	if n.store == nil {
		return 0
	}
	return n.store.firstZone + n.shardOf(partition).Zone
}

// Zone is the zone of the shard that the lease was claimed in.
func (l *Lease) Zone() int {
	if l.Namespace.store == nil {
		return 0
	}
	return l.Namespace.store.firstZone + l.shard().Zone
}

// Zones is the number of zones, also of those that no shard is in.
func (s *Store) Zones() int { return s.space.Zones() }
