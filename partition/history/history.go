// Package history keeps the figures of namespaces over time, in the memory of a process.
package history

import (
	"math"
	"sync"
	"time"
)

// Names of the series of buffers, in the order of a Point. Rates are entries a second, the others gauges.
var Names = []string{
	"accepted", "delivered", "evicted", "expired", "dead", "lost", "rejected", "purged", "dead_letters_evicted",
	"buffered", "oldest_age_ms", "sink_p99_ms",
}

// QueueNames are those of queues. Pending jobs are delayed or leased.
var QueueNames = []string{
	"published", "acked", "expired", "deleted", "lost", "died", "respawned",
	"ready", "pending", "dead", "oldest_ready_age_ms",
}

// Ready is the first gauge of queues, as an index of a Point.
const Ready = 7

// Indexes of a Point of buffers.
const (
	Accepted = iota
	Delivered
	Evicted
	Expired
	Dead
	Lost
	Rejected
	Purged
	LettersEvicted
	Buffered // a gauge, as all from here on
	OldestAge
	SinkP99
	seriesCount
)

// RecentFor is how long a rate is taken for that of now. Many accounts are read less often than
// each second.
const RecentFor = 15 * time.Second

// A Point is one reading of all series. NaN is no value.
type Point [seriesCount]float32

// NoPoint has no values.
func NoPoint() (p Point) {
	for i := range p {
		p[i] = float32(math.NaN())
	}
	return p
}

// Of each namespace 15 min are kept, a point a second, 43 kB; of the total as well. Prometheus keeps days.
const (
	secondsKept = 15 * 60
	// Kept are the histories that are kept beside that of the total, 2.8 MB. The others are in the
	// total only.
	Kept = 64
)

// A ring holds the latest points, by their time.
type ring struct {
	points []Point
	last   int64 // time of the last one, Unix seconds
}

// newRing has no values until last, and goes on after it.
func newRing(last int64) *ring {
	r := &ring{points: make([]Point, secondsKept), last: last}
	for i := range r.points {
		r.points[i] = NoPoint()
	}
	return r
}

// set writes the point of a time; those that were left out in between have no value.
func (r *ring) set(at int64, p Point) {
	size := int64(len(r.points))
	for missing := max(r.last+1, at-size+1); missing < at; missing++ {
		r.points[missing%size] = NoPoint()
	}
	if at >= r.last {
		r.points[at%size] = p
		r.last = at
	}
}

// get is the point of a time.
func (r *ring) get(at int64) Point {
	if at > r.last || at <= r.last-int64(len(r.points)) {
		return NoPoint()
	}
	return r.points[at%int64(len(r.points))]
}

// A History keeps the series of namespaces, or of queues, and of their total. It is safe for concurrent use.
type History struct {
	names []string

	mu     sync.Mutex
	tracks map[string]*ring // by namespace; the total has the name ""
	latest map[string]Point // by namespace, of the last add
}

// New makes an empty one of buffers.
func New() *History { return &History{names: Names, tracks: map[string]*ring{}} }

// NewQueues makes an empty one of queues.
func NewQueues() *History { return &History{names: QueueNames, tracks: map[string]*ring{}} }

// Add writes the points of one moment by namespace, and their total.
func (h *History) Add(at time.Time, points map[string]Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest = points
	total := NoPoint()
	for _, p := range points {
		for series, v := range p {
			switch t := &total[series]; {
			case v != v:
			case *t != *t:
				*t = v
			case series == OldestAge || series == SinkP99:
				*t = max(*t, v)
			default:
				*t += v
			}
		}
	}
	h.write("", at, total)
	h.writeAll(at, points)
}

// AddEach writes the points of one moment by name, without a total.
func (h *History) AddEach(at time.Time, points map[string]Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writeAll(at, points)
}

func (h *History) writeAll(at time.Time, points map[string]Point) {
	for name, p := range points {
		h.write(name, at, p)
	}
	for name := range h.tracks { // of namespaces that are no more
		if _, is := points[name]; !is && name != "" && len(h.tracks) > Kept {
			delete(h.tracks, name)
		}
	}
}

func (h *History) write(name string, at time.Time, p Point) {
	t := h.tracks[name]
	if t == nil {
		if name != "" && len(h.tracks) > Kept {
			return
		}
		t = newRing(at.Unix() - 1)
		h.tracks[name] = t
	}
	t.set(at.Unix(), p)
}

// Recent is the mean of a namespace's latest rates, over span seconds, or the last one of
// recentFor; the last ones where its history is not kept. NaN is not known.
func (h *History) Recent(name string, now time.Time, span int) (rates Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tracks[name]
	if t == nil {
		if p, known := h.latest[name]; known {
			return p
		}
		return NoPoint()
	}
	for series := range rates {
		n := float32(0)
		for back := range int64(RecentFor / time.Second) {
			if v := t.get(now.Unix() - back)[series]; v == v && (n == 0 || back < int64(span)) {
				rates[series] += v
				n++
			}
		}
		rates[series] /= n // NaN of none
	}
	return rates
}

// Series are the values of the last 15 minutes by the second, nil where there is none.
func (h *History) Series(name string, now time.Time) (from time.Time, series map[string][]*float32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	series = map[string][]*float32{}
	first := now.Unix() - secondsKept + 1
	points := make([]Point, secondsKept)
	for i := range points {
		points[i] = NoPoint()
		if t := h.tracks[name]; t != nil {
			points[i] = t.get(first + int64(i))
		}
	}
	for i, name := range h.names {
		values := make([]*float32, len(points))
		for at := range points {
			if v := points[at][i]; v == v {
				values[at] = &points[at][i]
			}
		}
		series[name] = values
	}
	return time.Unix(first, 0), series
}
