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

// checkFault writes one batch during a fault, and what failed of it afterwards.
func checkFault(ctx context.Context, f Fixture, fault Fault) error {
	if err := f.open(ctx); err != nil {
		return err
	}
	defer f.Sink.Close(ctx)
	b := newBatch("fault", 1, 10)
	stop := fault.Start()
	returned, err := f.tryWrite(ctx, patience, b)
	stop()
	if !returned {
		return errors.New("Write has not returned")
	}
	if err == nil {
		return errors.New("Write returned nil")
	}
	if bad := checkError(err, []*sink.Batch{b}); bad != nil {
		return bad
	}

	again, taken := clone(b), clone(b)
	again.Attempt++
	taken.Entries = nil
	var named *sink.BatchError
	if errors.As(err, &named) {
		again.Entries = nil
		failed := map[int]bool{}
		for _, e := range named.Failed {
			failed[e.Entry] = true
			if sink.IsPermanent(e.Err) != fault.Permanent {
				return fmt.Errorf("entry %d: permanent is %t, want %t: %w", e.Entry, !fault.Permanent, fault.Permanent, e.Err)
			}
		}
		for i, e := range clone(b).Entries {
			if failed[i] {
				again.Entries = append(again.Entries, e)
			} else {
				taken.Entries = append(taken.Entries, e)
			}
		}
	} else if sink.IsPermanent(err) != fault.Permanent {
		return fmt.Errorf("permanent is %t, want %t: %w", !fault.Permanent, fault.Permanent, err)
	}
	if fault.Permanent {
		return f.expect(someOf(b), taken)
	}
	again.FirstSeq = again.Entries[0].Seq
	return first(f.rewrite(ctx, again), f.expect(atLeastOnce, b))
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
