package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/share"
)

// reading is alone for a request that counts as one job against the rate at which the token
// consumes.
func (a *api) reading(c *call, changes bool, read func(ctx context.Context) (any, error)) *ingest.Rejection {
	if c.wrong != nil {
		return c.wrong
	}
	if _, rejected := c.take(c.key.Limiters().Consume, 1); rejected != nil {
		return rejected
	}
	return a.alone(c, changes, read)
}

// alone answers, unless the request is wrong, with what a round trip to the store of its own brings:
// bytes, or what is written as JSON. See ask.
func (a *api) alone(c *call, changes bool, read func(ctx context.Context) (any, error)) *ingest.Rejection {
	if c.wrong != nil {
		return c.wrong
	}
	var text []byte
	if rejected := a.ask(c, changes, func(ctx context.Context) error {
		answer, err := read(ctx)
		if err != nil {
			return err
		}
		var is bool
		if text, is = answer.([]byte); !is {
			text, err = json.Marshal(answer)
		}
		return err
	}); rejected != nil {
		return rejected
	}
	return c.Answer(200, jsonType, append(text, '\n'))
}

// job is the one that the path names.
func (c *call) job() job.Ref {
	ref, exists := c.namespace.ParseID(c.queue(), c.id)
	if !exists { // no job has this id: the store need not be asked
		c.fail(wire.CodeNoSuchJob, "")
	}
	return ref
}

// ask asks the store by itself, in turn with the requests of other namespaces. changes is whether
// that changes something: then an error that is not known to be harmless says so.
func (a *api) ask(c *call, changes bool, read func(ctx context.Context) error) *ingest.Rejection {
	ctx, cancel := context.WithTimeout(share.As(context.Background(), c.namespace.Name),
		a.cfg.FlushTimeout)
	defer cancel()
	err := read(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, partition.ErrTooManyReads):
		return ingest.Reject(wire.CodeOverloaded, "")
	case !changes && errors.Is(err, partition.ErrUnknown):
		return ingest.Reject(wire.CodeStoreUnavailable, "")
	}
	return a.reject(c, err)
}

// counts says how many jobs a queue has.
func (a *api) counts(c *call) *ingest.Rejection {
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		n, err := a.store.Counts(ctx, c.namespace, c.queue())
		if err != nil {
			return nil, err
		}
		dst := fmt.Appendf(nil, `{"namespace":"%s","queue":"%s"`, c.namespace.Name, c.queue())
		for _, f := range []struct {
			name  string
			value int64
		}{{"ready", n.Ready}, {"delayed", n.Delayed}, {"leased", n.Leased}, {"pending", n.Pending},
			{"dead", n.Dead}, {"reserved", n.Reserved}} {
			if f.value >= 0 && (f.name != "reserved" || c.namespace.PHP) { // -1: too many of both to tell apart
				dst = fmt.Appendf(dst, `,"%s":%d`, f.name, f.value)
			}
		}
		age := int64(0)
		if now, known := a.store.Now(); known && n.OldestReady > 0 {
			age = max(0, now-n.OldestReady)
		}
		return fmt.Appendf(dst, `,"oldest_age_ms":%d}`, age), nil
	})
}

// peek shows the job that is claimed next.
func (a *api) peek(c *call) *ingest.Rejection {
	c.text()
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		j, err := a.store.Peek(ctx, c.namespace, c.queue())
		return a.shown(c, j, job.Ready, err)
	})
}

// get shows a job, whatever its state, with wait once it has ended.
func (a *api) get(c *call) *ingest.Rejection {
	ref := c.job()
	c.text()
	if _, waits := c.args["wait"]; waits {
		return a.await(c, ref)
	}
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		j, state, err := a.store.Get(ctx, c.namespace, c.queue(), ref)
		return a.shown(c, j, state, err)
	})
}

// trace tells what happened to a job, which may be gone since.
func (a *api) trace(c *call) *ingest.Rejection {
	ref, exists := c.namespace.ParseID(c.queue(), c.id)
	if !exists {
		return ingest.Reject(wire.CodeNoSuchTrace, "")
	}
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		of, err := job.As[job.Traces](a.store)
		if err != nil {
			return nil, err
		}
		events, err := of.Trace(ctx, c.namespace, c.queue(), ref)
		return map[string]any{"events": events}, err
	})
}

func (a *api) shown(c *call, j job.Job, state job.State, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	size, err := c.room([]job.Job{j}, c.text())
	if err != nil {
		return nil, err
	}
	return append(appendShown(make([]byte, 0, size), j, state, c.text()), '}'), nil
}

