package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/partition"
)

const (
	// costGroups is how many partitions share a call of the store: what a flush
	// of sparse traffic holds.
	costGroups = 46
	// costEntries is about how many entries a cell is measured with.
	costEntries = 100_000
	costFlushes = 400 // at most: 18,400 partitions
	ofLife      = "the whole life"
)

// costSizes are the entries a partition and call.
var costSizes = []int{1, 2, 5, 20, partitionBatch}

// costReport is what the verbs of the store cost Redis, by entries a partition.
type costReport struct {
	Scenario string       `json:"scenario"`
	Machine  proc.Machine `json:"machine"`
	Phases   []string     `json:"phases"`
	Rows     []costRow    `json:"rows"`
}

// held: accounts that do not add up have ended the run.
func (r *costReport) held() bool { return true }

// costRow has a figure for each phase.
type costRow struct {
	Entries int         `json:"entries"` // a partition
	Cells   []costPhase `json:"cells"`
}

// costPhase is what Redis spends on an entry in one phase.
type costPhase struct {
	Commands float64 `json:"commands"` // those that scripts make included
	CPU      float64 `json:"cpu_us"`
}

// costPhases are the columns. The life of a partition is the sum of the first three.
var costPhases = []string{"produce, new partitions", "claim", "commit, partitions end", ofLife, "produce, living partitions"}

func (r *costReport) sheet(bool) *sheet {
	s := &sheet{name: r.Scenario, machine: r.Machine, head: append([]string{"entries a partition"}, r.Phases...),
		notes: []string{fmt.Sprintf("%d partitions a call; commands and µs of Redis CPU an entry, medians.", costGroups)}}
	for _, row := range r.Rows {
		cells := []string{fmt.Sprint(row.Entries)}
		for _, c := range row.Cells {
			cells = append(cells, fmt.Sprintf("%s · %s µs", figure(c.Commands), figure(c.CPU)))
		}
		s.row(cells...)
	}
	return s
}

// cost measures what partition.Store, as this program was built with it, makes
// Redis do. It needs no server.
func cost(ctx context.Context, s settings) (scenarioReport, error) {
	rep := &costReport{Scenario: "cost", Machine: proc.ThisMachine(ctx, s.redisServer, s.bin), Phases: costPhases}
	for _, size := range costSizes {
		rounds := make([][]costPhase, s.rounds)
		for i := range rounds {
			var err error
			if rounds[i], err = costRound(ctx, s, size); err != nil {
				return nil, fmt.Errorf("%d entries a partition: %w", size, err)
			}
		}
		row := costRow{Entries: size}
		for i := range costPhases {
			var commands, cpu []float64
			for _, r := range rounds {
				commands, cpu = append(commands, r[i].Commands), append(cpu, r[i].CPU)
			}
			row.Cells = append(row.Cells, costPhase{median(commands), median(cpu)})
		}
		rep.Rows = append(rep.Rows, row)
	}
	return rep, nil
}

// costRound measures all phases once, on a Redis of its own.
func costRound(ctx context.Context, s settings, size int) (cells []costPhase, err error) {
	r, err := newSetup(ctx, s, false)
	if err != nil {
		return nil, err
	}
	defer r.close()
	policy := partition.DefaultPolicy()
	policy.Capacity, policy.Linger = roomy, 0 // what is produced is due
	store, err := partition.Open(partition.Config{URL: r.redisURL, Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy}},
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }()
	if _, err := store.Check(ctx); err != nil {
		return nil, err
	}
	c := &costRig{setup: r, store: store, size: size, payload: s.payload,
		flushes: min(max(costEntries/(costGroups*size), 10), costFlushes)}

	// Scripts are loaded, buffers grown and the allocator warm before anything counts.
	for _, verb := range []func(context.Context) error{c.produce, c.claim, c.commit} {
		if err := verb(ctx); err != nil {
			return nil, err
		}
	}
	for _, verb := range []func(context.Context) error{c.produce, c.claim, c.commit} {
		cell, err := c.measure(ctx, verb)
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	if err := c.drained(ctx); err != nil {
		return nil, err
	}
	life := costPhase{}
	for _, cell := range cells {
		life.Commands, life.CPU = life.Commands+cell.Commands, life.CPU+cell.CPU
	}
	if err := c.produce(ctx); err != nil { // now they live
		return nil, err
	}
	living, err := c.measure(ctx, c.produce)
	return append(cells, life, living), err
}

