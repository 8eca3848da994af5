package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule/cron"
)

var (
	// ErrRevision: the schedule does not have the revision that the caller wants.
	ErrRevision = errors.New("the schedule has another revision")
	// errBusy: others changed the schedule as often as Put tried.
	errBusy = errors.New("the schedule changes all the time: try again")
)

const putTries = 10

// giveUp is how many ticks a put gives up at most, where the queue has no room for them: 23
// days of seconds. What is beyond is due, so the put is rejected until there is room.
const giveUp = 2_000_000

// countPaused is how many ticks of a pause a put counts at most: 69 days of minutes, which take
// a second.
const countPaused = 100_000

// Put makes a schedule, or replaces its specification, unless it belongs to an owner; revision
// is the one that it must have, 0: any. What is due by the specification before fires first, so
// that a put at a tick costs none; what cannot fire then (the queue is full) counts as
// superseded. It returns a *FieldError where the specification has no tick from now on.
func Put(ctx context.Context, store job.ScheduleOperations, ns *job.Namespace, queue, name string, s *Spec,
	revision int64) (*job.PutSchedule, error) {
	if s.Owner != "" {
		return nil, &FieldError{"owner", s.Owner, "is set by a registration: PUT /v1/{namespace}/_owners/{owner}"}
	}
	return put(ctx, store, ns, queue, name, s, revision, 0)
}

// put is Put; version is of the owner.
func put(ctx context.Context, store job.ScheduleOperations, ns *job.Namespace, queue, name string, s *Spec,
	revision, version int64) (*job.PutSchedule, error) {
	if job.IsReplyQueue(queue) {
		return nil, &FieldError{"queue", queue, "it is a job's reply queue, which lives as long as the reply"}
	}
	tried := ""
	for tries := 0; tries < putTries; {
		now, err := store.Clock(ctx, ns, queue)
		if err != nil {
			return nil, err
		}
		before, err := store.GetSchedule(ctx, ns, queue, name)
		if err != nil && !errors.Is(err, job.ErrNoSchedule) {
			return nil, err
		}
		state, readable := ReadState(before.State)
		if owner := OwnerOf(before.Spec); owner != "" && owner != s.Owner {
			return nil, job.ErrOtherOwner
		}
		if revision > 0 && state.Revision != revision {
			return nil, ErrRevision
		}
		if s.By == "" { // an operator's put lifts no rate
			if old, err := read(before.Spec); err == nil {
				s.By = old.By
			}
		}
		p := &job.PutSchedule{
			Namespace: ns,
			Queue:     queue,
			Name:      name,
			Before:    before.State,
			Spec:      s.JSON(),
			Owner:     s.Owner,
			Version:   version,
			Paused:    state.Flag == 'p',
			Waits:     state.Waiting > 0,
		}
		p.Tag = Tag(p.Spec)
		var over past
		p.First, p.Look, over = first(s, ns.Name, queue, name, &state, now)
		p.Past = over.String()
		if p.First == 0 && p.Tag != state.Tag {
			return nil, noTick(s)
		}
		if readable && state.Flag != 'e' && p.Tag != state.Tag {
			due := leave(p, before.Spec, &state, now)
			if due != nil && tried != before.State {
				if _, err := store.Fire(ctx, ns, ns.ScheduleShard(queue), now, []*job.Firing{due}); err != nil {
					return nil, err
				}
				if due.Status == job.Untimely { // the clock stepped back
					tries++
				} else {
					tried = before.State
				}
				continue
			}
		}
		tries++
		err = store.PutSchedule(ctx, p)
		if !errors.Is(err, job.ErrChanged) && !errors.Is(err, job.ErrDue) {
			return p, err
		}
	}
	return nil, errBusy
}

// leave says what a put gives up of the specification before: the ticks that are over, and when
// the next one is. It returns how they fire; nil: there is none, or it is paused. A tick that
// only its jitter holds back fires now, as the new specification begins after it.
func leave(p *job.PutSchedule, spec []byte, state *State, now int64) *job.Firing {
	old, err := read(spec)
	if err != nil {
		return nil // nobody can say what is due
	}
	old.Jitter = 0
	tick, most := state.Next, giveUp
	if state.Flag == 'p' {
		most = countPaused
	}
	for ; tick > 0 && tick <= now && p.GivenUp < most; tick = state.past.next(old, tick) {
		p.GivenUp++
	}
	if state.Flag == 'a' || p.GivenUp < most {
		p.Open = tick
	}
	if state.Flag == 'p' || p.GivenUp == 0 {
		return nil
	}
	return Plan(old, p.Namespace.Name, p.Queue, p.Name, p.Before, state, now)
}

