package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/partition"
)

const (
	maxSelected     = 1000 // letters by id in one request
	replayPerSecond = 100  // unless the request says another rate
	maxPerSecond    = 1000
	letterChunk     = 64 // letters that are replayed or deleted at once
	maxErrors       = 5  // of an answer
)

// deleteRequest says which dead letters to delete. Each field narrows the choice.
type deleteRequest struct {
	Letters   []string `json:"letters"` // default: all
	Reason    string   `json:"reason"`
	Partition string   `json:"partition"`
	Limit     int64    `json:"limit"` // 0: no limit
	approval
}

// replayRequest says which dead letters to produce again.
type replayRequest struct {
	deleteRequest
	PerSecond int `json:"per_second"` // default 100
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

func (d deleteRequest) check() error {
	if d.Limit < 0 || len(d.Letters) > maxSelected {
		return badRequest("limit: want 0 or more; letters: want 1000 at most")
	}
	if len(d.Reason) > maxReason || d.Partition != "" && !partition.ValidPartition(d.Partition) {
		return badRequest("reason: want 512 bytes at most; partition: want a name of a partition")
	}
	for _, id := range d.Letters {
		if !letterID.MatchString(id) {
			return badRequest("letters: want ids of 16 hex digits")
		}
	}
	return d.approval.check()
}

func (d deleteRequest) has(l partition.Letter) bool {
	return (d.Reason == "" || d.Reason == l.Reason) && (d.Partition == "" || d.Partition == l.Partition) &&
		(d.Letters == nil || slices.Contains(d.Letters, l.ID))
}

// each hands the letters that match to act, up to letterChunk at once, and not more than
// were confirmed. It returns how many it handed over, and whether there is none left. act
// returns false to end it.
func (d deleteRequest) each(ctx context.Context, store Store, ns *partition.Namespace, act func([]partition.Letter) bool) (taken int64, complete bool, err error) {
	most, cursor := d.bound(d.Limit), ""
	for {
		page, err := store.DeadLetters(ctx, ns, cursor, letterPage)
		if err != nil {
			return taken, false, letterError(err)
		}
		chosen := slices.DeleteFunc(page.Letters, func(l partition.Letter) bool { return !d.has(l) })
		for len(chosen) > 0 {
			n := min(len(chosen), letterChunk)
			if most > 0 {
				n = min(n, int(most-taken))
			}
			if n == 0 {
				return taken, false, nil
			}
			taken += int64(n)
			if !act(chosen[:n]) {
				return taken, false, nil
			}
			chosen = chosen[n:]
		}
		if cursor = page.Next; cursor == "" {
			return taken, true, nil
		}
	}
}

func (s *Server) deleteDead(r *request) (any, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	var body deleteRequest
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	if err := body.check(); err != nil {
		return nil, err
	}
	return s.exclusively(r, func(ctx context.Context) (any, error) {
		answer := Deleted{DryRun: body.DryRun}
		var failed error
		answer.Letters, answer.Complete, err = body.each(ctx, r.view.Store, ns, func(letters []partition.Letter) bool {
			if body.DryRun {
				return true
			}
			n, err := r.view.Store.Discard(ctx, ns, letters)
			answer.Deleted += int64(n)
			failed = err
			return err == nil
		})
		if err == nil {
			err = failed
		}
		if !body.DryRun {
			s.tallies.forget(ns.Name)
			s.record(r, body.act("delete_dead", ns, &answer.Deleted), err)
		}
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		return answer, nil
	})
}

func (s *Server) replay(r *request) (any, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	body := replayRequest{PerSecond: replayPerSecond}
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	if err := body.check(); err != nil {
		return nil, err
	}
	if body.PerSecond < 1 || body.PerSecond > maxPerSecond {
		return nil, badRequest("per_second: want 1 to 1000")
	}
	return s.exclusively(r, func(ctx context.Context) (any, error) {
		answer := Replayed{DryRun: body.DryRun, Errors: []string{}}
		began, sent := time.Now(), 0
		_, answer.Complete, err = body.each(ctx, r.view.Store, ns, func(letters []partition.Letter) bool {
			if body.DryRun {
				answer.Letters += int64(len(letters))
				return true
			}
			slices.Reverse(letters) // the oldest first, as the entries of a partition were; pages come newest first
			for len(letters) > 0 {
				// A tenth of a second's letters at once, so that the rate is even.
				n := min(len(letters), max(1, body.PerSecond/10))
				due := began.Add(time.Duration(sent) * time.Second / time.Duration(body.PerSecond))
				if !drain.Sleep(ctx, time.Until(due)) {
					return false
				}
				sent += n
				answer.Letters += int64(n)
				if !answer.count(r.view.Store.Replay(ctx, ns, letters[:n])) {
					return false
				}
				letters = letters[n:]
			}
			return true
		})
		answer.Complete = answer.Complete && answer.Failed == 0
		if !body.DryRun {
			s.tallies.forget(ns.Name)
			failure := err
			if failure == nil && answer.Failed > 0 {
				failure = fmt.Errorf("%d failed: %s", answer.Failed, answer.Errors[0])
			}
			s.record(r, body.act("replay", ns, &answer.Replayed), failure)
		}
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		return answer, nil
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

// act is the line of the trail.
func (d deleteRequest) act(action string, ns *partition.Namespace, done *int64) Act {
	detail := fmt.Sprintf("confirmed %d", *d.Confirm)
	if d.Reason != "" {
		detail += ", reason " + d.Reason
	}
	if d.Letters != nil {
		detail += fmt.Sprintf(", %d by id", len(d.Letters))
	}
	return Act{Action: action, Namespace: ns.Name, Partition: d.Partition, Detail: detail, Entries: done}
}
