package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// reschedule gives a delayed job another time, another payload, or both. It counts as a publish
// of one job.
func (a *api) reschedule(c *call) *ingest.Rejection {
	body, rejected := c.Body()
	if rejected != nil {
		return rejected
	}
	if rejected := c.Reserve(len(body)); rejected != nil {
		return rejected
	}
	r, rejected := a.readChange(body)
	if rejected != nil {
		return rejected
	}
	r.Namespace, r.Queue, r.Ref = c.namespace, c.queue(), c.job()
	if c.wrong != nil {
		return c.wrong
	}
	taken, rejected := c.take(c.key.Limiters().Produce, 1)
	if rejected != nil {
		return rejected
	}
	return a.alone(c, true, func(ctx context.Context) (any, error) {
		err := a.edit(ctx, r)
		if err != nil && !errors.Is(err, partition.ErrUnknown) {
			taken.Refund()
		}
		if errors.Is(err, job.ErrExpiresBefore) {
			return nil, ingest.Reject(wire.CodeBadTTL,
				"the job's ttl, which counts from its publish, ends before that time")
		}
		return fmt.Appendf(nil, `{"state":"delayed","due_ms":%d}`, r.Due), err
	})
}

// edit changes a job that waits, where the kind of its queue has that.
func (a *api) edit(ctx context.Context, r *job.Reschedule) error {
	of, err := job.As[job.Edits](a.store)
	if err != nil {
		return err
	}
	return of.Reschedule(ctx, r)
}

// change is the body of a reschedule, each key as it was sent; "": it was not.
type change struct{ delayMS, at, data, base64 string }

// fieldsOf reads the object, strictly: a key that is unknown or given twice is rejected, as a
// mistyped one would be ignored.
func fieldsOf(body []byte) (f change, rejected *ingest.Rejection) {
	object := gjson.Result{}
	if wire.ValidJSON(body) {
		object = gjson.ParseBytes(body)
	}
	if !object.IsObject() {
		return f, ingest.Reject(wire.CodeBadJSON, changeForm)
	}
	of := map[string]*string{"delay_ms": &f.delayMS, "at": &f.at, "data": &f.data,
		"data_base64": &f.base64}
	object.ForEach(func(key, value gjson.Result) bool {
		field := of[key.Str]
		if field == nil || *field != "" {
			rejected = ingest.Reject(wire.CodeBadJSON,
				fmt.Sprintf("%.32q is unknown, or there twice: ", key.Str)+changeForm)
			return false
		}
		*field = value.Raw
		return true
	})
	if rejected == nil && f == (change{}) {
		rejected = ingest.Reject(wire.CodeBadJSON, changeForm)
	}
	return f, rejected
}

const changeForm = `the body is one object with delay_ms or at, data or data_base64, or one of each, such as {"delay_ms":5000,"data":{"n":1}}`

// readChange reads the body of a reschedule.
func (a *api) readChange(body []byte) (*job.Reschedule, *ingest.Rejection) {
	f, rejected := fieldsOf(body)
	if rejected != nil {
		return nil, rejected
	}
	r := &job.Reschedule{}
	switch {
	case f.at != "" && f.delayMS != "":
		return nil, ingest.Reject(wire.CodeBadAt, "delay_ms and at say the same: give one of them")
	case f.delayMS != "":
		n, err := strconv.ParseInt(f.delayMS, 10, 64)
		if err != nil || n < 0 || n > job.MaxDelay.Milliseconds() {
			return nil, ingest.Reject(wire.CodeBadDelayMS,
				fmt.Sprintf("delay_ms is a whole number from 0 to %d", job.MaxDelay.Milliseconds()))
		}
		delay := time.Duration(n) * time.Millisecond
		r.Delay = &delay
	case f.at != "":
		var at time.Time
		if f.at[0] != '"' || json.Unmarshal([]byte(f.at), &at) != nil || at.Year() < 1970 ||
			at.Year() >= 2200 {
			return nil, ingest.Reject(wire.CodeBadAt,
				"at is a time of RFC 3339 to come, such as 2026-12-01T02:30:00Z")
		}
		delay, rejected := a.delayUntil(at)
		if rejected != nil {
			return nil, rejected
		}
		r.Delay = &delay
	}
	switch {
	case f.data != "" && f.base64 != "":
		return nil, ingest.Reject(wire.CodeBadData, "")
	case f.data != "":
		r.Payload = []byte(f.data)
	case f.base64 != "":
		if f.base64[0] != '"' || json.Unmarshal([]byte(f.base64), &r.Payload) != nil {
			return nil, ingest.Reject(wire.CodeBadData,
				"data_base64 is base64, as of RFC 4648, section 4, in a string")
		}
	}
	if len(r.Payload) > a.cfg.MaxEntry {
		return nil, ingest.Reject(wire.CodeEntryTooLarge,
			fmt.Sprintf("data is larger than %d bytes", a.cfg.MaxEntry))
	}
	return r, nil
}

