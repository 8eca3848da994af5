package ingest

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/control"
)

// errNewPartitions: the token used its quota of new partitions. Nothing of the
// partition was sent to the store.
var errNewPartitions = errors.New("too many new partitions for one token")

// limits are the quotas of a token that each process counts for itself, and the metrics of
// all its limits.
type limits struct {
	entries       *rate.Limiter        // nil: no limit
	newPartitions *newPartitionLimiter // nil: no limit
	rateLimited   prometheus.Counter
	tooManyNew    prometheus.Counter
}

func newLimits(t Token, namespace string, maxEntries int, m *metrics) (l limits) {
	if t.Rate.Count > 0 {
		// A smaller bucket would reject the largest legal request for ever.
		l.entries = newLimiter(t.Rate, maxEntries)
	}
	if t.Rate.Count > 0 || t.Limiters != (control.Limiters{}) {
		l.rateLimited = m.limited.WithLabelValues(namespace, t.Name, string(wire.CodeRateLimited))
	}
	if t.NewPartitions.Count > 0 {
		l.newPartitions = newNewPartitionLimiter(t.NewPartitions)
		l.tooManyNew = m.limited.WithLabelValues(namespace, t.Name, string(wire.CodeTooManyPartitions))
	}
	return l
}

// newLimiter makes a token bucket. Its burst is the quota's count, or minBurst.
func newLimiter(q Quota, minBurst int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(q.Count)/q.Per.Seconds()), max(q.Count, minBurst))
}

// checkRate rejects a request before its body is read when the rate does not
// allow a single entry.
func (k *key) checkRate() *rejection {
	if k == nil || k.entries == nil || k.entries.Tokens() >= 1 {
		return nil
	}
	return k.rejectRate(1)
}

// charge takes n entries from the token's rate, or none and rejects. A request
// for stats counts as one entry.
func (k *key) charge(n int) *rejection {
	if k == nil || k.entries == nil || k.entries.AllowN(time.Now(), n) {
		return nil
	}
	rejected := k.rejectRate(n)
	rejected.Entries = n
	return rejected
}

// rejectRate says how long it takes until the rate allows n entries.
func (k *key) rejectRate(n int) *rejection {
	k.rateLimited.Inc()
	missing := float64(n) - k.entries.Tokens()
	return rejectToken(wire.CodeRateLimited, missing/float64(k.entries.Limit()))
}

// Limiters are the rates that the token has over all processes. Those of a nil Key are no
// limits.
func (k *key) Limiters() control.Limiters {
	if k == nil {
		return control.Limiters{}
	}
	return k.Token.Limiters
}

// Take takes n from one of Limiters, or nothing and rejects. Of the limiters of a Key only.
func (k *key) Take(ctx context.Context, l *control.Limiter, n int) (control.Taken, *Rejection) {
	taken, wait, err := l.Take(ctx, int64(n))
	switch {
	case err != nil:
		return taken, rejectf(wire.CodeStoreUnavailable,
			"the store does not answer, and it counts what the token used of its rate")
	case wait < 0:
		k.rateLimited.Inc()
		return taken, rejectf(wire.CodeTooManyEntries,
			"the request has more than the token's rate ever allows at once: send fewer, or raise the rate")
	case wait > 0:
		k.rateLimited.Inc()
		return taken, rejectToken(wire.CodeRateLimited, wait.Seconds())
	}
	return taken, nil
}

// admitPartition returns errNewPartitions when the partition is new and the
// token has no quota left for new ones.
func (k *key) admitPartition(partition string) error {
	if k == nil || k.newPartitions == nil || k.newPartitions.admit(partition, time.Now()) {
		return nil
	}
	k.tooManyNew.Inc()
	return errNewPartitions
}

// rejectNewPartition answers a request of which no partition was admitted.
func (k *key) rejectNewPartition() *rejection {
	rejected := rejectToken(wire.CodeTooManyPartitions, 1/float64(k.newPartitions.limiter.Limit()))
	rejected.Message = "the token has used its quota of new partitions: use fewer partitions, or raise its new_partitions"
	return rejected
}

// rejectToken says in how many seconds the token's quota allows the request.
func rejectToken(code wire.Code, seconds float64) *rejection {
	rejected := reject(code).RetryIn(int(max(1, math.Ceil(seconds))))
	rejected.Scope = "token"
	return rejected
}

// newPartitionLimiter bounds how fast one token uses new partitions. It remembers
// the hashes of the names in two generations. A name that neither generation
// holds is new and is charged to the quota. So names in use cost nothing, and
// memory is bounded by the quota. Births in the store would not tell: a partition that is
// drained is born again with its next entry.
//
// It is approximate. Two names may share a hash (one pair in 2^64). A name is
// forgotten after 10 to 20 minutes without use, or sooner when a generation is
// full. Each process counts for itself.
type newPartitionLimiter struct {
	seed     maphash.Seed // random, so nobody can choose two names with one hash
	maxNames int          // in a generation

	mu                sync.Mutex
	limiter           *rate.Limiter
	current, previous map[uint64]struct{}
	rotated           time.Time
}

// generation is how long names are added to one generation.
const generation = 10 * time.Minute

func newNewPartitionLimiter(q Quota) *newPartitionLimiter {
	return &newPartitionLimiter{
		seed: maphash.MakeSeed(), limiter: newLimiter(q, 1),
		// This bounds the memory of very large quotas: the names take 20 MB. A
		// smaller bound would forget names that are in use.
		maxNames: 1 << 20,
		current:  map[uint64]struct{}{},
	}
}

// admit reports whether the token may use a partition now.
func (l *newPartitionLimiter) admit(name string, now time.Time) bool {
	hash := maphash.String(l.seed, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.current) >= l.maxNames || now.Sub(l.rotated) >= generation {
		l.previous = l.current
		l.current = map[uint64]struct{}{}
		l.rotated = now
	}
	if _, known := l.current[hash]; known {
		return true
	}
	if _, known := l.previous[hash]; !known && !l.limiter.AllowN(now, 1) {
		return false
	}
	l.current[hash] = struct{}{}
	return true
}

// Quota is a token bucket, written 5000/s, 100/min or 20/h. The burst is Count,
// refilled evenly over Per. The zero Quota is no limit.
type Quota struct {
	Count int
	Per   time.Duration
}

var quotaUnits = []struct {
	text string
	per  time.Duration
}{{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour}}

const maxQuota = 1_000_000_000

// UnmarshalText reads a quota.
func (q *Quota) UnmarshalText(text []byte) error {
	digits, unit, _ := strings.Cut(string(text), "/")
	count, err := strconv.Atoi(digits)
	for _, u := range quotaUnits {
		if err == nil && unit == u.text && count > 0 && count <= maxQuota {
			*q = Quota{count, u.per}
			return nil
		}
	}
	return fmt.Errorf("%q is not a quota: write one such as 5000/s, 100/min or 20/h", text)
}

// String is what UnmarshalText reads.
func (q Quota) String() string {
	for _, u := range quotaUnits {
		if q.Per == u.per {
			return strconv.Itoa(q.Count) + "/" + u.text
		}
	}
	return "none"
}
