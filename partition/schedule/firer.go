package schedule

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/lifecycle"
	"github.com/spillway-io/spillway/partition/metric"
	"github.com/spillway-io/spillway/partition/schedule/cron"
)

const (
	firePage  = 128     // schedules of a page
	fireJobs  = 1000    // jobs of a call
	fireBytes = 1 << 20 // of their records
	firePages = 64      // pages of a shard in a row
	freePages = 16      // of them without rests
	keptSpecs = 20_000  // specifications that a process remembers, and their bytes
	keptBytes = 32 << 20
)

// A Firer fires the schedules of a store when they are due. Every process runs one. They do not
// disturb each other: whoever fires a tick first changes the state that the others have read. A
// job.Promoter tells it which shards have something due.
type Firer struct {
	*lifecycle.Loop
	store   *job.Store
	log     *zap.Logger
	fired   *prometheus.CounterVec
	lag     prometheus.Histogram
	unread  prometheus.Counter
	mu      sync.Mutex // of the rest
	busy    map[job.DueShard]bool
	specs   map[string]*Spec // by tag; nil: it cannot be read
	bytes   int              // of them
	working sync.WaitGroup
	zone    zones
}

// NewFirer makes the firer of a store. Start sets it going.
func NewFirer(s *job.Store, reg prometheus.Registerer, log *zap.Logger) *Firer {
	f := &Firer{
		store: s,
		log:   log,
		busy:  map[job.DueShard]bool{},
		specs: map[string]*Spec{},
		zone:  cron.Zone,
	}
	r := metric.New(reg, "spillway_schedules_")
	f.fired = r.Counters("fired_total",
		"Runs of schedules that this process published, by cause: due, caught_up or waited.", "reason")
	f.lag = r.Histogram("lag_seconds",
		"Time from a tick, with its jitter, until its jobs were published, of runs within grace that this process fired.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 15, 60})
	f.unread = r.Counter("unreadable_total",
		"Times that this process could not read a schedule that was due and put it off by a minute: its zone is not in the "+
			"program's tzdata, or another program wrote it.")
	r.Must()
	for _, cause := range []string{"due", "caught_up", "waited"} {
		f.fired.WithLabelValues(cause)
	}
	f.Loop = lifecycle.New("firer", nil, f.run)
	return f
}

func (f *Firer) run(ctx context.Context) {
	defer f.working.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.store.SchedulesDue():
		}
		due, behind := f.store.TakeDue()
		for _, d := range behind {
			f.working.Go(func() { f.recount(ctx, d) })
		}
		for _, d := range due {
			f.begin(ctx, d)
		}
	}
}

// begin fires what is due in a shard, in a goroutine: a slow server delays only its own shards.
func (f *Firer) begin(ctx context.Context, d job.DueShard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[d] {
		return // the promoter tells again in a second
	}
	f.busy[d] = true
	f.working.Go(func() {
		f.work(ctx, d)
		f.mu.Lock()
		delete(f.busy, d)
		f.mu.Unlock()
	})
}

// work fires the due schedules of a shard, page after page.
func (f *Firer) work(ctx context.Context, d job.DueShard) {
	skip := 0
	for page := range firePages {
		began := time.Now()
		now, list, err := f.store.DueSchedules(ctx, d.Namespace, d.Shard, skip, firePage)
		if err != nil {
			f.log.Debug("due schedules not read", zap.String("namespace", d.Namespace.Name), zap.Error(err))
			return
		}
		for i, due := range list {
			if due.At > now {
				f.store.ScheduleComesDue(d, due.At)
				list = list[:i]
				break
			}
		}
		if len(list) == 0 {
			if skip == 0 {
				return
			}
			skip = 0 // what was left out at the head
			continue
		}
		done, stale, err := f.fire(ctx, d, now, list)
		if err == nil && done+stale == 0 {
			return // the clock went back, or the namespace is being deleted: again in a second
		}
		if err != nil {
			f.log.Warn("schedules not fired, again in a second", zap.String("namespace", d.Namespace.Name),
				zap.Error(err))
			return
		}
		if len(list)+skip < firePage && done == len(list) {
			return
		}
		// After a burst half of the time is for others: a namespace that is never done takes no
		// more of its Redis.
		if page >= freePages && !rest(ctx, time.Since(began)) {
			return
		}
		skip = 0
		if done < len(list) { // others fire the same page
			skip = firePage * rand.IntN(4) // #nosec G404 -- spreads processes
		}
	}
	f.store.ScheduleComesDue(d, 0)
}

