package fallback

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// outcomes are the errors of a Write by batch and entry; nil: accepted.
type outcomes [][]error

// errMisnamed stands for the error of a sink that names entries which were not written, or
// none: a bug of it. Nothing is known then, so all come again.
var errMisnamed = errors.New("the sink names no entry, or entries that were not written")

// spread gives each entry the error that a Write returned for it.
func spread(err error, batches []*sink.Batch) outcomes {
	var named *sink.BatchError
	all := err
	if errors.As(err, &named) {
		if all = nil; len(named.Failed) == 0 {
			all = errMisnamed
		}
		for _, f := range named.Failed {
			if f.Batch < 0 || f.Batch >= len(batches) || f.Entry < 0 || f.Entry >= len(batches[f.Batch].Entries) {
				all = errMisnamed
			}
		}
	}
	results := make(outcomes, len(batches))
	for i, b := range batches {
		results[i] = make([]error, len(b.Entries))
		for j := range results[i] {
			results[i][j] = all
		}
	}
	if named != nil && all == nil {
		for _, f := range named.Failed {
			// Of two errors about an entry, the one that keeps it counts.
			if before := results[f.Batch][f.Entry]; before == nil || sink.IsPermanent(before) {
				results[f.Batch][f.Entry] = f.Err
			}
		}
	}
	return results
}

// gather makes one error of the outcomes.
func gather(results outcomes) error {
	failed := &sink.BatchError{}
	for i, list := range results {
		for j, err := range list {
			if err != nil {
				failed.Fail(i, j, err)
			}
		}
	}
	if len(failed.Failed) == 0 {
		return nil
	}
	return failed
}

// rejectsUnnamed reports whether a sink rejected a Write and did not say which entry is
// at fault.
func rejectsUnnamed(err error) bool {
	return sink.IsPermanent(err) && !errors.As(err, new(*sink.BatchError))
}

// rejects reports whether a sink rejected an entry: it works, then.
func rejects(err error) bool {
	var named *sink.BatchError
	if !errors.As(err, &named) {
		return sink.IsPermanent(err)
	}
	for _, f := range named.Failed {
		if sink.IsPermanent(f.Err) {
			return true
		}
	}
	return false
}

// disconnected reports whether a sink asks to be opened again.
func disconnected(err error) bool {
	var named *sink.BatchError
	if errors.As(err, &named) {
		return slices.ContainsFunc(named.Failed,
			func(f sink.EntryError) bool { return errors.Is(f.Err, sink.ErrNotConnected) })
	}
	return errors.Is(err, sink.ErrNotConnected)
}

// acceptedOf is how many entries a Write accepted.
func acceptedOf(err error, batches []*sink.Batch) (n int) {
	if err == nil {
		return entriesOf(batches)
	}
	if !errors.As(err, new(*sink.BatchError)) {
		return 0
	}
	for _, list := range spread(err, batches) {
		for _, err := range list {
			if err == nil {
				n++
			}
		}
	}
	return n
}

func entriesOf(batches []*sink.Batch) (n int) {
	for _, b := range batches {
		n += len(b.Entries)
	}
	return n
}

// both is what two tiers say of an entry, the second of which is asked last. It is
// rejected when both reject it. An entry that only the second one rejects waits for the
// first, unless its life ends: a dead letter tells more than an expired entry.
func both(first, second error, ends bool) error {
	if second == nil {
		return nil
	}
	detail := sink.Detail(second)
	if detail == "" {
		detail = sink.Detail(first)
	}
	err := sink.WithDetail(fmt.Errorf("%s; next tier: %s", brief(first), brief(second)), detail)
	if after, ok := sink.ThrottledFor(second); ok {
		return sink.Throttle(err, after)
	}
	if sink.IsPermanent(second) && (sink.IsPermanent(first) || ends) {
		return sink.Permanent(err)
	}
	return err
}

// counted is err without sink.Unsent: the tries that a job has used bring it to the next
// tier, so a Write that leaves it with this one counts. So does one after a tier has seen it.
func counted(err error) error {
	var named *sink.BatchError
	switch {
	case sink.IsUnsent(err):
		plain := errors.New(brief(err))
		if after, throttled := sink.ThrottledFor(err); throttled {
			return sink.Throttle(plain, after)
		}
		return plain
	case errors.As(err, &named) && slices.ContainsFunc(named.Failed,
		func(f sink.EntryError) bool { return sink.IsUnsent(f.Err) }):
		failed := &sink.BatchError{}
		for _, f := range named.Failed {
			failed.Fail(f.Batch, f.Entry, counted(f.Err))
		}
		return failed
	}
	return err
}

// seen is counted, for entries that a tier has rejected in a larger Write.
func seen(results outcomes) outcomes {
	for _, list := range results {
		for j, err := range list {
			list[j] = counted(err)
		}
	}
	return results
}

// A source is where the entries of a picked batch come from.
type source struct {
	batch   int
	entries []int
}

// pick makes batches of some entries, and tells where they are from. They have no End: the
// next time others may be handed on.
func pick(batches []*sink.Batch,
	wanted func(batch, entry int) bool) (picked []*sink.Batch, from []source) {
	for i, b := range batches {
		s := source{batch: i}
		for j := range b.Entries {
			if wanted(i, j) {
				s.entries = append(s.entries, j)
			}
		}
		if len(s.entries) == 0 {
			continue
		}
		p := &sink.Batch{
			Namespace: b.Namespace,
			Partition: b.Partition,
			FirstSeq:  b.Entries[s.entries[0]].Seq,
			Attempt:   b.Attempt,
		}
		for _, j := range s.entries {
			p.Entries = append(p.Entries, b.Entries[j])
			if b.Jobs != nil {
				p.Jobs = append(p.Jobs, b.Jobs[j])
			}
		}
		p.Deadline = b.Deadline.Add(-time.Duration(youngest(b)-youngest(p)) * time.Millisecond)
		picked, from = append(picked, p), append(from, s)
	}
	return picked, from
}

// connected is err without sink.ErrNotConnected: a tier opens by itself, and the drain
// would stop to write to the others.
func connected(err error) error {
	var named *sink.BatchError
	switch {
	case !disconnected(err):
		return err
	case !errors.As(err, &named):
		return errors.New(brief(err))
	}
	failed := &sink.BatchError{}
	for _, f := range named.Failed {
		failed.Fail(f.Batch, f.Entry, connected(f.Err))
	}
	return failed
}

// maxText bounds the part of a text that one tier has.
const maxText = 400

// brief is the text of an error, cut.
func brief(err error) string {
	text := err.Error()
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}