func noTick(s *Spec) error {
	switch {
	case !s.Until.IsZero():
		return &FieldError{"until", s.Until.Format(time.RFC3339), "there is no tick from now until then"}
	case !s.At.IsZero():
		return &FieldError{"at", s.At.Format(time.RFC3339), "write a time to come"}
	}
	return &FieldError{"cron", s.Cron, cron.ErrNever.Error()}
}

// Times are the next ticks after a time, n at most, in the zone of the specification.
func (s *Spec) Times(after time.Time, n int) []string { return s.times(past{}, after, n) }

func (s *Spec) times(over past, after time.Time, n int) []string {
	zone := time.UTC
	if s.Zone != "" {
		zone, _ = cron.Zone(s.Zone) // it was checked
	}
	list := []string{}
	for tick := s.Next(after.UnixMilli()); tick > 0 && len(list) < n; tick = over.next(s, tick) {
		list = append(list, time.UnixMilli(tick).In(zone).Format("2006-01-02T15:04:05.999Z07:00"))
	}
	return list
}

// Ticks are those from a time on, and before another, n at most.
func (s *Spec) Ticks(from, to time.Time, n int) (list []int64) {
	end := to.UnixMilli()
	for tick := s.Next(from.UnixMilli() - 1); tick > 0 && tick < end && len(list) < n; tick = s.Next(tick) {
		list = append(list, tick)
	}
	return list
}

// Stored reads the specification of a schedule, or is ErrNoSchedule or ErrUnreadable.
func Stored(ctx context.Context, store job.ScheduleOperations, ns *job.Namespace,
	queue, name string) (*Spec, error) {
	s, err := store.GetSchedule(ctx, ns, queue, name)
	if err != nil {
		return nil, err
	}
	spec, err := read(s.Spec)
	if err != nil {
		return nil, ErrUnreadable
	}
	return spec, nil
}

// maxBackfill is how many ticks a backfill has at most.
const maxBackfill = 1000

// A Backfill is runs for the ticks of a range, without its end: ranges that meet share no tick.
type Backfill struct {
	Namespace   *job.Namespace
	Queue, Name string
	From, To    time.Time
	Spec        *Spec

	Accepted int // jobs that were published
}

// Ticks are those of the range, or a *FieldError where there are too many.
func (b *Backfill) Ticks() ([]int64, error) {
	ticks := b.Spec.Ticks(b.From, b.To, maxBackfill+1)
	if len(ticks) > maxBackfill {
		return nil, &FieldError{"to", b.To.Format(time.RFC3339),
			"the range has more than 1000 ticks: ask for a part of it"}
	}
	return ticks, nil
}

// Publish publishes the runs of ticks, in calls of 32, each under a key of its own: a repeat of
// a request that failed goes on where that ended. admit says how many jobs a call may publish
// next.
func (b *Backfill) Publish(ctx context.Context, store job.ScheduleOperations, ticks []int64,
	admit func(jobs int) error) error {
	for part := range slices.Chunk(ticks, b.Spec.RunsAtOnce()) {
		if err := admit(len(part) * b.Spec.Counts()); err != nil {
			return err
		}
		t := &job.Trigger{
			Namespace: b.Namespace,
			Queue:     b.Queue,
			Name:      b.Name,
			Key:       fmt.Sprintf("backfill %d %d %d", b.From.UnixMilli(), b.To.UnixMilli(), part[0]),
			KeyTTL:    job.MaxKeyTTL,
			Runs:      b.Spec.Runs(b.Name, part, 'b'),
		}
		if err := store.Trigger(ctx, t); err != nil {
			return err
		}
		if !t.Repeated {
			b.Accepted += t.Count
		}
	}
	return nil
}

// Limits bound what a publish stores, and with it a run: the bytes of the payload and attributes of a job, its jobs,
// and the bytes of them all.
type Limits struct{ Entry, Entries, Body int }

// Within is nil where a run takes no more than a publish may.
func (s *Spec) Within(l Limits) error {
	size := len(s.payload)
	if len(s.Attributes) > 0 {
		text, _ := json.Marshal(s.Attributes) // of strings
		size += len(text)
	}
	switch {
	case size > l.Entry:
		return fmt.Errorf("%w, %d bytes", ErrTooLarge, l.Entry)
	case s.Shards > l.Entries || s.Size() > l.Body:
		return &FieldError{"shards", strconv.Itoa(s.Shards), "a run may take no more than a publish: send a smaller job or a smaller shards"}
	}
	return nil
}
