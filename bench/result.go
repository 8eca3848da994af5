package bench

import (
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a load met. Requests × Entries = Acked + Unknown + Rejected.
type Result struct {
	Requests int64            `json:"requests"`
	Acked    int64            `json:"acked"`    // entries the server confirmed
	Evicted  int64            `json:"evicted"`  // entries it said it dropped to make room
	Unknown  int64            `json:"unknown"`  // entries that may or may not be stored
	Rejected map[string]int64 `json:"rejected"` // entries by the server's code, or "connect", "overdue", "bad_answer"

	Elapsed time.Duration `json:"elapsed_ns"` // from the first due time to the last answer
	// Latency runs from the moment a request was due to its answer, or failure.
	Latency Quantiles `json:"latency"`
	// Lag is the part of it before the request was sent: the loader's own
	// imprecision, and waiting for a free connection.
	Lag Quantiles `json:"lag"`
}

// Rate is the entries acknowledged a second; 0 of a load that took no time.
func (r Result) Rate() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Acked) / r.Elapsed.Seconds()
}

// Errors is the entries that were not acknowledged.
func (r Result) Errors() int64 {
	n := r.Unknown
	for count := range maps.Values(r.Rejected) {
		n += count
	}
	return n
}

// Quantiles of a duration, exact to three digits; Max is exact to 1 µs.
type Quantiles struct {
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`
}

// recorder collects what the connections see. One mutex is enough: an add takes
// well under a microsecond.
type recorder struct {
	mu      sync.Mutex
	sum     Result
	last    time.Time
	latency *Durations
	lag     *Durations
}

func newRecorder(longest time.Duration) *recorder {
	return &recorder{
		sum:     Result{Rejected: map[string]int64{}},
		latency: NewDurations(longest),
		lag:     NewDurations(longest),
	}
}

func (r *recorder) add(due, sent, done time.Time, out outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Requests++
	r.sum.Acked += int64(out.acked)
	r.sum.Evicted += int64(out.evicted)
	r.sum.Unknown += int64(out.unknown)
	for _, reason := range out.reasons {
		r.sum.Rejected[reason]++
	}
	if done.After(r.last) {
		r.last = done
	}
	r.latency.Add(done.Sub(due))
	r.lag.Add(sent.Sub(due))
}

// result is what was met so far.
func (r *recorder) result(start time.Time) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := r.sum
	res.Rejected = maps.Clone(res.Rejected)
	if r.last.After(start) {
		res.Elapsed = r.last.Sub(start)
	}
	res.Latency, res.Lag = r.latency.Quantiles(), r.lag.Quantiles()
	return res
}

// Durations is a histogram of microseconds and the exact maximum. It is not
// safe for concurrent use.
type Durations struct {
	hist *hdrhistogram.Histogram
	max  time.Duration
}

// NewDurations tells durations up to longest apart.
func NewDurations(longest time.Duration) *Durations {
	return &Durations{hist: hdrhistogram.New(1, max(longest.Microseconds(), 2), 3)}
}

// Add counts one; a negative one as 0.
func (d *Durations) Add(v time.Duration) {
	v = max(v, 0)
	d.max = max(d.max, v)
	// A value past the range is recorded at its end; max still has it whole.
	_ = d.hist.RecordValue(min(v.Microseconds(), d.hist.HighestTrackableValue()))
}

// Quantiles of what was added so far.
func (d *Durations) Quantiles() Quantiles {
	at := func(q float64) time.Duration {
		return time.Duration(d.hist.ValueAtQuantile(q)) * time.Microsecond
	}
	return Quantiles{P50: at(50), P99: at(99), P999: at(99.9), Max: d.max}
}
