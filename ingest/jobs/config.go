package jobs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/metric"
)

// Config bounds what an Engine takes on.
type Config struct {
	// Lanes is how many flushes may run at once, beside one of publishes of 64 KiB and more;
	// default 2. A queue always has the same lane. On a Redis Cluster the zones of the store
	// share them out, each with one at least and one for large publishes.
	Lanes int
	// FlushTimeout is how long one flush may take; default 3s. A request waits at most twice
	// as long for its flush to begin.
	FlushTimeout time.Duration
	// MaxEntries is how many jobs a request may publish; default 1000.
	MaxEntries int
	// MaxEntry is the largest payload of a job, in bytes; default 32 KiB.
	MaxEntry int
	// MaxBody is the most bytes of jobs that shards=n makes of one, attributes included;
	// default 1 MiB.
	MaxBody int
	// MaxWait is how long a claim may wait for jobs; default 10m.
	MaxWait time.Duration
}

// DefaultConfig returns the defaults named at the fields.
func DefaultConfig() Config {
	return Config{
		Lanes:        2,
		FlushTimeout: 3 * time.Second,
		MaxEntries:   1000,
		MaxEntry:     32 << 10,
		MaxBody:      1 << 20,
		MaxWait:      10 * time.Minute,
	}
}

// Validate returns a *partition.FieldError for each unusable setting, joined.
func (c Config) Validate() error {
	var v partition.Validation
	v.Check(c.Lanes >= 1 && c.Lanes <= 64, "lanes", c.Lanes, "1 to 64")
	v.Check(c.FlushTimeout >= 10*time.Millisecond && c.FlushTimeout <= time.Hour, "produce_timeout",
		c.FlushTimeout, "10ms to 1h")
	v.Check(c.MaxEntries >= 1 && c.MaxEntries <= 1000, "max_entries", c.MaxEntries,
		"1 to 1000, what one script call takes")
	v.Check(c.MaxEntry >= 1 && c.MaxEntry <= 1<<30, "max_entry", c.MaxEntry, "1 B to 1 GiB, in bytes")
	v.Check(c.MaxBody >= 1 && c.MaxBody <= 1<<30, "max_body", c.MaxBody, "1 B to 1 GiB, in bytes")
	v.Check(c.MaxWait >= time.Second && c.MaxWait <= time.Hour, "max_wait", c.MaxWait, "1s to 1h")
	return v.Err()
}

// metrics are the engine's own. No label holds what a client chose.
type metrics struct {
	laneWait, flushSeconds, flushRequests prometheus.Histogram
	woken, returned, notReturned, panics  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, e *Engine) (*metrics, error) {
	r := metric.New(reg, "spillway_jobs_")
	r.Read("polls", "Claims with a wait that are open now.", func() float64 {
		e.mu.Lock()
		defer e.mu.Unlock()
		return float64(len(e.polls))
	})
	m := &metrics{
		laneWait: r.Histogram("lane_wait_seconds", "Time that the oldest request of a flush about jobs waited for the flush to begin.",
			prometheus.ExponentialBuckets(0.0001, 2, 17)),
		flushSeconds: r.Histogram("flush_seconds", "Duration of a flush of requests about jobs.",
			prometheus.ExponentialBuckets(0.0001, 2, 17)),
		flushRequests: r.Histogram("flush_requests", "Number of requests about jobs in a flush.",
			prometheus.ExponentialBuckets(1, 2, 12)),
		woken: r.Counter("polls_woken_total",
			"Claims that waited and were woken, because their queues have jobs."),
		returned: r.Counter("returned_total", "Jobs given back uncounted, because the client went away before their answer was sent."),
		notReturned: r.Counter("not_returned_total",
			"Jobs that could not be given back: they are claimed again when their lease ends."),
		panics: r.Counter("flush_panics_total",
			"Panics recovered in flushes of requests about jobs. Each is a bug."),
	}
	return m, r.Err()
}
