package admin

import (
	"fmt"
	"slices"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition"
)

const (
	maxSelected = 1000 // letters by id in one request
	letterChunk = 64   // letters that are replayed or deleted at once
	maxErrors   = 5    // of an answer
)

// letters says which dead letters an act is for. Each field narrows the choice.
type letters struct {
	Letters   []string `arg:"" optional:"" help:"Letters, as dead ls names them. Without any, all that the flags select."`
	Reason    *string  `placeholder:"REASON" help:"Only those with this reason."`
	Cause     *string  `placeholder:"CAUSE" help:"Only those of this cause, as dead ls --by cause prints it, or of what one of them says."`
	Partition string   `placeholder:"NAME" help:"Only those of this partition."`
	Limit     int64    `placeholder:"N" bounds:"1..9007199254740991" help:"At most this many. Without it, all that match."`
	verb.Approval
}

type replay struct {
	letters
	PerSecond int `default:"100" bounds:"1..1000" help:"Letters per second."`
}

// Replayed is what a replay did, or would do.
type Replayed struct {
	DryRun   bool     `json:"dry_run"`
	Replayed int64    `json:"replayed" help:"Letters whose entries are in their partitions."`
	Failed   int64    `json:"failed" help:"Letters that are kept."`
	Errors   []string `json:"errors" help:"The first different ones."`
	Complete bool     `json:"complete" help:"No letter is left that matches."`
}

// Count is how many letters it was.
func (a Replayed) Count() int64 { return a.Replayed }

// Partial reports whether letters are left.
func (a Replayed) Partial() bool { return !a.Complete }

// Deleted is what a delete did, or would do.
type Deleted struct {
	DryRun   bool  `json:"dry_run"`
	Deleted  int64 `json:"deleted"`
	Complete bool  `json:"complete" help:"No letter is left that matches."`
}

// Count is how many letters it was.
func (a Deleted) Count() int64 { return a.Deleted }

// Partial reports whether letters are left.
func (a Deleted) Partial() bool { return !a.Complete }

// Detail is what they selected.
func (q *letters) Detail() string {
	detail := fmt.Sprintf("confirmed %d", q.Confirm)
	if q.Reason != nil {
		detail += ", reason " + *q.Reason
	}
	if q.Cause != nil {
		detail += fmt.Sprintf(", cause %.64q", *q.Cause)
	}
	if q.Letters != nil {
		detail += fmt.Sprintf(", %d by id", len(q.Letters))
	}
	return detail
}

func (q *letters) check() error {
	if len(q.Letters) > maxSelected {
		return badRequest("letters: want 1000 at most")
	}
	if q.Reason != nil && len(*q.Reason) > maxReason || q.Cause != nil && len(*q.Cause) > maxCause {
		return badRequest("reason: want 512 bytes at most; cause: want 1024")
	}
	for _, id := range q.Letters {
		if !letterID.MatchString(id) {
			return badRequest("letters: want ids of 16 hex digits")
		}
	}
	return nil
}

func (q *letters) has(l partition.Letter, masks []string) bool {
	if q.Cause != nil {
		if of, _ := causeOfLetter(l, masks); of != causeOf(*q.Cause) {
			return false
		}
	}
	return (q.Reason == nil || *q.Reason == l.Reason) && (q.Partition == "" || q.Partition == l.Partition) &&
		(q.Letters == nil || slices.Contains(q.Letters, l.ID))
}

// each hands the letters that match to act, up to letterChunk at once, and not more than
// were confirmed; a dry run only counts them. It returns how many there were, and whether there is
// none left. act returns false to end it.
func (q *letters) each(r *request, act func(*partition.Namespace, []partition.Letter) (on bool, err error)) (taken int64, complete bool, err error) {
	ns := r.namespace()
	r.fail(q.check())
	if r.act.Partition = q.Partition; r.err != nil {
		return 0, false, r.err
	}
	most, cursor := q.Most(q.Limit), ""
	for {
		page, err := r.view.Store.DeadLetters(r.ctx, ns, cursor, letterPage)
		if err != nil {
			return taken, false, err
		}
		chosen := slices.DeleteFunc(page.Letters, func(l partition.Letter) bool { return !q.has(l, r.view.MaskFields) })
		for len(chosen) > 0 {
			n := min(len(chosen), letterChunk)
			if most > 0 {
				n = min(n, int(most-taken))
			}
			if n == 0 {
				return taken, false, nil
			}
			taken += int64(n)
			if !q.DryRun {
				if on, err := act(ns, chosen[:n]); !on {
					return taken, false, err
				}
			}
			chosen = chosen[n:]
		}
		if cursor = page.Next; cursor == "" {
			return taken, true, nil
		}
	}
}

func (s *Server) deleteDead(r *request, q *letters) (answer Deleted, err error) {
	answer.DryRun = q.DryRun
	found, complete, err := q.each(r, func(ns *partition.Namespace, letters []partition.Letter) (bool, error) {
		n, err := r.view.Store.Discard(r.ctx, ns, letters)
		answer.Deleted += int64(n)
		return err == nil, err
	})
	if answer.Complete = complete; q.DryRun {
		answer.Deleted = found
	}
	return answer, err
}

func (s *Server) replay(r *request, q *replay) (Replayed, error) {
	answer := Replayed{DryRun: q.DryRun, Errors: []string{}}
	began := time.Now()
	found, complete, err := q.each(r, func(ns *partition.Namespace, letters []partition.Letter) (bool, error) {
		slices.Reverse(letters) // the oldest first, as the entries of a partition were; pages come newest first
		for len(letters) > 0 {
			// A tenth of a second's letters at once, so that the rate is even.
			n := min(len(letters), max(1, q.PerSecond/10))
			due := began.Add(time.Duration(answer.Replayed+answer.Failed) * time.Second / time.Duration(q.PerSecond))
			if !guard.Sleep(r.ctx, time.Until(due)) {
				return false, nil
			}
			if !answer.count(r.view.Store.Replay(r.ctx, ns, letters[:n])) {
				return false, nil
			}
			letters = letters[n:]
		}
		return true, nil
	})
	if q.DryRun {
		answer.Replayed = found
	}
	answer.Complete = complete && answer.Failed == 0
	if answer.Failed > 0 {
		r.act.Result = fmt.Sprintf("%d failed: %s", answer.Failed, answer.Errors[0])
	}
	return answer, err
}

// count adds the outcomes of some letters. It is false where every one failed.
func (a *Replayed) count(outcomes []partition.ReplayOutcome) (some bool) {
	for _, o := range outcomes {
		if o.Err == nil {
			a.Replayed++
			some = true
			continue
		}
		a.Failed++
		if text := o.Err.Error(); len(a.Errors) < maxErrors && !slices.Contains(a.Errors, text) {
			a.Errors = append(a.Errors, text)
		}
	}
	return some
}
