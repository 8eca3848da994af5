package admin

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/history"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// History is the answer about a range of time.
type History struct {
	StepMS int64                 `json:"step_ms"`
	FromMS int64                 `json:"from_ms"` // time of the first point
	Points int                   `json:"points"`
	Series map[string][]*float32 `json:"series"`
}

func (s *Server) historyOf(r *request) (any, error) {
	name, queue, h := r.param("namespace"), r.queueParam(), s.history
	if _, queues := r.view.jobSpace(name); queues {
		h, name = s.jobLedgers.history, trackOf(name, queue)
	} else if name != "" || queue != "" {
		r.buffer(name)
	}
	if r.err != nil {
		return nil, r.err
	}
	s.sweep.watch()
	from, series := h.Series(name, s.sweep.now())
	return History{time.Second.Milliseconds(), from.UnixMilli(), len(series["lost"]), series}, nil
}

// A recorder writes the history every second, from what the accounts read anyway.
type recorder struct {
	source  Source
	sweep   *sweep
	history *history.History

	accounts *Accounts          // those that readings come from
	before   map[string]reading // by namespace, the last that is in the history
	at       time.Time          // of rejected

	rejected map[string]map[string]int64 // totals by namespace and reason
	// rejections are not in the log: a sender's mistakes are none of the service.
	rejections *drops.Notices
}

// A reading is the account of a namespace at a time.
type reading struct {
	partition.Overview
	at      time.Time
	changed time.Time // when it was another last
}

func newRecorder(source Source, s *sweep, h *history.History) *recorder {
	reasons := map[string]string{}
	for _, reason := range drops.Reasons() {
		if reason.Rejection() {
			reasons[string(reason)] = ""
		}
	}
	return &recorder{source: source, sweep: s, history: h, before: map[string]reading{}, rejections: drops.NewNotices(zap.NewNop(), "entries", reasons)}
}

// run also writes the history of queues.
func (r *recorder) run(ctx context.Context, queues *jobLedgers) {
	lifecycle.Every(ctx, time.Second, func() {
		r.tick(r.sweep.now())
		queues.record(r.sweep.now())
	})
}

func (r *recorder) tick(now time.Time) {
	v := r.source()
	if v.Accounts == nil {
		return
	}
	if r.accounts != v.Accounts { // a reload: perhaps of another store
		clear(r.before)
		r.rejected = nil
		r.accounts = v.Accounts
	}
	latest, p99 := v.Accounts.latest(), v.sinkP99()
	rejections, known := r.reject(v, now)
	points := map[string]history.Point{}
	for _, ns := range v.Store.Namespaces() {
		name, p := ns.Name, history.NoPoint()
		o, read := latest[name]
		if read {
			p[history.Buffered] = float32(o.Ledger.Buffered)
			if before, known := r.before[name]; known && o.at.After(before.at) {
				rate(&p, before, o)
			}
			r.before[name] = o
		}
		if known {
			p[history.Rejected] = rejections[name]
		}
		if oldest := r.sweep.oldest(name); oldest > 0 && o.Ledger.Buffered > 0 {
			p[history.OldestAge] = float32(max(0, now.UnixMilli()-oldest))
		} else if read && o.Ledger.Buffered == 0 {
			p[history.OldestAge] = 0
		}
		if d, known := p99[name]; known && d > 0 {
			p[history.SinkP99] = float32(float64(d) / float64(time.Millisecond))
		}
		points[name] = p
	}
	r.history.Add(now, points)
}

// rate sets the rates between two readings. A total that fell is that of another store.
func rate(p *history.Point, before, now reading) {
	seconds := now.at.Sub(before.at).Seconds()
	old, latest := endings(before.Overview), endings(now.Overview)
	for series, name := range history.Names[:history.Buffered] {
		if total, known := latest[name]; known {
			p[series] = float32(float64(total-old[name]) / seconds)
			if total < old[name] {
				p[series] = float32(math.NaN())
			}
		}
	}
}

