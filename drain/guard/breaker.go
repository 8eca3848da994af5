package guard

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What a failed Write counts while no Write is answered. At tripAt the breaker
// trips. A partition that newly fails says more about the sink than one that is
// known to fail, whose own back-off bounds what it costs. A time-out, a lost
// connection or a throttle says more than either. So 64 of those trip it, 256
// partitions that had not been failing, or 1024 Writes of those that had, all in a row.
const (
	tripAt          = 1024
	knownFailure    = 1
	newFailure      = 4
	sinkWideFailure = 16
)

// Probes of a tripped sink begin at 100 a second and slow down to one a second
// within about a minute. So a sink that still answers one new partition in twenty
// is found alive within the second, and a dead one is left alone.
const (
	minProbePause, MaxProbePause = 10 * time.Millisecond, time.Second
	probeGrowth                  = 1.02
	// probeRound is the shortest wait between two rounds of probes; quicker probes
	// go out together.
	probeRound = 100 * time.Millisecond
	// probesAtOnce bounds quick probes that hang: while so many Writes run, there is
	// one probe a MaxProbePause.
	probesAtOnce = int(probeRound / minProbePause)
)

// A breaker trips when the sink seems dead: then only a few probes are claimed until
// a Write is answered.
type breaker struct {
	maxPause time.Duration // between two probes
	gauge    prometheus.Gauge

	mu        sync.Mutex
	changed   chan struct{} // closes at the next change of what follows
	history   *writeHistory // of the partitions
	failures  int           // since a Write was answered, by their weight
	tripped   bool
	probes    int       // since then
	nextProbe time.Time // no probe before
}

func newBreaker(maxPause time.Duration, gauge prometheus.Gauge) *breaker {
	return &breaker{
		maxPause: maxPause,
		gauge:    gauge,
		changed:  make(chan struct{}),
		history:  newWriteHistory(),
	}
}

// change wakes those who wait; b.mu is held.
func (b *breaker) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// pause is how long no probe passes; 0 or less when something may pass now. changed
// closes when that may differ.
func (b *breaker) pause() (d time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.tripped {
		return 0, b.changed
	}
	return time.Until(b.nextProbe), b.changed
}

func (b *breaker) isTripped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tripped
}

// pass returns which of the named partitions may be claimed now, while so many
// Writes run: all, none, or those of a round of probes. It counts the probes that it
// returns; unused gives them back.
func (b *breaker) pass(names []string, writes int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.tripped:
		return names
	case time.Until(b.nextProbe) > 0:
		return nil
	}
	pause := b.probePause(writes)
	names = b.history.likeliest(names, max(1, int(probeRound/pause)))
	b.probes += len(names)
	b.pauseProbes(time.Duration(len(names)) * pause)
	return names
}

// probePause is the present pause between two probes.
func (b *breaker) probePause(writes int) time.Duration {
	if writes >= probesAtOnce {
		return b.maxPause
	}
	return time.Duration(min(float64(b.maxPause),
		float64(minProbePause)*math.Pow(probeGrowth, float64(b.probes))))
}

func (b *breaker) pauseProbes(d time.Duration) {
	b.nextProbe = time.Now().Add(d/2 + time.Duration(rand.Float64()*float64(d/2)))
}

// unused gives n probes back for which nothing was due.
func (b *breaker) unused(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tripped {
		b.probes = max(0, b.probes-n)
		b.nextProbe = time.Time{}
		b.change()
	}
}

// A Share is what a Write was for one partition: its entries failed, or were answered.
type Share struct {
	Partition string
	Failed    bool
}

// record learns from a Write. Whatever the sink answers, it is alive. The Write counts
// once, however many partitions have a share of it. newly: one of them fails, and did not before.
func (b *breaker) record(o Outcome, err error, shares ...Share) (newly bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var f *partitionFailure
	for _, s := range shares {
		if !s.Failed {
			b.history.answered(s.Partition)
			continue
		}
		if f == nil {
			f = b.history.failureOf(err)
		}
		if b.history.failed(s.Partition, f) {
			newly = true
		}
	}
	if o.All != Retryable {
		b.answered()
	} else {
		b.failed(o, newly)
	}
	return newly
}

// lastError is what the last Write of a partition failed with, if it failed.
func (b *breaker) lastError(partition string) (words string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.history.failing[partition]; f != nil {
		return f.words, f.at
	}
	return "", time.Time{}
}

// failed notes that a Write failed; b.mu is held.
func (b *breaker) failed(o Outcome, newly bool) {
	weight := knownFailure
	if newly {
		weight = newFailure
	}
	if o.sinkWide() {
		weight = sinkWideFailure
	}
	if b.failures += weight; !b.tripped && b.failures >= tripAt {
		b.tripped, b.probes = true, 0
		b.pauseProbes(probeRound)
		b.gauge.Set(1)
	}
}

// answered notes that the sink answered a Write; b.mu is held.
func (b *breaker) answered() {
	b.failures = 0
	if b.tripped {
		b.tripped = false
		b.gauge.Set(0)
		b.change()
	}
}
