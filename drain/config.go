package drain

import (
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// Config is how a Drainer works. The figures in the comments are the defaults.
type Config struct {
	// Workers is how many leases of one namespace are worked on at once; 64.
	// Each namespace has its own, so a sink that hangs delays no other namespace.
	Workers int
	// SinkTimeout bounds one Write, and one Open; 10s.
	SinkTimeout time.Duration
	// Lease is how long a lease lasts; 15s. It is never renewed, so it must exceed SinkTimeout
	// by 2s or more.
	Lease time.Duration
	// BackoffBase and BackoffMax bound the full-jitter wait of a partition
	// between two attempts: uniform between 0 and min(max, base·2^(attempt−1));
	// 100ms and 30s. A Target may have its own.
	BackoffBase, BackoffMax time.Duration
	// MaxLeaseBatches is how many consecutive batches one lease may cover when
	// few partitions are due and the sink is fast; 8. 1 turns that off.
	MaxLeaseBatches int
	// Poll is how often a shard with nothing due is asked again; 1s. Produces
	// of this process wake the claimers by themselves, those of others do not.
	Poll time.Duration
	// Drops keeps samples of the entries that are not delivered; default nil, none.
	Drops *drops.Log
}

// DefaultConfig is what the command line starts from.
func DefaultConfig() Config {
	return Config{
		Workers:         64,
		SinkTimeout:     10 * time.Second,
		Lease:           15 * time.Second,
		BackoffBase:     100 * time.Millisecond,
		BackoffMax:      30 * time.Second,
		MaxLeaseBatches: 8,
		Poll:            time.Second,
	}
}

// Validate returns a *partition.FieldError for each unusable setting, joined.
func (c Config) Validate() error {
	var v partition.Validation
	v.Check(c.Workers >= 1 && c.Workers <= 10_000, "workers", c.Workers, "1 to 10000")
	v.Check(c.SinkTimeout >= 10*time.Millisecond && c.SinkTimeout <= 10*time.Minute, "sink_timeout",
		c.SinkTimeout, "10ms to 10m")
	v.Check(c.Lease >= min(c.SinkTimeout, 10*time.Minute)+2*guard.LeaseMargin, "lease", c.Lease,
		"2s more than sink_timeout, or a slow write outlives its lease")
	v.Check(c.Lease <= time.Hour, "lease", c.Lease, "1h at most: after a crash, a partition waits this long")
	v.Check(c.BackoffBase >= time.Millisecond, "backoff_base", c.BackoffBase, "1ms or more")
	v.Check(c.BackoffMax >= c.BackoffBase && c.BackoffMax <= time.Hour, "backoff_max", c.BackoffMax,
		"backoff_base to 1h")
	v.Check(c.MaxLeaseBatches >= 1 && c.MaxLeaseBatches <= 64, "max_lease_batches", c.MaxLeaseBatches,
		"1 to 64 batches")
	v.Check(c.Poll >= 10*time.Millisecond && c.Poll <= time.Minute, "poll", c.Poll, "10ms to 1m")
	return v.Err()
}