// reject returns what ingest rejects a second, by namespace. known is false the first time.
func (r *recorder) reject(v View, now time.Time) (rates map[string]float32, known bool) {
	totals := map[string]map[string]int64{}
	rates = map[string]float32{}
	seconds := float32(max(now.Sub(r.at).Seconds(), 0.1))
	for _, ns := range v.Store.Namespaces() {
		before, total := r.rejected[ns.Name], map[string]int64{}
		for reason, t := range v.Drops.Totals(ns.Name) {
			if reason.Rejection() {
				total[string(reason)] = t.Entries
				if reason != drops.Unauthorized { // anybody can be that, any number of times
					rates[ns.Name] += float32(max(0, t.Entries-before[string(reason)])) / seconds
				}
			}
		}
		if r.rejected != nil {
			r.rejections.Note(ns.Name, before, total, now)
		}
		totals[ns.Name] = total
	}
	r.rejections.Forget(func(name string) bool { return totals[name] == nil })
	known = r.rejected != nil
	r.rejected, r.at = totals, now
	return rates, known
}

const (
	// maxTracked are the queues of one namespace whose history is kept; with many namespaces a
	// namespace has as many as it leaves the others theirs.
	maxTracked = 16
	// knownFor is how long the count of a queue is taken for that of now.
	knownFor = 3 * agesEvery
)

// trackOf names a history: that of a namespace where queue is "".
func trackOf(namespace, queue string) string {
	if queue == "" {
		return namespace
	}
	return namespace + "/" + queue
}

// A trackedQueue is a queue whose history is kept.
type trackedQueue struct {
	queueCounts
	at, looked time.Time // of the counts; when somebody looked at it last
}

// weight says which queues keep their histories: those that somebody looked at lately, the latest
// first, then those with most jobs, which give way to one with twice as many.
func (q *trackedQueue) weight(now time.Time) int64 {
	if now.Sub(q.looked) < lookedFor {
		return 1<<62 + q.looked.UnixMilli()
	}
	return 2 * q.jobs()
}

func (q *queueCounts) jobs() int64 { return q.Ready + q.Pending + q.Dead }

// tracks are how many queues of a namespace have a history.
func (b *jobLedgers) tracks() int { return min(maxTracked, history.Kept/max(1, len(b.spaces))-1) }

// track notes the count of a queue, which gets a history where there is room in that of its namespace.
func (f *jobFigures) track(c queueCounts, now time.Time, looks bool, room int) {
	q := &trackedQueue{queueCounts: c, at: now}
	known := f.tracked[c.name]
	if known != nil {
		q.looked = known.looked
	}
	if looks {
		q.looked = now
	}
	f.tracked[c.name] = q
	for len(f.tracked) > max(0, room) {
		var least string
		lightest := int64(math.MaxInt64)
		for name, other := range f.tracked {
			weight := other.weight(now)
			if name == c.name && known == nil && !looks {
				weight /= 2 // it is new
			}
			if weight < lightest {
				least, lightest = name, weight
			}
		}
		delete(f.tracked, least)
	}
}

// look notes the count of a queue that somebody looks at.
func (b *jobLedgers) look(namespace string, c queueCounts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.spaces[namespace]; f != nil {
		f.track(c, time.Now(), true, b.tracks())
	}
}

// trackAll notes the counts of a table of all queues.
func (f *jobFigures) trackAll(t *queueTable, room int) {
	most := func(a, b queueCounts) int { return cmp.Compare(b.jobs(), a.jobs()) }
	for _, row := range slices.SortedStableFunc(slices.Values(t.rows), most) {
		f.track(row, t.at, false, room)
	}
	for _, q := range f.tracked { // a queue without jobs is in no table
		if q.at.Before(t.at) && len(t.rows) == t.total {
			q.queueCounts, q.at = queueCounts{}, t.at
		}
	}
}

// record writes the history of the namespaces and of their queues.
func (b *jobLedgers) record(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	points := map[string]history.Point{}
	for name, f := range b.spaces {
		p, rates := history.NoPoint(), f.rates(now)
		for i, outcome := range history.QueueNames[:history.Ready] {
			if rate, known := rates[outcome]; known {
				p[i] = rate
			}
		}
		if len(rates) > 0 {
			gauges(&p, f.counts(), now)
		}
		points[name] = p
		for queue, q := range f.tracked {
			p := history.NoPoint()
			if now.Sub(q.at) < knownFor {
				gauges(&p, q.queueCounts, now)
			}
			points[trackOf(name, queue)] = p
		}
	}
	b.history.AddEach(now, points)
}

// gauges sets those of queues.
func gauges(p *history.Point, c queueCounts, now time.Time) {
	oldest := int64(0)
	if c.OldestReady > 0 && c.Ready > 0 {
		oldest = max(0, now.UnixMilli()-c.OldestReady)
	}
	for i, n := range []int64{c.Ready, c.Pending, c.Dead, oldest} {
		p[history.Ready+i] = float32(n)
	}
}
