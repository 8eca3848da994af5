package spillway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A Spec says when a schedule publishes, and what. One of Cron, Every and At is set; of each
// other field the zero value is its default. SCHEDULES.md of the service says what the words
// mean.
type Spec struct {
	Cron   string        // five fields, or @hourly, @daily, @weekly, @monthly, @yearly
	Zone   string        // of Cron, an IANA name such as Europe/Berlin; default UTC
	Every  time.Duration // 1s or more, counted from From, or from 1970
	From   time.Time
	At     time.Time     // once, a time to come
	Jitter time.Duration // each tick is up to so much later, the same in every process

	Payload    []byte // of the jobs; default null
	Attributes map[string]string
	Tries      int           // of each job; default that of the queue
	TTL        time.Duration // of each job; default for ever
	Shards     int           // jobs of a run, with the attributes shard_index and shard_total; default 1

	Overlap string         // while a job of the last run is unfinished: allow (default), skip or buffer
	Missed  string         // of ticks later than Grace: one (default), all or skip
	Grace   *time.Duration // default 1m
	Window  time.Duration  // ticks later than this never run; default none
	Until   time.Time      // no tick after; default none
	MaxRuns int64          // no run beyond; default none

	OnEnd string // queue that gets a follow-up for each job; default none
	Track bool   // count the jobs that ended well, and that did not
}

// span is a duration as the service writes it.
type span time.Duration

func (d span) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *span) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = span(v)
	return err
}

