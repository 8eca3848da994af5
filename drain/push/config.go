package push

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
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
