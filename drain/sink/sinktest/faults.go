package sinktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxErrorText is the most bytes an error's text may have.
const maxErrorText = 1024

func checkFaults(ctx context.Context, fixture func() Fixture) error {
	for i := range fixture().Faults {
		f := fixture()
		if err := checkFault(ctx, f, f.Faults[i]); err != nil {
			return fmt.Errorf("%s: %w", f.Faults[i].Name, err)
		}
	}
	return nil
}

// checkFault makes one Write during a fault, and writes what failed of it again
// afterwards. For a sink that coalesces it has batches of several partitions.
func checkFault(ctx context.Context, f Fixture, fault Fault) error {
	if err := f.open(ctx); err != nil {
		return err
	}
	defer f.Sink.Close(ctx)
	batches := []*sink.Batch{newBatch("fault", 1, 10)}
	if caps := f.Sink.Caps(); caps.Linger > 0 {
		batches = append(batches, newBatch("fault", 11, 10), newBatch("beside", 1, 1),
			newBatch("behind", 1, 20))
		batches = batches[:min(len(batches), caps.MaxBatches)]
	}
	stop := fault.Start()
	returned, err := f.tryWrite(ctx, patience, batches...)
	stop()
	if !returned {
		return errors.New("Write has not returned")
	}
	if err == nil {
		return errors.New("Write returned nil")
	}
	if bad := checkError(err, batches); bad != nil {
		return bad
	}
	failed, taken, bad := fault.divide(err, batches)
	if bad != nil {
		return bad
	}
	if fault.Permanent {
		return f.expect(someOf(batches), taken...)
	}
	return first(f.rewrite(ctx, failed...), f.expect(atLeastOnce, batches...))
}

// divide returns what of the batches failed with err, as the next attempt, and what
// the sink took. It is an error where err calls permanent what is not, or the reverse.
func (fault Fault) divide(err error,
	batches []*sink.Batch) (failed, taken []*sink.Batch, bad error) {
	var named *sink.BatchError
	if !errors.As(err, &named) {
		if sink.IsPermanent(err) != fault.Permanent {
			return nil, nil, fmt.Errorf("permanent is %t, want %t: %w", !fault.Permanent, fault.Permanent, err)
		}
		for _, b := range batches {
			failed = append(failed, part(b, 1, func(int) bool { return true }))
		}
		return failed, nil, nil
	}
	names := map[[2]int]bool{}
	for _, e := range named.Failed {
		names[[2]int{e.Batch, e.Entry}] = true
		if sink.IsPermanent(e.Err) != fault.Permanent {
			return nil, nil, fmt.Errorf("batch %d entry %d: permanent is %t, want %t: %w", e.Batch, e.Entry,
				!fault.Permanent, fault.Permanent, e.Err)
		}
	}
	for i, b := range batches {
		if p := part(b, 1, func(j int) bool { return names[[2]int{i, j}] }); len(p.Entries) > 0 {
			failed = append(failed, p)
		}
		if p := part(b, 0, func(j int) bool { return !names[[2]int{i, j}] }); len(p.Entries) > 0 {
			taken = append(taken, p)
		}
	}
	return failed, taken, nil
}

// part is a copy of the chosen entries of a batch, with so many more attempts.
func part(b *sink.Batch, attempts int, chosen func(entry int) bool) *sink.Batch {
	c := clone(b)
	c.Attempt += attempts
	all := c.Entries
	c.Entries = nil
	for j, e := range all {
		if chosen(j) {
			c.Entries = append(c.Entries, e)
		}
	}
	if len(c.Entries) > 0 {
		c.FirstSeq = c.Entries[0].Seq
	}
	return c
}

// checkError says what is wrong with an error that Write returned.
func checkError(err error, batches []*sink.Batch) error {
	switch text := err.Error(); {
	case len(text) > maxErrorText:
		return fmt.Errorf("error text has %d bytes, more than %d", len(text), maxErrorText)
	case !utf8.ValidString(text):
		return fmt.Errorf("error text is not UTF-8: %q", text)
	case strings.Contains(text, canary):
		return fmt.Errorf("error text repeats a payload: %q", text)
	}
	var named *sink.BatchError
	if !errors.As(err, &named) {
		return nil
	}
	if len(named.Failed) == 0 {
		return errors.New("BatchError names no entry")
	}
	seen := map[[2]int]bool{}
	for _, e := range named.Failed {
		at := [2]int{e.Batch, e.Entry}
		switch {
		case e.Batch < 0 || e.Batch >= len(batches) || e.Entry < 0 || e.Entry >= len(batches[e.Batch].Entries):
			return fmt.Errorf("BatchError names batch %d entry %d, which was not written", e.Batch, e.Entry)
		case seen[at]:
			return fmt.Errorf("BatchError names batch %d entry %d twice", e.Batch, e.Entry)
		case e.Err == nil:
			return fmt.Errorf("BatchError names batch %d entry %d without an error", e.Batch, e.Entry)
		}
		seen[at] = true
		if bad := checkError(e.Err, nil); bad != nil {
			return bad
		}
	}
	return nil
}