// specForm is a Spec as the service takes it.
type specForm struct {
	Queue      string            `json:"queue,omitempty"` // of one that is registered
	Name       string            `json:"name,omitempty"`
	Owner      string            `json:"owner,omitempty"`
	Cron       string            `json:"cron,omitempty"`
	Zone       string            `json:"tz,omitempty"`
	Every      span              `json:"every,omitzero"`
	From       time.Time         `json:"from,omitzero"`
	At         time.Time         `json:"at,omitzero"`
	Jitter     span              `json:"jitter,omitzero"`
	Data       json.RawMessage   `json:"data,omitempty"`
	Base64     []byte            `json:"data_base64,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Tries      int               `json:"tries,omitempty"`
	TTL        span              `json:"ttl,omitzero"`
	Shards     int               `json:"shards,omitempty"`
	Overlap    string            `json:"overlap,omitempty"`
	Missed     string            `json:"missed,omitempty"`
	Grace      *span             `json:"grace,omitempty"`
	Window     span              `json:"window,omitzero"`
	Until      time.Time         `json:"until,omitzero"`
	MaxRuns    int64             `json:"max_runs,omitempty"`
	OnEnd      string            `json:"on_end,omitempty"`
	Track      bool              `json:"track,omitempty"`
}

// MarshalJSON writes what the service takes.
func (s Spec) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.form())
}

func (s Spec) form() specForm {
	return specForm{
		"",
		"",
		"",
		s.Cron,
		s.Zone,
		span(s.Every),
		s.From,
		s.At,
		span(s.Jitter),
		nil,
		s.Payload,
		s.Attributes,
		s.Tries,
		span(s.TTL),
		s.Shards,
		s.Overlap,
		s.Missed,
		(*span)(s.Grace),
		span(s.Window),
		s.Until,
		s.MaxRuns,
		s.OnEnd,
		s.Track,
	}
}

// UnmarshalJSON reads what the service answers.
func (s *Spec) UnmarshalJSON(text []byte) error {
	var f specForm
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("spillway: a specification: %w", err)
	}
	payload := f.Base64
	if payload == nil {
		payload = f.Data
	}
	*s = Spec{
		f.Cron,
		f.Zone,
		time.Duration(f.Every),
		f.From,
		f.At,
		time.Duration(f.Jitter),
		payload,
		f.Attributes,
		f.Tries,
		time.Duration(f.TTL),
		f.Shards,
		f.Overlap,
		f.Missed,
		(*time.Duration)(f.Grace),
		time.Duration(f.Window),
		f.Until,
		f.MaxRuns,
		f.OnEnd,
		f.Track,
	}
	return nil
}

// A Schedule is what the service says of one.
type Schedule struct {
	Queue, Name string
	State       string // active, paused or ended
	Owner       string // that registered it; "": nobody
	Revision    int64  `json:"rev"`
	Next        []time.Time
	Ticks       Ticks
	Jobs        EndedJobs     // with Track
	Last        []ScheduleRun // the newest first, five at most
	Spec        Spec
}

// Ticks is the account of a schedule: what became of each tick since it was made. Total is the
// sum of the others.
type Ticks struct{ Total, Fired, Missed, Overlapped, Paused, Unregistered, Superseded, Waiting int64 }

// EndedJobs is how the jobs of a schedule ended: OK are acked.
type EndedJobs struct{ OK, Failed int64 }

// A ScheduleRun is the jobs of one tick.
type ScheduleRun struct {
	Tick  time.Time
	Cause string   // due, caught_up, waited, triggered or backfilled
	IDs   []string // ten at most
}

// Schedules are the schedules of a namespace. Its calls have the errors of Queues; ErrInvalid of
// a specification tells the field that is wrong.
type Schedules struct{ jobs *Queues }

// Schedules returns the schedules of the namespace.
func (q *Queues) Schedules() Schedules { return Schedules{q} }

func (s Schedules) call(ctx context.Context, method, queue, tail string, r jobRequest,
	result any) (maybe bool, err error) {
	if err := checkQueue(queue); err != nil {
		return false, err
	}
	r.method, r.path = method, queue+"/schedules"+tail
	return s.jobs.do(ctx, r, result)
}

func named(name string) string { return "/" + url.PathEscape(name) }

// PutOptions are what a Put may say.
type PutOptions struct {
	Revision int64 // replace this one only; 0: any, or none
}

// Put makes a schedule, or replaces its specification: what is due by the one before fires
// first. The same again changes nothing. It returns the next ticks, five at most. ErrInvalid
// with the code revision_mismatch: it has another Revision.
func (s Schedules) Put(ctx context.Context, queue, name string, spec Spec,
	o PutOptions) (next []time.Time, err error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("spillway: write a specification: %w", err)
	}
	var said struct {
		Rev  int64
		Next []time.Time
	}
	r := jobRequest{contentType: "application/json", body: body}
	if o.Revision != 0 {
		r.ifMatch = strconv.FormatInt(o.Revision, 10)
	}
	if _, err = s.call(
		ctx,
		http.MethodPut,
		queue,
		named(name),
		r,
		&said,
	); err == nil && said.Rev == 0 {
		err = errForeign
	}
	return said.Next, err
}

// Get returns a schedule, or ErrNoSchedule.
func (s Schedules) Get(ctx context.Context, queue, name string) (said Schedule, err error) {
	if _, err = s.call(ctx, http.MethodGet, queue, named(name), jobRequest{}, &said); err == nil &&
		said.Name == "" {
		err = errForeign
	}
	return said, err
}

// List goes through the schedules of a queue by name, a hundred a request. It ends with the
// first error.
func (s Schedules) List(ctx context.Context, queue string) iter.Seq2[Schedule, error] {
	return func(yield func(Schedule, error) bool) {
		for after := ""; ; {
			var said struct {
				Schedules []Schedule
				Next      string
			}
			_, err := s.call(ctx, http.MethodGet, queue, "",
				jobRequest{query: url.Values{"after": {after}}}, &said)
			if err != nil {
				yield(Schedule{}, err)
				return
			}
			for _, one := range said.Schedules {
				if !yield(one, nil) {
					return
				}
			}
			if after = said.Next; after == "" {
				return
			}
		}
	}
}

// Delete removes a schedule, or returns ErrNoSchedule. Jobs that it published stay.
func (s Schedules) Delete(ctx context.Context, queue, name string) error {
	var said struct{ Result string }
	maybe, err := s.call(ctx, http.MethodDelete, queue, named(name), jobRequest{}, &said)
	if maybe && errors.Is(err, ErrNoSchedule) {
		return nil // most likely because of an attempt whose answer was lost
	}
	return err
}

// Pause stops a schedule: ticks until Resume count as paused, and do not fire later.
func (s Schedules) Pause(ctx context.Context, queue, name string) error {
	return s.act(ctx, queue, name, "/pause")
}

// Resume ends a Pause.
func (s Schedules) Resume(ctx context.Context, queue, name string) error {
	return s.act(ctx, queue, name, "/resume")
}

func (s Schedules) act(ctx context.Context, queue, name, verb string) error {
	var said struct{ State string }
	_, err := s.call(ctx, http.MethodPost, queue, named(name)+verb, jobRequest{}, &said)
	return err
}

// TriggerOptions are what a Trigger may say.
type TriggerOptions struct {
	// Force runs it beside a run that is unfinished; without it that is ErrUnfinished, unless
	// Overlap is allow.
	Force bool
	// Key makes a repeat within 2m publish nothing, and answer what the first did. Without one
	// each call has a key of its own, for its own attempts.
	Key string
}

// Trigger publishes a run now, beside the ticks, also of a schedule that is paused or ended.
func (s Schedules) Trigger(ctx context.Context, queue, name string,
	o TriggerOptions) (Published, error) {
	r := jobRequest{key: o.Key, keyTTL: 2 * time.Minute, query: url.Values{}}
	if r.key == "" {
		r.key = s.jobs.newKey()
	}
	if o.Force {
		r.query.Set("force", "1")
	}
	var said struct {
		IDs      []string
		Repeated bool
	}
	_, err := s.call(ctx, http.MethodPost, queue, named(name)+"/trigger", r, &said)
	if err == nil && len(said.IDs) == 0 {
		err = errForeign
	}
	return Published{IDs: said.IDs, Repeated: said.Repeated && o.Key != ""}, err
}

// Backfill publishes a run for each tick from one time on and before another, 1000 at most. A repeat
// within a day publishes only what is missing. It returns how many jobs it published.
func (s Schedules) Backfill(ctx context.Context, queue, name string,
	from, to time.Time) (jobs int, err error) {
	var said struct{ Accepted int }
	r := jobRequest{query: url.Values{"from": {from.Format(time.RFC3339Nano)},
		"to": {to.Format(time.RFC3339Nano)}}}
	_, err = s.call(ctx, http.MethodPost, queue, named(name)+"/backfill", r, &said)
	return said.Accepted, err
}

// Times returns up to count ticks, 1000 at most, of a specification after a time, in its zone.
// It stores nothing.
func (s Schedules) Times(ctx context.Context, spec Spec, from time.Time,
	count int) ([]time.Time, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("spillway: write a specification: %w", err)
	}
	var said struct{ Next []time.Time }
	r := jobRequest{
		method:      http.MethodPost,
		path:        "_times",
		query:       url.Values{"from": {from.Format(time.RFC3339Nano)}, "count": {strconv.Itoa(count)}},
		contentType: "application/json",
		body:        body,
	}
	_, err = s.jobs.do(ctx, r, &said)
	return said.Next, err
}
