package jobs

import (
	"time"

	"github.com/spillway-io/spillway/partition"
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
