package partition

import (
	"fmt"
	"time"
)

// Delivery is what a batch may suffer when a drainer dies.
type Delivery string

const (
	// AtLeastOnce leases a range and settles it after the sink took it; a
	// crash in between delivers the same range again. The default.
	AtLeastOnce Delivery = "at-least-once"
	// AtMostOnce settles at the claim: a crash loses the batch in hand, and
	// "delivered" means handed over.
	AtMostOnce Delivery = "at-most-once"
)

// Policy is how one namespace treats its partitions.
type Policy struct {
	Capacity      int           // newest entries kept per partition; 10000
	MaxAge        time.Duration // older entries never reach a sink; 3m
	Batch         int           // entries a batch at most, 1 to 128; 128
	Linger        time.Duration // how long a part-filled batch waits for more; 1s
	Delivery      Delivery      // at-least-once
	Shards        int           // key groups, fixed at first use; 1
	MaxPartitions int           // partitions with entries, over all shards; 100000
	MaxDead       int           // dead letters kept per shard, oldest dropped first; 10000
	MaxDeadBytes  int64         // their size together; 64 MiB
}

// MaxBatch is the most entries a batch may hold: the drain's unit.
const MaxBatch = 128

// maxPartitions is the most that Policy.MaxPartitions may say. A partition of
// one small entry takes 0.8 kB of Redis, so this many take 8 GB: more is no
// bound. It is far from 2^53, where the numbers of scripts are no longer exact.
const maxPartitions = 10_000_000

// DefaultPolicy is the policy of a namespace that says nothing.
func DefaultPolicy() Policy {
	return Policy{
		Capacity: 10_000, MaxAge: 3 * time.Minute, Batch: MaxBatch, Linger: time.Second,
		Delivery: AtLeastOnce, Shards: 1, MaxPartitions: 100_000, MaxDead: 10_000,
		MaxDeadBytes: 64 << 20, // what 10,000 letters of 6.7 kB need
	}
}

// A FieldError names the setting that is wrong, its value and what to write
// instead. Field is the file's key, in snake_case.
type FieldError struct {
	Field string
	Value any
	Want  string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %v is not usable: want %s", e.Field, e.Value, e.Want)
}

// Validate returns a *FieldError for the first unusable setting.
func (p Policy) Validate() error {
	switch {
	case p.Capacity < 1 || p.Capacity > 10_000_000:
		return &FieldError{"capacity", p.Capacity, "1 to 10000000 entries"}
	case p.MaxAge < 100*time.Millisecond || p.MaxAge > 12*time.Hour:
		// Below, entries go stale while they are on their way.
		return &FieldError{"max_age", p.MaxAge, "100ms to 12h: what is worth keeping for longer belongs in a log"}
	case p.Batch < 1 || p.Batch > MaxBatch:
		return &FieldError{"batch", p.Batch, "1 to 128 entries"}
	case p.Linger < 0 || p.Linger > p.MaxAge:
		return &FieldError{"linger", p.Linger, "0s to max_age, or entries expire while they wait"}
	case p.Delivery != AtLeastOnce && p.Delivery != AtMostOnce:
		return &FieldError{"delivery", p.Delivery, "at-least-once or at-most-once"}
	case p.Shards < 1 || p.Shards > 1024:
		return &FieldError{"shards", p.Shards, "1 to 1024"}
	case p.MaxPartitions < 1 || p.MaxPartitions > maxPartitions:
		return &FieldError{"max_partitions", p.MaxPartitions, "1 to 10000000, over all shards"}
	case p.MaxDead < 1 || p.MaxDead > 1_000_000:
		return &FieldError{"max_dead", p.MaxDead, "1 to 1000000"}
	case p.MaxDeadBytes < 1<<20 || p.MaxDeadBytes > 1<<40:
		return &FieldError{"max_dead_bytes", p.MaxDeadBytes, "1MiB to 1024GiB"}
	}
	return nil
}
