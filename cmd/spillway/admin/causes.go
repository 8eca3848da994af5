package admin

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/cause"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/mask"
)

const (
	maxCauses = 100 // of an answer, and one for the rest
	maxCause  = job.MaxError
	maxKnown  = 1000   // while they are counted: what comes then is of the rest
	maxLooked = 20_000 // dead letters that a count looks at
)

// A DeadCause is why dead letters are dead, and how many are for that.
type DeadCause struct {
	Cause   string `json:"cause" help:"See cause.Fold; empty: the rest of them."`
	Count   int64  `json:"count"`
	FirstMS int64  `json:"first_ms" help:"When the first and the last of them died."`
	LastMS  int64  `json:"last_ms"`
	Example string `json:"example" help:"What was said of the last one."`
	ID      string `json:"id" help:"Its id."`
}

// DeadCauses are the causes of dead letters, those of most first.
type DeadCauses struct {
	Causes   []DeadCause `json:"causes"`
	Looked   int         `json:"looked" help:"Dead letters that were counted: the newest of a queue, or of the first shards."`
	Complete bool        `json:"complete" help:"These are all."`
}

// causes counts dead letters by cause.
type causes struct {
	known  map[string]*DeadCause
	looked int
}

func (c *causes) add(name, example, id string, at int64) {
	if c.known[name] == nil && len(c.known) >= maxKnown {
		name = ""
	}
	c.looked++
	c.known[name] = cmp.Or(c.known[name], &DeadCause{Cause: name, FirstMS: at})
	c.known[name].join(&DeadCause{Count: 1, FirstMS: at, LastMS: at, Example: example, ID: id})
}

// join counts others to a cause.
func (c *DeadCause) join(others *DeadCause) {
	c.Count += others.Count
	c.FirstMS = min(c.FirstMS, others.FirstMS)
	if others.LastMS >= c.LastMS {
		c.LastMS, c.Example, c.ID = others.LastMS, others.Example, others.ID
	}
}

// answer has the causes of most, and the others as one. A count that its time ended is one of some.
func (c *causes) answer(ctx context.Context, complete bool, err error) (*DeadCauses, error) {
	list, rest := []DeadCause{}, cmp.Or(c.known[""], &DeadCause{FirstMS: math.MaxInt64})
	delete(c.known, "")
	for _, of := range slices.SortedFunc(maps.Values(c.known), func(a, b *DeadCause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Cause, b.Cause))
	}) {
		if len(list) < maxCauses {
			list = append(list, *of)
		} else {
			rest.join(of)
		}
	}
	if rest.Count > 0 {
		list = append(list, *rest)
	}
	return &DeadCauses{list, c.looked, complete && err == nil}, inTime(ctx, err)
}

// causeOfJob is the cause of a dead job, and what was said of it, without what masks hide.
func causeOfJob(j *job.Job, masks []string) (name, said string) {
	said = j.Reason.String()
	if len(j.Errors) > 0 {
		said = mask.Quote(j.Errors[0].Error, j.Payload, masks)
	}
	if len(j.PHP) > 0 {
		said = classOf(j.Payload, masks) + ": " + said
	}
	return causeOf(said), said
}

// causeOfLetter is the same for a dead letter.
func causeOfLetter(l partition.Letter, masks []string) (name, said string) {
	said = cmp.Or(letterOf(l, masks).Detail, l.Reason)
	return causeOf(said), said
}

func causeOf(said string) string { return cmp.Or(cause.Fold(said), "unknown") }

// letterCauses counts the dead letters of a namespace of partitions.
func (s *Server) letterCauses(r *request, ns *partition.Namespace) (*DeadCauses, error) {
	c, cursor := causes{known: map[string]*DeadCause{}}, ""
	for {
		page, err := paced(r.ctx, s.observer.counts, func() (partition.DeadPage, error) {
			return r.view.Store.DeadLetters(r.ctx, ns, cursor, letterPage)
		})
		for _, l := range page.Letters {
			name, said := causeOfLetter(l, r.view.MaskFields)
			c.add(name, said, l.ID, l.DeadAt)
		}
		if cursor = page.Next; err != nil || cursor == "" || c.looked >= maxLooked {
			return c.answer(r.ctx, cursor == "", err)
		}
	}
}

// jobCauses counts the newest of the dead letters of a queue.
func (s *Server) jobCauses(r *request, space jobSpace, queue string, total int) (*DeadCauses, error) {
	c, left := causes{known: map[string]*DeadCause{}}, total-maxLooked
	err := s.eachDead(r.ctx, space, queue, max(0, left), func(list []job.Job) (int, error) {
		for i := range list {
			name, said := causeOfJob(&list[i], r.view.MaskFields)
			c.add(name, said, list[i].ID, list[i].At)
		}
		return 0, nil
	})
	return c.answer(r.ctx, left <= 0, err)
}

// eachDead hands the dead letters of a queue to visit, page by page, the oldest first, from one on; visit returns how many of
// them are none any more.
func (s *Server) eachDead(ctx context.Context, space jobSpace, queue string, from int, visit func([]job.Job) (gone int, err error)) error {
	for {
		list, err := paced(ctx, s.observer.counts, func() ([]job.Job, error) {
			list, _, err := space.store.Dead(ctx, space.ns, queue, from, maxDeadJobs)
			return list, err
		})
		if err != nil || len(list) == 0 {
			return err
		}
		gone, err := visit(list)
		if err != nil {
			return err
		}
		from += len(list) - gone
	}
}

// actByCause does an act for the oldest dead letters of a queue that have a cause, up to its limit. What dies again meanwhile
// is not of it.
func (s *Server) actByCause(ctx context.Context, a *job.DeadAct, space jobSpace, name string, masks []string) (done int, err error) {
	began := int64(0)
	err = s.eachDead(ctx, space, a.Queue, 0, func(list []job.Job) (int, error) {
		began = cmp.Or(began, list[0].Now)
		page := *a
		page.Named = []job.Ref{}
		for i := range list {
			if of, _ := causeOfJob(&list[i], masks); of == name && list[i].At <= began && done+len(page.Named) < a.Limit {
				page.Named = append(page.Named, list[i].Ref)
			}
		}
		if len(page.Named) == 0 || a.Verb == job.CountDead {
			done += len(page.Named)
			return 0, nil
		}
		n, err := space.store.ActOnDead(ctx, &page)
		done += n
		return n, err
	})
	return done, err
}
