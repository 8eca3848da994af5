package ingest

import (
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/spillway-io/spillway/ingest/wire"
)

// errNewPartitions: the token used its quota of new partitions. Nothing of the
// partition was sent to the store.
var errNewPartitions = errors.New("too many new partitions for one token")

const scopeToken = "token"

// limits are the quotas of a token. Each process counts for itself.
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
	rejected.entries = n
	return rejected
}

// rejectRate says how long it takes until the rate allows n entries.
func (k *key) rejectRate(n int) *rejection {
	k.rateLimited.Inc()
	missing := float64(n) - k.entries.Tokens()
	return &rejection{code: wire.CodeRateLimited, scope: scopeToken, retryAfter: seconds(missing / float64(k.entries.Limit()))}
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
	return &rejection{
		code: wire.CodeTooManyPartitions, scope: scopeToken, retryAfter: seconds(1 / float64(k.newPartitions.limiter.Limit())),
		message: "the token has used its quota of new partitions: use fewer partitions, or raise its new_partitions",
	}
}

func seconds(s float64) int { return int(max(1, math.Ceil(s))) }
