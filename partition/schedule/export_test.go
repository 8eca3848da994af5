package schedule

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// Fires is when a tick of a schedule fires.
func (s *Spec) Fires(namespace, queue, name string, tick int64) int64 {
	return s.fires(tick, seedOf(namespace, queue, name))
}

// ParseIn is Parse in a program with other tzdata.
func ParseIn(text []byte, zone func(name string) (*time.Location, error)) (*Spec, error) {
	return readIn(text, zone)
}

// KnowZones makes the firer that of a program with other tzdata.
func (f *Firer) KnowZones(zone func(name string) (*time.Location, error)) { f.zone = zone }

// Work is what the firer does when schedules of a shard are due.
func (f *Firer) Work(ctx context.Context, d job.DueShard) { f.work(ctx, d) }

// Recount is what the firer does when the clock went back.
func (f *Firer) Recount(ctx context.Context, d job.DueShard) { f.recount(ctx, d) }

// Over reports whether a tick does not come again.
func (s *State) Over(tick int64) bool {
	i, _ := slices.BinarySearch(s.past.edges, tick+1)
	return i%2 == 1 || s.past.since <= tick && tick < s.Next
}
