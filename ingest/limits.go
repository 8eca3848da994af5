package ingest

import (
	"errors"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// errNewPartitions: the token has brought in as many new partitions as it may.
// Nothing of the partition was sent to the store.
var errNewPartitions = errors.New("too many new partitions for one token")

const scopeToken = "token"

// limits are what a token may use up. Each process counts for itself.
type limits struct {
	entries       *rate.Limiter        // nil: no limit
	newPartitions *newPartitionLimiter // nil: no limit
	rateLimited   prometheus.Counter
	tooManyNew    prometheus.Counter
}

func newLimits(t Token, ns *partition.Namespace, maxEntries int, m *metrics) (l limits) {
	if t.Rate.Count > 0 {
		// A bucket smaller than a legal request would reject it for ever.
		l.entries = newLimiter(t.Rate, maxEntries)
		l.rateLimited = m.limited.WithLabelValues(ns.Name, t.Name, string(wire.CodeRateLimited))
	}
	if t.NewPartitions.Count > 0 {
		l.newPartitions = newNewPartitionLimiter(t.NewPartitions)
		l.tooManyNew = m.limited.WithLabelValues(ns.Name, t.Name, string(wire.CodeTooManyPartitions))
	}
	return l
}

func newLimiter(q Quota, least int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(q.Count)/q.Per.Seconds()), max(q.Count, least))
}

// spent rejects before anything is decoded when not even one entry is left.
func (k *key) checkRate() *rejection {
	if k == nil || k.entries == nil || k.entries.Tokens() >= 1 {
		return nil
	}
	return k.wait(1)
}

// charge takes n entries, or a read as one, off the token's rate, all or none.
func (k *key) charge(n int) *rejection {
	if k == nil || k.entries == nil || k.entries.AllowN(time.Now(), n) {
		return nil
	}
	return k.wait(n)
}

// wait rejects until the rate allows n entries.
func (k *key) wait(n int) *rejection {
	k.rateLimited.Inc()
	lacking := float64(n) - k.entries.Tokens()
	return &rejection{code: wire.CodeRateLimited, scope: scopeToken, retryAfter: seconds(lacking / float64(k.entries.Limit()))}
}

// admit is errNewPartitions when the token may not bring in this partition now.
func (k *key) admit(partition string) error {
	if k == nil || k.newPartitions == nil || k.newPartitions.admit(partition, time.Now()) {
		return nil
	}
	k.tooManyNew.Inc()
	return errNewPartitions
}

// rejectNewPartition answers a request none of whose partitions was admitted.
func (k *key) rejectNewPartition() *rejection {
	return &rejection{
		code: wire.CodeTooManyPartitions, scope: scopeToken, retryAfter: seconds(1 / float64(k.newPartitions.limiter.Limit())),
		message: "the token has brought in as many new partitions as it may: use fewer, or raise its new_partitions",
	}
}

func seconds(s float64) int { return int(max(1, math.Ceil(s))) }

// newPartitionLimiter bounds how fast one token brings in partitions. It remembers, by
// hashes of their names, those that were used lately, in two generations: what
// neither holds is new and takes from the quota. So names in use stay free, and
// memory is bounded by the quota. It is approximate: two names may share a hash
// (one in 2^64), a name is forgotten after 10 to 20 minutes without use, or
// sooner where very many are used, and each process counts for itself.
type newPartitionLimiter struct {
	seed maphash.Seed // not predictable: nobody can find two names with one hash
	most int          // names in a generation

	mu            sync.Mutex
	limiter       *rate.Limiter
	recent, older map[uint64]struct{}
	turned        time.Time
}

const generation = 10 * time.Minute

func newNewPartitionLimiter(q Quota) *newPartitionLimiter {
	return &newPartitionLimiter{
		seed: maphash.MakeSeed(), limiter: newLimiter(q, 1),
		// A bound for quotas that could fill the memory; fewer would forget names
		// that are in use. They take 20 MB.
		most:   1 << 20,
		recent: map[uint64]struct{}{},
	}
}

func (n *newPartitionLimiter) admit(name string, now time.Time) bool {
	hash := maphash.String(n.seed, name)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.recent) >= n.most || now.Sub(n.turned) >= generation {
		n.older, n.recent, n.turned = n.recent, map[uint64]struct{}{}, now
	}
	if _, known := n.recent[hash]; known {
		return true
	}
	if _, known := n.older[hash]; !known && !n.limiter.AllowN(now, 1) {
		return false
	}
	n.recent[hash] = struct{}{}
	return true
}
