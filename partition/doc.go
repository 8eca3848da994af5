// Package partition is the store: it keeps the newest entries of each partition on
// Redis, hands them out under leases, and counts every one.
//
// A namespace is a tenant with its own settings and its own ledger. It is divided into
// shards, each of which lives in one slot of a Redis Cluster. A shard holds partitions,
// and a partition is a list of entries, oldest first, that drops its oldest entry when
// it is full. A drainer claims a partition: it gets a lease on the oldest entries, as
// one range that is cut into batches. It writes the batches to a sink, and commits the
// range or releases it. The ledger counts each entry in exactly one class:
//
//	accepted = delivered + evicted + expired + dead + lost + buffered
//
// The way of an entry through the keys of one shard; every arrow is one atomic script:
//
//	  Produce                    Claim                    Commit
//	     │                         │                        │
//	     ▼                         ▼                        ▼
//	┌─ q:<partition> ─────────────────────────────────────────────┐
//	│ list     oldest ◀─── range [from, to) ───▶ … newest         │──▶ evicted, expired,
//	└─────────────────────────────────────────────────────────────┘    delivered, dead, lost
//	┌─ m:<partition> ─────────────────────────────────────────────┐
//	│ hash     head tail birth · from to cuts attempt done token  │
//	└─────────────────────────────────────────────────────────────┘
//	┌─ ready ────────────────────┐  ┌─ dead ──────────────────────┐
//	│ zset     partition → due   │  │ list     dead letters       │
//	└────────────────────────────┘  └─────────────────────────────┘
//	┌─ ledger ────────────────────────────────────────────────────┐
//	│ hash     accepted delivered evicted … format shards epoch   │
//	└─────────────────────────────────────────────────────────────┘
//
// Produce appends to the list and sets the due time. Due reads the partitions that are
// due. Claim writes the range and the token into the hash, and moves the due time to
// the end of the lease; the entries stay in the list. Commit removes settled entries
// from the list, writes dead letters, and adds to the ledger. Release ends the lease;
// the range waits for its back-off and is presented again. The janitor repairs what no
// other script meets, and expires entries of partitions that nobody drains.
//
// Package lua holds the scripts; lua/DESIGN.md states their invariants. DESIGN.md of
// this package says what is not obvious about the store.
//
// # Glossary
//
// What is stored:
//
//	namespace      a tenant: settings, a sink and a ledger of its own
//	shard          a part of a namespace whose keys share one cluster slot
//	partition      the entries of one source, by name: a list that keeps its newest entries
//	entry          one event: its time, an optional id, and the payload
//	sequence       the position of an entry in its partition; it never repeats
//	capacity       the most entries that a partition keeps
//	idempotency key  makes a repeated produce return the first result and store nothing
//	dead letter    the record of a dead entry, kept in a list of the shard
//	active set     the zset ready: partitions that have entries, by due time
//	due            the time when a drainer should claim a partition, ms on the store's clock
//	epoch          a random name of a ledger; another epoch means that the ledger began anew
//	foreign value  a value under one of the store's keys that Spillway did not write
//
// How entries leave:
//
//	batch          up to 128 entries of one partition in order, written to a sink at once
//	linger         how long a batch that is not full waits for more entries
//	range          the consecutive entries that a claim took: sequences [from, to)
//	cut            the end of a batch inside a range; it stays when the range is presented again
//	lease          the right to a range for a limited time
//	token          the random text that proves who holds a lease
//	presentation   one lease of a range; the attempt counts them
//	claim          take a lease
//	commit         settle the oldest part of a range
//	release        end a lease without settling; the range waits, and is presented again
//	settle         move an entry to its final class: delivered, expired or dead
//	drainer        a process that claims, writes to sinks and settles
//	lane           a queue of ingest: it collects requests and sends them with one Produce
//	zone           a twelfth of the cluster's slots; what is sent together stays in one zone
//	headless list  a list whose hash is lost; a script adopts it
//	adopt          give a headless list a new hash
//	repair         what the janitor does to a partition whose keys do not agree
//	replay         produce the entry of a dead letter again, and discard the letter
//	discard        remove a dead letter
//	purge          drop entries of a partition or of a namespace, for an operator
//	janitor        the background component that repairs partitions and expires entries
//	pause          delivery of a partition or a namespace is stopped, by an operator, until it is resumed
//	put off        what a claim does to a paused partition: it comes due again later
//
// Classes of the ledger:
//
//	accepted       stored by a produce, or pushed by something other than Spillway
//	delivered      a sink accepted the entry
//	evicted        dropped because its partition was full and a newer entry came, or by a purge
//	purged         dropped by an operator; evicted includes it
//	reclaimed      evicted while leased, and settled by its commit after all
//	expired        dropped because it was older than the maximum age
//	dead           the sink rejected it for good; a dead letter holds it
//	lost           removed from Redis by something other than Spillway
//	buffered       still in its partition
//	ledger         the exact totals of these classes, in Redis
//	residual       what Audit finds: buffered by the ledger, minus the entries in the lists
//	rollback       the store lost its newest writes, entries and ledger together
package partition
