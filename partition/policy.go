package partition

import (
	"errors"
	"time"

	"github.com/spillway-io/spillway/partition/space"
)

// Delivery is what happens to a leased batch when its drainer dies.
type Delivery string

const (
	// AtLeastOnce settles a range after the sink accepted it. After a crash in
	// between, the same range is delivered again. The default.
	AtLeastOnce Delivery = "at-least-once"
	// AtMostOnce settles each batch right before its write. A crash loses the
	// batch, and "delivered" means handed to the sink.
	AtMostOnce Delivery = "at-most-once"
)

// Policy is the settings of one namespace. The defaults are those of DefaultPolicy; a
// zero field is not replaced by its default. Validate, and so Open, returns a
// *FieldError for each value outside its bounds.
type Policy struct {
	// Capacity is how many entries a partition keeps, the newest: 1 to 10,000,000;
	// default 10000.
	Capacity int
	// MaxAge is how old an entry may become; an older one expires: 100ms to 12h;
	// default 3m.
	MaxAge time.Duration
	// Batch is the most entries of a batch: 1 to 128; default 128.
	Batch int
	// Linger is how long a batch that is not full waits for more entries: 0s to
	// MaxAge; default 1s.
	Linger time.Duration
	// Delivery is AtLeastOnce or AtMostOnce; default at-least-once.
	Delivery Delivery
	// Shards is how many groups of keys the namespace has, each in one cluster slot:
	// 1 to 1024, fixed at first use; default 1. With AutoShards the store decides: four a
	// master of a cluster, 1 elsewhere; or as many as it has already.
	Shards int
	// MaxPartitions is how many partitions may have entries, over all shards: 1 to
	// 10,000,000; default 100000. A produce to a further one gets ErrTooManyPartitions.
	MaxPartitions int
	// MaxKeys is how many idempotency keys the namespace remembers, over all shards: 1 to
	// 1,000,000,000; default 1000000. A produce under a further one gets ErrTooManyKeys.
	MaxKeys int
	// MaxDead is how many dead letters a shard keeps, the newest: 1 to 1,000,000;
	// default 10000.
	MaxDead int
	// MaxDeadBytes is how many bytes of dead letters a shard keeps, the newest: 1 MiB
	// to 1 TiB; default 64 MiB.
	MaxDeadBytes int64
}

// MaxBatch is the upper bound of Policy.Batch.
const MaxBatch = 128

const maxShards = space.MaxShards

// AutoShards is the Policy.Shards of a namespace whose shards the store decides.
const AutoShards = space.Auto

// maxPartitions is the upper bound of Policy.MaxPartitions. A partition with one small
// entry takes 0.8 kB of Redis, so this many take 8 GB. It is far below 2^53, where
// numbers in scripts are no longer exact.
const maxPartitions = 10_000_000

// DefaultPolicy returns the defaults of all fields.
func DefaultPolicy() Policy {
	return Policy{
		Capacity: 10_000, MaxAge: 3 * time.Minute, Batch: MaxBatch, Linger: time.Second,
		Delivery: AtLeastOnce, Shards: 1, MaxPartitions: 100_000, MaxKeys: 1_000_000, MaxDead: 10_000,
		MaxDeadBytes: 64 << 20, // what 10,000 letters of 6.7 kB need
	}
}

// Validation collects what is wrong with settings, so that one look shows all of it.
type Validation struct{ errs []error }

// Check adds a *FieldError unless ok.
func (v *Validation) Check(ok bool, field string, value any, want string) {
	if !ok {
		v.errs = append(v.errs, Wrong(field, value, want))
	}
}

// Err is nil or all errors, joined.
func (v *Validation) Err() error { return errors.Join(v.errs...) }

// Validate returns a *FieldError for each unusable setting, joined.
func (p Policy) Validate() error {
	var v Validation
	v.Check(p.Capacity >= 1 && p.Capacity <= 10_000_000, "capacity", p.Capacity, "1 to 10000000 entries")
	// With less, entries go stale between produce and claim.
	v.Check(p.MaxAge >= 100*time.Millisecond && p.MaxAge <= 12*time.Hour, "max_age", p.MaxAge,
		"100ms to 12h: what is worth keeping for longer belongs in a log")
	v.Check(p.Batch >= 1 && p.Batch <= MaxBatch, "batch", p.Batch, "1 to 128 entries")
	v.Check(p.Linger >= 0 && p.Linger <= p.MaxAge, "linger", p.Linger,
		"0s to max_age, or entries expire while they wait")
	v.Check(p.Delivery == AtLeastOnce || p.Delivery == AtMostOnce, "delivery", p.Delivery,
		"at-least-once or at-most-once")
	v.Check(p.Shards >= 1 && p.Shards <= maxShards || p.Shards == AutoShards, "shards", p.Shards,
		"1 to 1024, or auto")
	v.Check(p.MaxPartitions >= 1 && p.MaxPartitions <= maxPartitions, "max_partitions", p.MaxPartitions,
		"1 to 10000000, over all shards")
	v.Check(p.MaxKeys >= 1 && p.MaxKeys <= 1_000_000_000, "max_keys", p.MaxKeys,
		"1 to 1000000000, over all shards")
	v.Check(p.MaxDead >= 1 && p.MaxDead <= 1_000_000, "max_dead", p.MaxDead, "1 to 1000000")
	v.Check(p.MaxDeadBytes >= 1<<20 && p.MaxDeadBytes <= 1<<40, "max_dead_bytes", p.MaxDeadBytes,
		"1MiB to 1024GiB")
	return v.Err()
}
