package admin

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// The figures of a namespace over time. Rates are entries a second, the others gauges.
var seriesNames = [...]string{
	"accepted", "delivered", "evicted", "expired", "dead", "lost", "rejected", "purged", "dead_letters_evicted",
	"buffered", "oldest_age_ms", "sink_p99_ms",
}

const (
	accepted = iota
	delivered
	evicted
	expired
	dead
	lost
	rejected
	purged
	lettersEvicted
	buffered // a gauge, as all from here on
	oldestAge
	sinkP99
	seriesCount
)

// recentFor is how long a rate is taken for that of now. Many accounts are read less often than
// each second.
const recentFor = 15 * time.Second

// A point is one reading of all series. NaN is no value.
type point [seriesCount]float32

func noPoint() (p point) {
	for i := range p {
		p[i] = float32(math.NaN())
	}
	return p
}

// Of each namespace 15 min at 1 s and 24 h at 1 min are kept, 112 kB; of the total as well.
const (
	secondsKept = 15 * 60
	minutesKept = 24 * 60
	// maxHistories are the namespaces whose history is kept, 7.2 MB. The others are in the
	// total only.
	maxHistories = 64
)

// A ring holds the latest points of one step, by their time.
type ring struct {
	points []point
	last   int64 // time of the last one, in steps since 1970
}

// newRing has no values until last, and goes on after it.
func newRing(size int, last int64) *ring {
	r := &ring{points: make([]point, size), last: last}
	for i := range r.points {
		r.points[i] = noPoint()
	}
	return r
}

// set writes the point of a time; those that were left out in between have no value.
func (r *ring) set(at int64, p point) {
	size := int64(len(r.points))
	for missing := max(r.last+1, at-size+1); missing < at; missing++ {
		r.points[missing%size] = noPoint()
	}
	if at >= r.last {
		r.points[at%size] = p
		r.last = at
	}
}

// get is the point of a time.
func (r *ring) get(at int64) point {
	if at > r.last || at <= r.last-int64(len(r.points)) {
		return noPoint()
	}
	return r.points[at%int64(len(r.points))]
}

// track is the history of one namespace.
type track struct {
	seconds, minutes *ring
}

func newTrack(at time.Time) *track {
	return &track{newRing(secondsKept, at.Unix()-1), newRing(minutesKept, at.Unix()/60-1)}
}

// add writes a point, and its minute so far: the mean of rates, the highest of gauges.
func (t *track) add(at time.Time, p point) {
	second := at.Unix()
	t.seconds.set(second, p)
	minute := noPoint()
	for series := range minute {
		sum, n := float32(0), float32(0)
		for s := second / 60 * 60; s <= second; s++ {
			v := t.seconds.get(s)[series]
			switch {
			case v != v: // NaN
			case series < buffered:
				sum, n = sum+v, n+1
			default:
				sum, n = max(sum, v), 1
			}
		}
		if n > 0 {
			minute[series] = sum / n
		}
	}
	t.minutes.set(second/60, minute)
}

// history belongs to the Server, and outlives a reload.
type history struct {
	mu     sync.Mutex
	tracks map[string]*track // by namespace; the total has the name ""
	latest map[string]point  // by namespace, of the last add
}

func newHistory() *history { return &history{tracks: map[string]*track{}} }

// add writes the points of one moment by namespace, and their total.
func (h *history) add(at time.Time, points map[string]point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest = points
	total := noPoint()
	for _, p := range points {
		for series, v := range p {
			switch t := &total[series]; {
			case v != v:
			case *t != *t:
				*t = v
			case series == oldestAge || series == sinkP99:
				*t = max(*t, v)
			default:
				*t += v
			}
		}
	}
	h.write("", at, total) // first, so that it has its place
	for name, p := range points {
		h.write(name, at, p)
	}
	for name := range h.tracks { // of namespaces that are no more
		if _, is := points[name]; !is && name != "" && len(h.tracks) > maxHistories {
			delete(h.tracks, name)
		}
	}
}

func (h *history) write(name string, at time.Time, p point) {
	t := h.tracks[name]
	if t == nil {
		if name != "" && len(h.tracks) > maxHistories {
			return
		}
		t = newTrack(at)
		h.tracks[name] = t
	}
	t.add(at, p)
}

// recent is the mean of a namespace's latest rates, over span seconds, or the last one of
// recentFor; the last ones where its history is not kept. NaN is not known.
func (h *history) recent(name string, now time.Time, span int) (rates point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tracks[name]
	if t == nil {
		if p, known := h.latest[name]; known {
			return p
		}
		return noPoint()
	}
	for series := range rates {
		n := float32(0)
		for back := range int64(recentFor / time.Second) {
			if v := t.seconds.get(now.Unix() - back)[series]; v == v && (n == 0 || back < int64(span)) {
				rates[series] += v
				n++
			}
		}
		rates[series] /= n // NaN of none
	}
	return rates
}

