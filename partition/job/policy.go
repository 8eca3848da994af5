package job

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// Policy is the settings of one namespace of queues. The defaults are those of
// DefaultPolicy; a zero field is not replaced by its default. Validate returns a
// *partition.FieldError for each value outside its bounds.
type Policy struct {
	// Shards is how many groups of keys the namespace has, each in one cluster slot: 1 to
	// 1024, fixed at first use; default 1. With partition.AutoShards the store decides: four a
	// master of a cluster, 1 elsewhere; or as many as it has already.
	Shards int
	// Spread is over how many shards the jobs of a queue go, by its name: 2 to Shards;
	// default 1. Such a queue is in order within a shard only. The number may rise, not fall:
	// jobs of shards that are asked no more wait for ever.
	Spread map[string]int
	// MaxJobs is how many jobs the namespace holds, dead ones included, over all shards: 1
	// to 1,000,000,000; default 10,000,000. A publish beyond it gets ErrTooManyJobs.
	MaxJobs int64
	// MaxQueues is how many queues may have jobs, over all shards: 1 to 10,000,000; default
	// 10,000. A publish to a further one gets ErrTooManyQueues.
	MaxQueues int64
	// MaxKeys is how many idempotency keys the namespace remembers, over all shards: 1 to
	// 1,000,000,000; default 1,000,000. A publish under a further one gets ErrTooManyKeys.
	MaxKeys int64
	// MaxSchedules is how many schedules the namespace may have, over all shards: 0 to
	// 10,000,000; default 100,000. A further one gets ErrTooManySchedules.
	MaxSchedules int64
	// MaxTraces is how many traces of jobs the namespace keeps where Rules ask for them, over
	// all shards: 0 to 10,000,000; default 10,000. Each takes about 700 bytes, up to 4 KiB; the
	// oldest make room.
	MaxTraces int64
	// DropDead makes a job whose tries are used up expire. Default false: it becomes a dead
	// letter.
	DropDead bool
	// Rules are what holds for some queues, the first that matches before those behind it: 256
	// at most.
	Rules []Rule
	// ReplyTTL is how long jobs of reply queues live at most (IsReplyQueue): 1s to 24h;
	// default 10m.
	ReplyTTL time.Duration
}

// DefaultPolicy returns the defaults of all fields.
func DefaultPolicy() Policy {
	return Policy{
		Shards:       1,
		MaxJobs:      10_000_000,
		MaxQueues:    10_000,
		MaxKeys:      1_000_000,
		MaxSchedules: 100_000,
		MaxTraces:    10_000,
		ReplyTTL:     10 * time.Minute,
	}
}

// splits is a queue over several shards whose leases a rule would bound, each shard its own; "": none.
func (p *Policy) splits(r Rule) string {
	for _, queue := range slices.Sorted(maps.Keys(p.Spread)) {
		if r.Concurrency > 0 && r.Match.Matches(queue) {
			return queue
		}
	}
	return ""
}

func (p *Policy) checkWhole(v *partition.Validation, at string, r Rule) {
	queue := p.splits(r)
	v.Check(queue == "", at+"concurrency", r.Concurrency,
		"no such rule for "+queue+", which has a spread: each shard counts its own leases, so the limit cannot be split")
}

// Admit returns a *partition.FieldError where the policy has no place for a rule.
func (p *Policy) Admit(r Rule) error {
	var v partition.Validation
	p.checkWhole(&v, "", r)
	return v.Err()
}

// Validate returns a *partition.FieldError for each unusable setting, joined.
func (p Policy) Validate() error {
	var v partition.Validation
	v.Check(p.Shards >= 1 && p.Shards <= 1024 || p.Shards == partition.AutoShards, "shards", p.Shards, "1 to 1024, or auto")
	for _, queue := range slices.Sorted(maps.Keys(p.Spread)) {
		k := p.Spread[queue]
		v.Check(partition.ValidQueue(queue), "spread", queue,
			"the name of a queue: 1 to 255 letters, digits, '.', '_' or '-'")
		v.Check(k >= 2 && (k <= p.Shards || p.Shards == partition.AutoShards && k <= 1024), "spread."+queue, k, "2 to shards")
	}
	v.Check(p.MaxJobs >= 1 && p.MaxJobs <= 1_000_000_000, "max_jobs", p.MaxJobs,
		"1 to 1000000000, over all shards")
	v.Check(p.MaxQueues >= 1 && p.MaxQueues <= 10_000_000, "max_queues", p.MaxQueues,
		"1 to 10000000, over all shards")
	v.Check(p.MaxKeys >= 1 && p.MaxKeys <= 1_000_000_000, "max_keys", p.MaxKeys,
		"1 to 1000000000, over all shards")
	v.Check(p.MaxSchedules >= 0 && p.MaxSchedules <= 10_000_000, "max_schedules", p.MaxSchedules,
		"0 to 10000000, over all shards")
	v.Check(p.MaxTraces >= 0 && p.MaxTraces <= 10_000_000, "max_traces", p.MaxTraces,
		"0 to 10000000, over all shards")
	v.Check(p.ReplyTTL >= time.Second && p.ReplyTTL <= 24*time.Hour, "reply_ttl", p.ReplyTTL, "1s to 24h")
	v.Check(len(p.Rules) <= MaxRules, "queues", len(p.Rules), "256 rules at most, with those made at run time")
	for i, r := range p.Rules {
		r.check(&v, fmt.Sprintf("queues[%d].", i))
		p.checkWhole(&v, fmt.Sprintf("queues[%d].", i), r)
	}
	return v.Err()
}