// room reserves memory for an answer that holds jobs. size is the most bytes it can have.
func (c *call) room(jobs []job.Job, text bool) (size int, err error) {
	size = 128
	for i := range jobs {
		size += jobSize(&jobs[i], text)
	}
	if c.Reserve(size) != nil {
		return 0, ErrOverloaded
	}
	return size, nil
}

// appendShown appends a job that was read with its state and why it died, but its closing
// brace. A dead job does not expire.
func appendShown(dst []byte, j job.Job, state job.State, text bool) []byte {
	if state == job.Dead {
		j.Expires = 0
	}
	dst = fmt.Appendf(appendJob(dst, &j, text), `,"state":"%s"`, state)
	if state == job.Delayed && j.At > 0 {
		dst = fmt.Appendf(dst, `,"due_ms":%d`, j.At)
	}
	if state == job.Acked {
		dst = fmt.Appendf(dst, `,"acked_ms":%d`, j.At)
	}
	if len(j.Result) > 0 {
		dst = append(append(dst, `,"result":`...), j.Result...)
	}
	if j.Deferred {
		dst = append(dst, `,"deferred":true`...)
	}
	if j.Reason != job.UnknownReason {
		dst = fmt.Appendf(dst, `,"reason":"%s"`, j.Reason)
	}
	if j.Progress != nil {
		note, _ := json.Marshal(j.Progress.Note) // a string cannot fail
		dst = fmt.Appendf(dst, `,"progress":%d,"note":%s`, j.Progress.Percent, note)
	}
	if len(j.Errors) > 0 {
		errors, _ := json.Marshal(j.Errors) // texts and numbers cannot fail
		dst = append(append(dst, `,"errors":`...), errors...)
	}
	return dst
}

// delete ends a job, as an ack does.
func (a *api) delete(c *call) *ingest.Rejection {
	ref := c.job()
	if c.wrong != nil {
		return c.wrong
	}
	ack := &job.Ack{
		Namespace: c.namespace,
		Queue:     c.queue(),
		Ref:       ref,
		Delete:    true,
		By:        c.key.Name(),
	}
	a.Ack(ack)
	switch {
	case ack.Err != nil:
		return a.reject(c, ack.Err)
	case ack.Acked:
		return c.Answer(200, jsonType, []byte("{\"state\":\"acked\"}\n"))
	case ack.Deleted:
		return c.Answer(200, jsonType, []byte("{\"state\":\"deleted\"}\n"))
	}
	return ingest.Reject(wire.CodeNoSuchJob, "")
}

// purge deletes jobs of a queue.
func (a *api) purge(c *call) *ingest.Rejection {
	state := c.choice("state", "ready", "all")
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		n, err := a.store.Purge(ctx, c.namespace, c.queue(), state == "all")
		return counted("deleted", n, "", false, err)
	})
}

// Bounds of a page of dead letters; the store ends one at about 1 MiB, too.
const (
	maxDeadJobs   = 100
	maxDeadOffset = 1_000_000_000
)

// listDead shows dead letters, the oldest first.
func (a *api) listDead(c *call) *ingest.Rejection {
	limit, offset := c.number("limit", 20, 1, maxDeadJobs), c.number("offset", 0, 0, maxDeadOffset)
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		list, total, err := a.store.Dead(ctx, c.namespace, c.queue(), offset, limit)
		if err != nil {
			return nil, err
		}
		size, err := c.room(list, false)
		if err != nil {
			return nil, err
		}
		dst := fmt.Appendf(make([]byte, 0, size), `{"total":%d,"jobs":[`, total)
		for i := range list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = fmt.Appendf(appendShown(dst, list[i], job.Dead, false), `,"died_ms":%d}`, list[i].At)
		}
		return append(dst, "]}"...), nil
	})
}

// list shows a page of the jobs of a queue that are in a state.
func (a *api) list(c *call) *ingest.Rejection {
	l := job.List{
		Queue: c.queue(),
		State: job.StateOf(c.choice("state", "ready", "prepared", "delayed", "leased", "dead", "acked")),
		After: c.args["after"],
		Data:  c.args["data"] == "1",
	}
	if _, given := c.args["data"]; given && !l.Data {
		c.bad("data", "1, or left out")
	}
	l.Limit = c.number("limit", 100, 1, job.MaxListed)
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		of, err := job.As[job.Lists](a.store)
		if err != nil {
			return nil, err
		}
		list, next, err := of.List(ctx, c.namespace, l)
		if err != nil {
			return nil, err
		}
		if _, err = c.room(list, false); err != nil {
			return nil, err
		}
		return job.ListedPage(l, list, next), nil
	})
}

