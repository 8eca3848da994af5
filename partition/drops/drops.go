// Package drops keeps samples of the entries that were not stored or not delivered,
// so that "why was my event dropped?" has an answer. The totals are exact for this
// process; the samples are the latest few of each namespace and reason.
package drops

import (
	"slices"
	"time"
)

// A Reason says why an entry was dropped. The list is closed.
type Reason string

// Entries that were stored.
const (
	Evicted Reason = "evicted" // the oldest of a full partition made room for a new one
	Expired Reason = "expired" // older than max_age before a sink took it
	Dead    Reason = "dead"    // the sink rejected it for good; a dead letter holds it
	Failed  Reason = "failed"  // at-most-once: settled, then not accepted by the sink
	Lost    Reason = "lost"    // something other than Spillway removed it from Redis
	Purged  Reason = "purged"  // an operator removed it
)

// Delivered is no drop: a sample of what a sink accepted, so that "where is my event?" has an
// answer as well. It is not among Reasons, and in no query but its own.
const Delivered Reason = "delivered"

// Entries and requests that ingest rejected.
const (
	Stale             Reason = "stale"
	TooLarge          Reason = "too_large"
	BadTS             Reason = "bad_ts"
	BadID             Reason = "bad_id"
	BadPartition      Reason = "bad_partition"
	BadItem           Reason = "bad_item"
	Filtered          Reason = "filtered" // by a transform, as the next three
	Sampled           Reason = "sampled"
	Emptied           Reason = "emptied"
	Unreadable        Reason = "unreadable"
	BadRequest        Reason = "bad_request" // a request that cannot be read; the detail is its error code
	Unauthorized      Reason = "unauthorized"
	TooManyPartitions Reason = "too_many_partitions"
	TooManyKeys       Reason = "too_many_keys"
	RateLimited       Reason = "rate_limited"
	Overloaded        Reason = "overloaded"
	ShuttingDown      Reason = "shutting_down"
	StoreUnavailable  Reason = "store_unavailable"
	StoreFull         Reason = "store_full"
	Unknown           Reason = "unknown"          // the store did not confirm: the entries may be stored
	ClientDiscarded   Reason = "client_discarded" // a client discarded them before it sent them
)

// reasons lists them all. Those from Stale on are ingest's.
var reasons = []Reason{
	Evicted, Expired, Dead, Failed, Lost, Purged,
	Stale, TooLarge, BadTS, BadID, BadPartition, BadItem, Filtered, Sampled, Emptied, Unreadable, BadRequest, Unauthorized, TooManyPartitions, TooManyKeys,
	RateLimited, Overloaded, ShuttingDown, StoreUnavailable, StoreFull, Unknown, ClientDiscarded,
}

// Reasons returns the closed list of reasons.
func Reasons() []Reason { return slices.Clone(reasons) }

// Rejection reports whether ingest rejected the entries, so that they were never
// stored. ClientDiscarded is none: this server never saw the entries.
func (r Reason) Rejection() bool {
	at := slices.Index(reasons, r)
	return at >= slices.Index(reasons, Stale) && r != ClientDiscarded
}

// A Drop is a sample: one entry, or several of one partition that were dropped at once.
type Drop struct {
	At        time.Time // on the clock of this process; zero in Record: now
	Namespace string    // set by Record
	Reason    Reason
	Partition string        // empty: not known
	ID        string        // the client's id, of one of the entries; empty: none, or not known
	Age       time.Duration // of the same entry; 0: not known
	Entries   int           // 1 or more
	Detail    string        // why, in a few words; Record cuts it to 300 bytes
}