// costRig runs one verb at a time over all its partitions, so that a phase is
// long beside the two looks at Redis's clock around it.
type costRig struct {
	*setup
	store                  *partition.Store
	size, payload, flushes int
	leases                 []*partition.Lease
}

// measure is what Redis spends on an entry while verb runs. The CPU is
// used_cpu_user and used_cpu_sys of INFO, in microseconds; the commands are
// total_commands_processed, which counts those inside scripts.
func (c *costRig) measure(ctx context.Context, verb func(context.Context) error) (cell costPhase, err error) {
	before, cpuBefore, err := c.spent(ctx)
	if err != nil {
		return cell, err
	}
	if err := verb(ctx); err != nil {
		return cell, err
	}
	after, cpuAfter, err := c.spent(ctx)
	entries := float64(c.flushes * costGroups * c.size)
	// The first look is a command, too.
	return costPhase{float64(after-before-1) / entries, (cpuAfter - cpuBefore) * 1e6 / entries}, err
}

// spent is the commands so far, and the CPU in seconds.
func (r *setup) spent(ctx context.Context) (commands int64, cpu float64, err error) {
	info, err := r.client.Info(ctx, "stats", "cpu").Result()
	if err != nil {
		return 0, 0, err
	}
	if commands, err = infoField(info, "total_commands_processed"); err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(info) {
		for _, name := range []string{"used_cpu_user:", "used_cpu_sys:"} {
			if value, found := strings.CutPrefix(line, name); found {
				var seconds float64
				if _, err := fmt.Sscan(value, &seconds); err != nil {
					return 0, 0, err
				}
				cpu += seconds
			}
		}
	}
	return commands, cpu, nil
}

// each calls do for the partitions of every flush.
func (c *costRig) each(do func(names []string) error) error {
	for flush := range c.flushes {
		names := make([]string, costGroups)
		for i := range names {
			names[i] = fmt.Sprintf("bench-%d", flush*costGroups+i)
		}
		if err := do(names); err != nil {
			return err
		}
	}
	return nil
}

func (c *costRig) produce(ctx context.Context) error {
	now, _ := c.store.Now()
	payload := []byte(strings.Repeat("x", c.payload))
	entries := make([][]byte, c.size)
	for i := range entries {
		entries[i] = partition.AppendEntry(nil, now, nil, payload)
	}
	return c.each(func(names []string) error {
		groups := make([]*partition.Group, len(names))
		for i, name := range names {
			groups[i] = &partition.Group{Namespace: c.store.Namespace("default"), Partition: name, Entries: entries}
		}
		c.store.Produce(ctx, groups)
		for _, g := range groups {
			if g.Err != nil || g.Accepted != c.size || g.Evicted != 0 {
				return fmt.Errorf("produce: accepted %d of %d, evicted %d: %w", g.Accepted, c.size, g.Evicted, g.Err)
			}
		}
		return nil
	})
}

func (c *costRig) claim(ctx context.Context) error {
	c.leases = c.leases[:0]
	return c.each(func(names []string) error {
		requests := make([]partition.ClaimRequest, len(names))
		for i, name := range names {
			requests[i] = partition.ClaimRequest{Namespace: c.store.Namespace("default"), Partition: name, MaxBatches: 1}
		}
		claims := c.store.Claim(ctx, requests, time.Minute)
		for _, claim := range claims {
			if claim.Err != nil || claim.Lease == nil || len(claim.Lease.Entries) != c.size {
				return fmt.Errorf("claim: got %+v, want a lease of %d: %w", claim.Lease, c.size, claim.Err)
			}
			c.leases = append(c.leases, claim.Lease)
		}
		return nil
	})
}

func (c *costRig) commit(ctx context.Context) error {
	for at := 0; at < len(c.leases); at += costGroups {
		var settle []*partition.Commit
		for _, l := range c.leases[at : at+costGroups] {
			settle = append(settle, &partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Delivered: len(l.Entries)})
		}
		c.store.Commit(ctx, settle)
		for _, s := range settle {
			if s.Err != nil {
				return fmt.Errorf("commit: %w", s.Err)
			}
		}
	}
	return nil
}

// drained holds the account: all was delivered, twice.
func (c *costRig) drained(ctx context.Context) error {
	o, err := c.store.Overview(ctx, c.store.Namespace("default"))
	all := int64(2 * c.flushes * costGroups * c.size)
	if l := o.Ledger; err == nil && (l.Accepted != all || l.Delivered != all || l.Buffered != 0) {
		err = fmt.Errorf("the account does not add up: %d produced; ledger %+v", all, l)
	}
	return err
}