// dead respawns or deletes dead letters: the oldest that a selection matches, or those that the body names.
func (a *api) dead(c *call) *ingest.Rejection {
	act := &job.DeadAct{
		Namespace: c.namespace,
		Queue:     c.queue(),
		Verb:      job.DeadVerb(c.choice("do", string(job.RespawnDead), string(job.DeleteDead))),
		Limit:     c.number("limit", 100, 1, maxDead),
		TTL:       c.duration("ttl", 0, 0, job.MaxTTL),
		Age:       c.duration("age", 0, 0, job.MaxTTL),
		Error:     c.args["error"],
		After:     c.args["after"],
	}
	if _, given := c.args["error"]; len(act.Error) > job.MaxError || given && act.Error == "" { // of a variable that is not set: it would select all
		c.fail(wire.CodeBadError, "")
	}
	if reason, given := c.args["reason"]; given {
		if act.Reason = job.ReasonOf(reason); act.Reason == job.UnknownReason {
			c.fail(wire.CodeBadReason, "")
		}
	}
	if _, given := c.args["ttl"]; given && act.Verb == job.DeleteDead {
		c.fail(wire.CodeBadTTL, "ttl is for do=respawn")
	}
	if c.wrong != nil {
		return c.wrong
	}
	body, rejected := c.Body()
	switch {
	case rejected == nil:
		return a.deadByID(c, act, body)
	case rejected.Code != wire.CodeEmptyBody:
		return rejected
	}
	what := map[job.DeadVerb]string{job.RespawnDead: "respawned", job.DeleteDead: "deleted"}[act.Verb]
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		n, err := a.store.ActOnDead(ctx, act)
		return counted(what, int64(n), act.Next, n == act.Limit, err)
	})
}

// deadByID acts on the dead letters that the body names, and answers about each.
func (a *api) deadByID(c *call, act *job.DeadAct, body []byte) *ingest.Rejection {
	for _, name := range []string{"limit", "reason", "error", "age", "after"} {
		if _, given := c.args[name]; given {
			return ingest.Reject(wire.CodeBadParameter, name+" selects dead letters, and the body names some: leave one of them out")
		}
	}
	if rejected := c.Reserve(4 * len(body)); rejected != nil {
		return rejected
	}
	var named struct {
		IDs []string `json:"ids"`
	}
	if err := decodeOne(body, &named); err != nil || len(named.IDs) == 0 || len(named.IDs) > job.MaxNamed {
		return ingest.Reject(wire.CodeBadJSON, fmt.Sprintf(`the body is {"ids":["…"]}, with 1 to %d ids`, job.MaxNamed))
	}
	at := make([]int, len(named.IDs)) // of each id, in act.Named; -1: no job has it
	act.Named = []job.Ref{}
	for i, id := range named.IDs {
		at[i] = -1
		if ref, exists := c.namespace.ParseID(c.queue(), id); exists {
			at[i] = len(act.Named)
			act.Named = append(act.Named, ref)
		}
	}
	state := map[job.DeadVerb]string{job.RespawnDead: "ready", job.DeleteDead: "deleted"}[act.Verb]
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		done, err := a.store.ActOnDead(ctx, act)
		if err != nil && done == 0 {
			return nil, err
		}
		results := make([]deadResult, len(at))
		for i := range results {
			switch {
			case at[i] >= 0 && act.Did[at[i]]:
				results[i] = deadResult{I: i, State: state}
			case err != nil:
				results[i] = deadResult{I: i, Error: string(wire.CodeStoreUnavailable)}
			default:
				results[i] = deadResult{I: i, State: job.Gone.String()}
			}
		}
		return map[string]any{"results": results}, nil
	})
}

// deadResult is what became of a dead letter that a request named.
type deadResult struct {
	I     int    `json:"i"`
	State string `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
}

// maxDead is how many dead letters a request respawns or deletes: what fits into one
// timeout.
const maxDead = 10_000

// counted says how many jobs were done, also beside an error or a limit that ended the work: who asks again
// goes on where it ended, by next where that is not the oldest.
func counted(what string, n int64, next string, limited bool, err error) ([]byte, error) {
	if err != nil && n == 0 && next == "" {
		return nil, err
	}
	dst := fmt.Appendf(nil, `{"%s":%d`, what, n)
	if next != "" {
		dst = fmt.Appendf(dst, `,"next":%q`, next)
	}
	return fmt.Appendf(dst, `,"complete":%t}`, err == nil && !limited), nil
}