// series are the values of a range, null where there is none.
func (h *history) series(name string, now time.Time,
	minutes bool) (from time.Time, step time.Duration, series map[string][]*float32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	series = map[string][]*float32{}
	step, size := time.Second, int64(secondsKept)
	if minutes {
		step, size = time.Minute, minutesKept
	}
	last := now.Unix() / int64(step/time.Second)
	from = time.Unix((last-size+1)*int64(step/time.Second), 0)
	points := make([]point, size)
	for i := range points {
		points[i] = noPoint()
		if t := h.tracks[name]; t != nil {
			r := t.seconds
			if minutes {
				r = t.minutes
			}
			points[i] = r.get(last - size + 1 + int64(i))
		}
	}
	for i, name := range seriesNames {
		values := make([]*float32, size)
		for at := range points {
			if v := points[at][i]; v == v {
				values[at] = &points[at][i]
			}
		}
		series[name] = values
	}
	return from, step, series
}

// History is the answer about a range of time.
type History struct {
	StepMS int64                 `json:"step_ms"`
	FromMS int64                 `json:"from_ms"` // time of the first point
	Points int                   `json:"points"`
	Series map[string][]*float32 `json:"series"`
}

func (s *Server) historyOf(r *request) (any, error) {
	span, name := r.param("range"), r.param("namespace")
	if span != "" && span != "15m" && span != "24h" {
		r.fail(badRequest("range: want 15m or 24h"))
	}
	if name != "" {
		r.buffer(name)
	}
	if r.err != nil {
		return nil, r.err
	}
	s.sweep.watch()
	from, step, series := s.history.series(name, s.sweep.now(), span == "24h")
	return History{step.Milliseconds(), from.UnixMilli(), len(series["accepted"]), series}, nil
}

// A recorder writes the history every second, from what the accounts read anyway.
type recorder struct {
	source  Source
	sweep   *sweep
	history *history

	accounts *Accounts          // those that readings come from
	before   map[string]reading // by namespace, the last that is in the history
	at       time.Time          // of rejected

	mu       sync.Mutex
	rejected map[string]map[drops.Reason]int64 // totals by namespace
	rates    map[string]map[string]float64     // of the last second, by namespace
}

// A reading is the account of a namespace at a time.
type reading struct {
	partition.Overview
	at      time.Time
	changed time.Time // when it was another last
}

func newRecorder(source Source, s *sweep, h *history) *recorder {
	return &recorder{source: source, sweep: s, history: h, before: map[string]reading{}}
}

func (r *recorder) run(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			r.tick(r.sweep.now())
		}
	}
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
	points := map[string]point{}
	for _, ns := range v.Store.Namespaces() {
		name, p := ns.Name, noPoint()
		o, read := latest[name]
		if read {
			p[buffered] = float32(o.Ledger.Buffered)
			if before, known := r.before[name]; known && o.at.After(before.at) {
				p.rates(before, o)
			}
			r.before[name] = o
		}
		if known {
			p[rejected] = 0
			for _, rate := range rejections[name] {
				p[rejected] += float32(rate)
			}
		}
		if oldest := r.sweep.oldest(name); oldest > 0 && o.Ledger.Buffered > 0 {
			p[oldestAge] = float32(max(0, now.UnixMilli()-oldest))
		} else if read && o.Ledger.Buffered == 0 {
			p[oldestAge] = 0
		}
		if d, known := p99[name]; known && d > 0 {
			p[sinkP99] = float32(float64(d) / float64(time.Millisecond))
		}
		points[name] = p
	}
	r.history.add(now, points)
}

// rates are those between two readings. A total that fell is that of another store.
func (p *point) rates(before, now reading) {
	seconds := now.at.Sub(before.at).Seconds()
	old, latest := endings(before.Overview), endings(now.Overview)
	for series, name := range seriesNames[:buffered] {
		if total, known := latest[name]; known {
			p[series] = float32(float64(total-old[name]) / seconds)
			if total < old[name] {
				p[series] = float32(math.NaN())
			}
		}
	}
}

// reject returns what ingest rejects a second, by namespace and reason. known is false the
// first time.
func (r *recorder) reject(v View, now time.Time) (rates map[string]map[string]float64, known bool) {
	totals := map[string]map[drops.Reason]int64{}
	rates = map[string]map[string]float64{}
	seconds := max(now.Sub(r.at).Seconds(), 0.1)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ns := range v.Store.Namespaces() {
		totals[ns.Name], rates[ns.Name] = map[drops.Reason]int64{}, map[string]float64{}
		for reason, t := range v.Drops.Totals(ns.Name) {
			if !reason.Rejection() {
				continue
			}
			totals[ns.Name][reason] = t.Entries
			if n := t.Entries - r.rejected[ns.Name][reason]; n > 0 && r.rejected != nil {
				rates[ns.Name][string(reason)] = float64(n) / seconds
			}
		}
	}
	known = r.rejected != nil
	r.rejected = totals
	r.rates = rates
	r.at = now
	return rates, known
}

// rejectedRates are what ingest rejects of a namespace, entries a second by reason.
func (r *recorder) rejectedRates(namespace string) map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rates := r.rates[namespace]; rates != nil {
		return rates // which nobody writes any more
	}
	return map[string]float64{}
}