// recount lets the schedules of a shard deserve a look now that come sooner by the clock as it is, which went back: see past.
// It tells how many do, and how many wait, as their ticks fired when the clock was ahead.
func (f *Firer) recount(ctx context.Context, d job.DueShard) {
	for {
		var failed error
		var sooner, wait int
		var until int64
		err := f.store.ScanShard(ctx, d, func(page []job.Schedule) bool {
			var now int64
			if now, failed = f.store.Clock(ctx, d.Namespace, page[0].Queue); failed != nil {
				return false
			}
			var due []job.DueSchedule
			for _, s := range page {
				state, ok := ReadState(s.State)
				spec, err := readIn(s.Spec, f.zone)
				if !ok || err != nil || state.Flag != 'a' {
					continue
				}
				if next, _ := state.comes(spec, now); next < state.Next || next <= now || state.Waiting > 0 {
					due = append(due, job.DueSchedule{Queue: s.Queue, Name: s.Name})
				} else if next > spec.Next(now) {
					wait, until = wait+1, max(until, next)
				}
			}
			sooner += len(due)
			failed = f.store.LookAt(ctx, d, now, due...)
			return failed == nil
		})
		if err = cmp.Or(err, failed); err == nil {
			f.store.ScheduleComesDue(d, 0)
			if sooner+wait > 0 {
				f.log.Warn("the clock of Redis went back: schedules count from it as it is, and ticks that fired do not fire again",
					zap.String("namespace", d.Namespace.Name), zap.Int("shard", d.Shard), zap.Int("sooner", sooner),
					zap.Int("waiting", wait), zap.String("until", TickText(until)))
			}
			return
		}
		f.log.Debug("the clock of Redis went back, and not all schedules were looked at: again in a second",
			zap.String("namespace", d.Namespace.Name), zap.Int("shard", d.Shard), zap.Error(err))
		if !rest(ctx, time.Second) {
			return
		}
	}
}

// rest waits, and is false where ctx ends before.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// fire plans and fires a page, and returns how many of it this process moved on, and how many
// somebody else did.
func (f *Firer) fire(ctx context.Context, d job.DueShard, now int64,
	list []job.DueSchedule) (done, stale int, err error) {
	specs, err := f.read(ctx, d, list)
	if err != nil {
		return 0, 0, err
	}
	var group []*job.Firing
	jobs, bytes := 0, 0
	send := func() error {
		if len(group) == 0 {
			return nil
		}
		at, err := f.store.Fire(ctx, d.Namespace, d.Shard, now, group)
		if at > 0 {
			moved, not := f.note(d, at, group, specs)
			done, stale = done+moved, stale+not
		}
		group, jobs, bytes = nil, 0, 0
		return err
	}
	for _, due := range list {
		state, ok := ReadState(due.State)
		spec := specs[state.Tag]
		if !ok || spec == nil {
			f.unread.Inc()
			f.log.Warn("schedule cannot be read, again in a minute", zap.String("namespace", d.Namespace.Name),
				zap.String("queue", due.Queue), zap.String("schedule", due.Name))
			if err := f.store.LookAt(ctx, d, now+60_000, due); err != nil {
				return done, stale, err
			}
			done++
			continue
		}
		firing := Plan(spec, d.Namespace.Name, due.Queue, due.Name, due.State, &state, now)
		n, size := len(firing.List)*spec.Jobs(), len(firing.List)*spec.Size()
		if len(group) > 0 && (jobs+n > fireJobs || bytes+size > fireBytes) {
			if err := send(); err != nil {
				return done, stale, err
			}
		}
		group = append(group, firing)
		jobs += n
		bytes += size
	}
	err = send()
	return done, stale, err
}

// note counts what became of firings.
func (f *Firer) note(d job.DueShard, at int64, group []*job.Firing,
	specs map[string]*Spec) (done, stale int) {
	for _, firing := range group {
		if firing.Status == job.Stale || firing.Status == job.Foreign {
			stale++
		}
		if firing.Status == job.Fired || firing.Status == job.NoRoom || firing.Status == job.Unregistered {
			done++
			if firing.Next > 0 && firing.Look < at+1000 {
				f.store.ScheduleComesDue(d, firing.Look)
			}
		}
		if firing.Fired == 0 {
			continue
		}
		state, _ := ReadState(firing.State)
		seed := seedOf(d.Namespace.Name, firing.Queue, firing.Name)
		for _, run := range firing.List[:firing.Fired] {
			f.fired.WithLabelValues(causes[run.Cause]).Inc()
			if run.Cause == 'd' {
				f.lag.Observe(float64(at-specs[state.Tag].fires(run.Tick, seed)) / 1000)
			}
		}
	}
	return done, stale
}

// read returns the specifications of a page by their tags, nil of those that cannot be read. It
// reads those that are not remembered.
func (f *Firer) read(ctx context.Context, d job.DueShard,
	list []job.DueSchedule) (map[string]*Spec, error) {
	specs := map[string]*Spec{}
	var missing []job.Schedule
	f.mu.Lock()
	for _, due := range list {
		state, _ := ReadState(due.State)
		if spec, known := f.specs[state.Tag]; known {
			specs[state.Tag] = spec
		} else if _, asked := specs[state.Tag]; !asked {
			specs[state.Tag] = nil
			missing = append(missing, job.Schedule{Queue: due.Queue, Name: due.Name})
		}
	}
	f.mu.Unlock()
	if len(missing) == 0 {
		return specs, nil
	}
	if err := f.store.ReadSpecs(ctx, d.Namespace, d.Shard, missing); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.specs) > keptSpecs || f.bytes > keptBytes {
		clear(f.specs)
		f.bytes = 0
	}
	for _, m := range missing {
		if len(m.Spec) == 0 {
			continue // deleted meanwhile
		}
		spec, err := readIn(m.Spec, f.zone)
		if err != nil {
			f.log.Warn("specification of a schedule", zap.String("queue", m.Queue), zap.String("schedule", m.Name),
				zap.Error(err))
		}
		tag := Tag(m.Spec)
		f.bytes += len(m.Spec)
		f.specs[tag], specs[tag] = spec, spec
	}
	return specs, nil
}
