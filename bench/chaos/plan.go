package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
)

const (
	sinkTimeout = time.Second
	lease       = sinkTimeout + 2*time.Second // the least that the drain takes
	maxOffset   = 4000                        // ms that Redis's clock is ahead or behind at most
)

// A plan is a run before it happens. The same seed and duration make the same
// plan, so a run can be played again; what the machine makes of it differs.
type plan struct {
	seed     uint64
	duration time.Duration
	flags    string // that made it other than its seed would, to play it again

	cluster    bool     // three masters with a replica each, in place of one Redis
	fsync      string   // appendfsync; none is no append-only file at all
	roles      []string // one a server
	capacity   int
	maxAge     time.Duration
	shards     int
	partitions []string
	queues     []string
	faults     []planned
}

// planned is a fault at a time after the start.
type planned struct {
	at, lasts    time.Duration
	offset       time.Duration // of a clock step: what Redis's clock is ahead by from then on
	kind, target string
	inject       func(context.Context, *setup, planned) error
}

// fleets are the roles of the servers that share a Redis.
var fleets = [][]string{
	{"ingest", "drain"},
	{"all", "drain"},
	{"all", "all"},
	{"ingest", "ingest", "drain", "drain"},
}

// newPlan makes the plan of a seed, of these kinds of faults alone where any are
// given. Some kinds need a cluster, and it has one then.
func newPlan(seed uint64, duration time.Duration, only ...string) *plan {
	return newPlanOn(needsCluster(only), seed, duration, only)
}

func needsCluster(kinds []string) bool {
	return slices.ContainsFunc(clusterKinds, func(k faultKind) bool { return slices.Contains(kinds, k.name) })
}

func newPlanOn(cluster bool, seed uint64, duration time.Duration, only []string) *plan {
	roll := rand.New(rand.NewPCG(seed, 0x5911))
	p := &plan{
		seed: seed, duration: duration, cluster: cluster, fsync: [...]string{"no", "always"}[seed/3%2],
		roles: fleets[roll.IntN(len(fleets))], shards: 1 + roll.IntN(2),
		capacity: 100_000, maxAge: 3 * time.Minute,
		queues: []string{"bulk", "mail", "pay", "ship"},
	}
	// One seed in three overflows, one lets entries go stale, and in the third
	// kind every acknowledged entry has to arrive.
	switch seed % 3 {
	case 0:
		p.capacity = 60 + roll.IntN(200)
	case 1:
		p.maxAge = time.Duration(2500+roll.IntN(1500)) * time.Millisecond
	}
	for i := range 6 + roll.IntN(10) {
		p.partitions = append(p.partitions, fmt.Sprintf("game-%d", i))
	}
	p.schedule(roll, only)
	return p
}

// forgets says that a killed Redis may have lost what it acknowledged.
func (p *plan) forgets() bool { return p.fsync == "everysec" || p.fsync == "none" }

// server is the name of the i-th server.
func (p *plan) server(i int) string { return fmt.Sprintf("%s-%d", p.roles[i], i) }

// servers are the names of those that do a role.
func (p *plan) servers(role string) (names []string) {
	for i, r := range p.roles {
		if r == role || r == "all" {
			names = append(names, p.server(i))
		}
	}
	return names
}

// schedule deals faults from a shuffled deck of all kinds, so that a long run
// meets each about equally often. One target has one fault at a time; different
// targets overlap as they like. All are over when the run is.
func (p *plan) schedule(roll *rand.Rand, only []string) {
	free, rest := map[string]time.Duration{}, 300*time.Millisecond // that a target has between two faults
	all := faultKinds
	if p.cluster {
		rest = 3 * time.Second // nodes find each other; a new server begins once it has found all masters
		// Its nodes watch each other by the clock that steps would move.
		all = slices.DeleteFunc(slices.Concat(faultKinds, clusterKinds), func(k faultKind) bool { return k.name == check.KindClockStep })
	}
	ahead := p.seed/2%2 == 0
	var deck []faultKind
	for at := 400 * time.Millisecond; at < p.duration; at += ms(roll, 250, 850) {
		if len(deck) == 0 {
			deck = slices.DeleteFunc(slices.Clone(all), func(k faultKind) bool {
				if len(only) == 0 {
					// A step excuses much of what C7 and C8 say, so every other seed has none.
					return k.name == check.KindClockStep && p.seed%2 == 0
				}
				return !slices.Contains(only, k.name)
			})
			roll.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		kind := deck[0]
		deck = deck[1:]
		f := planned{at: at, kind: kind.name, target: kind.target, inject: kind.inject, lasts: ms(roll, kind.least, kind.most)}
		if role, ok := strings.CutPrefix(kind.target, "role "); ok {
			names := p.servers(role)
			f.target = names[roll.IntN(len(names))]
		}
		f.at = max(f.at, free[f.target])
		if f.at+f.lasts > p.duration {
			continue
		}
		if f.kind == check.KindClockStep {
			// In turn ahead and behind, so far at most, however long the run.
			if ahead = !ahead; ahead {
				f.offset = ms(roll, 500, maxOffset)
			} else {
				f.offset = -ms(roll, 500, maxOffset)
			}
		}
		free[f.target] = f.at + f.lasts + rest
		p.faults = append(p.faults, f)
	}
	slices.SortStableFunc(p.faults, func(a, b planned) int { return cmp.Compare(a.at, b.at) })
}

// steps says that Redis's clock steps.
func (p *plan) steps() bool {
	return slices.ContainsFunc(p.faults, func(f planned) bool { return f.kind == check.KindClockStep })
}

// withoutSteps takes the clock steps out of a plan.
func (p *plan) withoutSteps() {
	p.faults = slices.DeleteFunc(p.faults, func(f planned) bool { return f.kind == check.KindClockStep })
}

// withWitness spares the last server where Redis forgets: somebody must have lived to notice it.
func (p *plan) withWitness() {
	if p.forgets() {
		last := p.server(len(p.roles) - 1)
		p.faults = slices.DeleteFunc(p.faults, func(f planned) bool { return f.kind == "kill" && f.target == last })
	}
}

// ms rolls a duration in milliseconds.
func ms(roll *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+roll.IntN(most-least+1)) * time.Millisecond
}

func (p *plan) String() string {
	store := "one Redis"
	if p.cluster {
		store = "a cluster"
	}
	return fmt.Sprintf("seed %d, %v: %s on %s; appendfsync %s, capacity %d, max-age %v, %d partitions in %d shards, %d faults",
		p.seed, p.duration, strings.Join(p.roles, " + "), store, p.fsync, p.capacity, p.maxAge, len(p.partitions), p.shards, len(p.faults))
}
