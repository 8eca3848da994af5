package push

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// leaseSlack is how much longer than a Write a job is leased: for the way to the sink and
// back to the store. What a Write leaves of it is for the settlement.
const leaseSlack = 5 * time.Second

// Config is how a Pusher works. The figures in the comments are the defaults.
type Config struct {
	// MaxWrites is how many Writes to one sink run at once, of all its queues together; 256.
	MaxWrites int
	// SinkTimeout bounds one Write, and one Open; 10s. Jobs are leased 5s longer.
	SinkTimeout time.Duration
	// Poll is how often a namespace's queues are listed, where a rule has a '*'; 1s. More
	// than 10,000 queues are listed less often: 100 µs a queue.
	Poll time.Duration
}

// DefaultConfig is what the command line starts from.
func DefaultConfig() Config {
	return Config{MaxWrites: 256, SinkTimeout: 10 * time.Second, Poll: time.Second}
}

// Validate returns a *partition.FieldError for each unusable setting, joined.
func (c Config) Validate() error {
	var v partition.Validation
	v.Check(c.MaxWrites >= 1 && c.MaxWrites <= 10_000, "push_writes", c.MaxWrites, "1 to 10000")
	v.Check(c.SinkTimeout >= 10*time.Millisecond && c.SinkTimeout <= 10*time.Minute, "sink_timeout",
		c.SinkTimeout, "10ms to 10m")
	v.Check(c.Poll >= 10*time.Millisecond && c.Poll <= time.Minute, "poll", c.Poll, "10ms to 1m")
	return v.Err()
}

// Rule says which queues of a namespace go to which sink, and how. The figures in the
// comments are the defaults.
type Rule struct {
	// Match names the queues.
	Match job.Pattern
	// Sink is the name of a sink.
	Sink string
	// Writes is how many Writes of one queue run at once in this process; 8. With MinWrites it
	// is the most: as many run as the sink answers within Target, MinWrites at least.
	Writes, MinWrites int
	// Target is the response time that nine of ten Writes have at most; with MinWrites only.
	Target time.Duration
	// DeferFor is how long a job stays leased that the target answered with 202, or as long as
	// the body {"defer":"1h"} says: somebody settles it later by its id. 0: 202 acks as any 2xx
	// does. It needs a Batch of 1.
	DeferFor time.Duration
	// Batch is how many jobs a Write has at most; 1.
	Batch int
	// AcceptAll pushes jobs of PHP's that PHP's own code has to run, too: job.Job.Bound. Default
	// false: they become dead letters.
	AcceptAll bool
	// BackoffBase and BackoffMax bound the full-jitter wait of a job after it failed:
	// uniform between 0 and min(max, base·2^(attempt−1)); 1s and 10m.
	BackoffBase, BackoffMax time.Duration
}

// DefaultRule returns the defaults of a rule, without Match and Sink.
func DefaultRule() Rule {
	return Rule{Writes: 8, Batch: 1, BackoffBase: time.Second, BackoffMax: 10 * time.Minute}
}

// A job is deferred for so long.
const minDefer, maxDefer = time.Second, 24 * time.Hour

// maxBatch is as many jobs as a sink's batch has entries.
const maxBatch = partition.MaxBatch

// Validate returns a *partition.FieldError for each unusable setting, joined.
func (r Rule) Validate() error {
	var v partition.Validation
	v.Check(r.Match.Valid(), "match", string(r.Match),
		"the name of a queue, in which each * stands for any characters")
	v.Check(r.Sink != "", "sink", r.Sink, "the name of one of sinks")
	v.Check(r.Writes >= 1 && r.Writes <= job.MaxCount, "writes", r.Writes, fmt.Sprintf("1 to %d", job.MaxCount))
	v.Check(r.MinWrites >= 0 && r.MinWrites <= r.Writes, "writes", r.MinWrites, "no more than the most")
	if r.MinWrites > 0 {
		v.Check(r.Target >= time.Millisecond && r.Target <= 10*time.Minute, "target", r.Target,
			"1ms to 10m, for writes is a range")
	} else {
		v.Check(r.Target == 0, "target", r.Target, "none, for writes is not a range such as 1..64")
	}
	v.Check(r.Batch >= 1 && r.Batch <= maxBatch, "batch", r.Batch, fmt.Sprintf("1 to %d", maxBatch))
	v.Check(r.DeferFor == 0 || r.DeferFor >= minDefer && r.DeferFor <= maxDefer, "defer_for",
		r.DeferFor, "1s to 24h")
	v.Check(r.DeferFor == 0 || r.Batch == 1, "defer_for", r.DeferFor, "none, for batch is more than 1")
	v.Check(r.BackoffBase >= time.Millisecond, "backoff", r.BackoffBase, "1ms or more")
	v.Check(r.BackoffMax >= r.BackoffBase && r.BackoffMax <= 24*time.Hour, "backoff", r.BackoffMax,
		"no less than the first, 24h at most")
	return v.Err()
}

// Target is a namespace whose queues are pushed.
type Target struct {
	Namespace string
	Rules     []Rule // the first that matches a queue counts
	// Sinks by the names that the rules use. A sink serves one target.
	Sinks map[string]Sink
}

// Sink is a sink that queues are pushed to.
type Sink struct {
	Sink  sink.Sink
	Label string                // its URL without its secrets, for logs
	After func(context.Context) // see Target
}

// Validate returns what is wrong with the target: errors of its rules, rules without a
// sink and sinks without a rule.
func (t Target) Validate() error {
	used := map[string]bool{}
	for i, r := range t.Rules {
		if err := r.Validate(); err != nil {
			return fmt.Errorf("namespace %s, push[%d]: %w", t.Namespace, i, err)
		}
		if t.Sinks[r.Sink].Sink == nil {
			return fmt.Errorf("namespace %s, push[%d]: there is no sink %.64q", t.Namespace, i, r.Sink)
		}
		used[r.Sink] = true
	}
	for name := range t.Sinks {
		if !used[name] {
			return fmt.Errorf("namespace %s: no rule of push uses the sink %.64q", t.Namespace, name)
		}
	}
	return nil
}
