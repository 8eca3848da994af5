package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
)

const (
	maxSelected     = 1000 // letters by id in one request
	replayPerSecond = 100  // unless the request says another rate
	maxPerSecond    = 1000
	letterChunk     = 64 // letters that are replayed or deleted at once
	maxErrors       = 5  // of an answer
)

// DeleteRequest says which dead letters to delete. Each field narrows the choice.
type DeleteRequest struct {
	Letters   []string `json:"letters,omitempty"` // default: all
	Reason    string   `json:"reason,omitempty"`
	Cause     string   `json:"cause,omitempty"` // of DeadCauses, or what was said of one
	Partition string   `json:"partition,omitempty"`
	Limit     int64    `json:"limit,omitempty"` // 0: no limit
	Approval
}

// ReplayRequest says which dead letters to produce again.
type ReplayRequest struct {
	DeleteRequest
	PerSecond int `json:"per_second,omitempty"` // default 100
}

// Replayed is what a replay did, or would do.
type Replayed struct {
	DryRun   bool     `json:"dry_run"`
	Letters  int64    `json:"letters"`  // that it took on
	Replayed int64    `json:"replayed"` // whose entries are in their partitions
	Failed   int64    `json:"failed"`   // which are kept
	Errors   []string `json:"errors"`   // the first different ones
	Complete bool     `json:"complete"` // no letter is left that matches
}

// Deleted is what a delete did, or would do.
type Deleted struct {
	DryRun   bool  `json:"dry_run"`
	Letters  int64 `json:"letters"`
	Deleted  int64 `json:"deleted"`
	Complete bool  `json:"complete"`
}

func (d DeleteRequest) check() error {
	if d.Limit < 0 || len(d.Letters) > maxSelected {
		return badRequest("limit: want 0 or more; letters: want 1000 at most")
	}
	if len(d.Reason) > maxReason || len(d.Cause) > maxCause || d.Partition != "" && !partition.ValidPartition(d.Partition) {
		return badRequest("reason: want 512 bytes at most; cause: want 1024; partition: want a name of a partition")
	}
	for _, id := range d.Letters {
		if !letterID.MatchString(id) {
			return badRequest("letters: want ids of 16 hex digits")
		}
	}
	return d.Approval.check()
}

func (d DeleteRequest) has(l partition.Letter, masks []string) bool {
	if d.Cause != "" {
		if of, _ := causeOfLetter(l, masks); of != causeOf(d.Cause) {
			return false
		}
	}
	return (d.Reason == "" || d.Reason == l.Reason) && (d.Partition == "" || d.Partition == l.Partition) &&
		(d.Letters == nil || slices.Contains(d.Letters, l.ID))
}

// each hands the letters that match to act, up to letterChunk at once, and not more than
// were confirmed; a dry run only counts them. It returns how many there were, and whether there is
// none left. act returns false to end it.
func (d DeleteRequest) each(ctx context.Context, v View, ns *partition.Namespace,
	act func([]partition.Letter) (on bool, err error)) (taken int64, complete bool, err error) {
	most, cursor := d.bound(d.Limit), ""
	for {
		page, err := v.Store.DeadLetters(ctx, ns, cursor, letterPage)
		if err != nil {
			return taken, false, err
		}
		chosen := slices.DeleteFunc(page.Letters, func(l partition.Letter) bool { return !d.has(l, v.MaskFields) })
		for len(chosen) > 0 {
			n := min(len(chosen), letterChunk)
			if most > 0 {
				n = min(n, int(most-taken))
			}
			if n == 0 {
				return taken, false, nil
			}
			taken += int64(n)
			if !d.DryRun {
				if on, err := act(chosen[:n]); !on {
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

func (s *Server) deleteDead(r *request) (any, error) {
	var body DeleteRequest
	ns := r.namespace()
	r.decode(&body)
	r.fail(body.check())
	return s.exclusively(r, func(ctx context.Context) (any, error) {
		answer := Deleted{DryRun: body.DryRun}
		var err error
		answer.Letters, answer.Complete, err = body.each(ctx, r.view, ns,
			func(letters []partition.Letter) (bool, error) {
				n, err := r.view.Store.Discard(ctx, ns, letters)
				answer.Deleted += int64(n)
				return err == nil, err
			})
		s.actedOnDead(r, "delete_dead", ns, body, answer.Deleted, err)
		return answer, inTime(ctx, err)
	})
}

func (s *Server) replay(r *request) (any, error) {
	body := ReplayRequest{PerSecond: replayPerSecond}
	ns := r.namespace()
	r.decode(&body)
	r.fail(body.check())
	if body.PerSecond < 1 || body.PerSecond > maxPerSecond {
		r.bad("per_second: want 1 to 1000")
	}
	return s.exclusively(r, func(ctx context.Context) (any, error) {
		answer := Replayed{DryRun: body.DryRun, Errors: []string{}}
		began := time.Now()
		found, complete, err := body.each(ctx, r.view, ns,
			func(letters []partition.Letter) (bool, error) {
				slices.Reverse(letters) // the oldest first, as the entries of a partition were; pages come newest first
				for len(letters) > 0 {
					// A tenth of a second's letters at once, so that the rate is even.
					n := min(len(letters), max(1, body.PerSecond/10))
					due := began.Add(time.Duration(answer.Letters) * time.Second / time.Duration(body.PerSecond))
					if !guard.Sleep(ctx, time.Until(due)) {
						return false, nil
					}
					answer.Letters += int64(n)
					if !answer.count(r.view.Store.Replay(ctx, ns, letters[:n])) {
						return false, nil
					}
					letters = letters[n:]
				}
				return true, nil
			})
		if body.DryRun {
			answer.Letters = found
		}
		answer.Complete = complete && answer.Failed == 0
		failure := err
		if failure == nil && answer.Failed > 0 {
			failure = fmt.Errorf("%d failed: %s", answer.Failed, answer.Errors[0])
		}
		s.actedOnDead(r, "replay", ns, body.DeleteRequest, answer.Replayed, failure)
		return answer, inTime(ctx, err)
	})
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

// actedOnDead records an act on dead letters.
func (s *Server) actedOnDead(r *request, action string, ns *partition.Namespace, d DeleteRequest,
	done int64, err error) {
	if d.DryRun {
		return
	}
	detail := fmt.Sprintf("confirmed %d", *d.Confirm)
	if d.Reason != "" {
		detail += ", reason " + d.Reason
	}
	if d.Cause != "" {
		detail += fmt.Sprintf(", cause %.64q", d.Cause)
	}
	if d.Letters != nil {
		detail += fmt.Sprintf(", %d by id", len(d.Letters))
	}
	s.record(r, Act{
		Action:    action,
		Namespace: ns.Name,
		Partition: d.Partition,
		Detail:    detail,
		Entries:   &done,
	}, err)
}