// unique reads for how long a job is the only one of its kind, and what that is.
func (c *call) unique(p *job.Publish, shards int) {
	p.Unique = c.duration("unique", 0, time.Second, job.MaxKeyTTL)
	key, keyed := c.args["unique_key"]
	how, conflict := c.args["on_conflict"]
	switch {
	case conflict && (p.Unique == 0 || how != "keep" && how != "replace" && how != "extend"):
		c.fail(wire.CodeBadOnConflict, "")
	case keyed && (p.Unique == 0 || p.CallerID != "" || key == "" || len(key) > job.MaxUniqueKey || !printable(key)):
		c.fail(wire.CodeBadUniqueKey, "")
	case p.Unique > 0 && !keyed && p.CallerID == "":
		c.fail(wire.CodeBadUnique, "what is unique is missing: send unique_key or id")
	case p.Unique > 0 && shards > 0:
		c.fail(wire.CodeBadUnique, "unique is for one job, and shards makes several")
	case how == "extend" && p.Delay == 0 && c.args["at"] == "":
		c.late = ingest.Reject(wire.CodeBadOnConflict, "on_conflict=extend begins the delay anew: send delay or at")
	}
	p.UniqueKey = key
}

// releaseUnique ends what a publish with unique says to be unique, by the parameters that named it.
func (a *api) releaseUnique(c *call) *ingest.Rejection {
	p := &job.Publish{Namespace: c.namespace, Queue: c.queue(), Unique: 1, UniqueKey: c.args["unique_key"], CallerID: c.args["id"]}
	switch {
	case (p.UniqueKey == "") == (p.CallerID == ""), len(p.UniqueKey) > job.MaxUniqueKey, !printable(p.UniqueKey):
		c.fail(wire.CodeBadUniqueKey, "what is to be unique no more is missing: send unique_key or id, as the publish had it")
	case p.CallerID != "" && !job.ValidCallerID(p.CallerID):
		c.fail(wire.CodeBadID, "")
	}
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		of, err := job.As[job.Edits](a.store)
		if err != nil {
			return nil, err
		}
		released, err := of.ReleaseUnique(ctx, p)
		return fmt.Appendf(nil, `{"released":%t}`, released), err
	})
}

// printable reports whether a text is UTF-8 without control characters.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// resolve changes the job that a publish met, as its on_conflict says, while it is delayed and was never
// claimed. It reports whether it did.
func (a *api) resolve(c *call, p *job.Publish) (changed bool, rejected *ingest.Rejection) {
	how := c.args["on_conflict"]
	if !p.Exists || how != "replace" && how != "extend" {
		return false, nil
	}
	r := &job.Reschedule{
		Namespace: c.namespace,
		Queue:     p.Queue,
		Ref:       job.Ref{Shard: p.Shard, Seq: p.First, CallerID: p.CallerID},
		Delay:     &p.Delay,
		Unique:    p,
	}
	if how == "replace" {
		r.Payload = p.Messages[0].Payload
	}
	rejected = a.ask(c, true, func(ctx context.Context) error {
		err := a.edit(ctx, r)
		if errors.Is(err, job.ErrNoJob) || errors.Is(err, job.ErrNotDelayed) || errors.Is(err, job.ErrExpiresBefore) {
			return nil
		}
		changed = err == nil
		return err
	})
	return changed, rejected
}
