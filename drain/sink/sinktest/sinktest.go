// Package sinktest is the conformance suite that every sink passes.
//
//	func TestConforms(t *testing.T) {
//		sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
//			target := startTarget(t)
//			return sinktest.Fixture{Sink: mysink.New(target.URL), Received: target.Records}
//		}})
//	}
//
// Run it with -race. The more of a Fixture is filled in, the more is checked;
// what needs only the sink is always checked. A sink whose Caps have a Linger is
// given batches of several partitions in a Write, also during its faults.
package sinktest

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// Harness makes fixtures.
type Harness struct {
	// New makes a sink that was not opened yet, on a target that has received
	// nothing. It is called several times a test, from parallel tests; t takes
	// clean-ups.
	New func(t testing.TB) Fixture
}

// Fixture is a sink, and what can be done to its target.
type Fixture struct {
	Sink sink.Sink
	// Received returns what the target has, in order of arrival. It is called
	// while no Write runs. Nil: the target cannot be read back.
	Received func() ([]Record, error)
	// Stall makes the target take a Write and not answer, until release is
	// called. Nil: it cannot be stalled.
	Stall func() (release func())
	// Faults are the ways in which the target can be made to fail, in the same
	// order in every fixture.
	Faults []Fault
}

// Fault is one way to fail a Write.
type Fault struct {
	Name  string
	Start func() (stop func())
	// Permanent: the error is marked so, or that of every entry it names.
	// Otherwise the failed entries must arrive when they are written again
	// after stop.
	Permanent bool
}

// Record is one entry as the target has it.
type Record struct {
	Namespace, Partition string
	Seq, Occurred        int64
	ID                   []byte // nil: none was given
	Payload              []byte // JSON may have lost the white space between its tokens
	Batch                string // "" and 0 where the target does not keep them
	Attempt              int
}

// Run holds a sink to the contract of package sink.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.run(ctx, func() Fixture { return h.New(t) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// check is one clause of the contract. It returns what the sink did wrong, so
// that the checks themselves can be tested.
type check struct {
	name string
	run  func(ctx context.Context, fixture func() Fixture) error
}
