package drain

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
)

const (
	// maxClaims bounds the claims of one round.
	maxClaims = 128
	// claimsAtOnce bounds the claims that are sent together. The store bounds what
	// they bring in one call, so this is for drainers that compete: at most so many
	// claims are lost at once.
	claimsAtOnce = 32
)

// take claims what it can of names; total partitions were due. *slots is in and out:
// the slots that the caller holds, plus those that take adds, less one a lease.
func (c *claimer) take(names []string, total, free int, slots *int) pause {
	if names = c.sink.Pass(names); len(names) == 0 {
		return pause{}
	}
	names = c.contention.sample(names)
	*slots += c.slots.More(min(len(names), maxClaims) - *slots)
	n := min(len(names), *slots)
	names, c.ahead = names[:n], names[n:]
	got := c.claim(names, c.depth.of(total, free, c.sink.WriteTime()))
	*slots -= got.leases
	if got.leases == 0 {
		c.sink.Unused(len(names))
	}
	return c.conclude(got, total)
}

// claimed is what a round of claims brought.
type claimed struct {
	claims, leases, expired int
	lost                    int    // most likely to other drainers
	putOff                  int    // paused partitions, which come due later
	paused                  string // the partition whose claim said that the namespace is paused
	err                     error  // the store's, unless it rejected just the partition
}

// claim claims the named partitions, a few at a time, and hands over what it
// gets. It stops when other drainers have won most, because their list is the newer
// one, and when the namespace is paused.
// Stop does not interrupt it: a claim whose answer nobody takes is a lease lost
// until it lapses.
func (c *claimer) claim(names []string, batches int) (got claimed) {
	for len(names) > 0 && got.err == nil && got.paused == "" && 2*got.lost <= got.claims {
		n := min(claimsAtOnce, len(names))
		c.claimFew(names[:n], batches, &got)
		names = names[n:]
	}
	c.metrics.stale.Add(float64(got.expired))
	return got
}

// claimFew is one call of Claim.
func (c *claimer) claimFew(names []string, batches int, got *claimed) {
	ctx, cancel := context.WithTimeout(c.calling, storeTimeout)
	defer cancel()
	requests := make([]partition.ClaimRequest, len(names))
	for i, name := range names {
		requests[i] = partition.ClaimRequest{Namespace: c.ns, Partition: name, MaxBatches: batches}
		c.inFlight.add(name)
	}
	claims := c.store.Claim(ctx, requests, c.lease)
	got.claims += len(claims)
	count := c.metrics.claims
	for _, result := range claims {
		got.expired += result.Expired
		if result.Lease != nil {
			got.leases++
			count.WithLabelValues(claimLeased).Inc()
			c.hand(result.Lease)
			continue
		}
		c.inFlight.remove(result.Partition)
		switch {
		case result.Paused == partition.NamespacePaused:
			got.paused = result.Partition
			count.WithLabelValues(claimPaused).Inc()
		case result.Paused == partition.PartitionPaused:
			got.putOff++
			count.WithLabelValues(claimPaused).Inc()
		case result.Err == nil:
			if result.Expired == 0 {
				got.lost++
			}
			count.WithLabelValues(claimIdle).Inc()
		case errors.Is(result.Err, partition.ErrUnavailable), errors.Is(result.Err, partition.ErrIncompatible):
			// What is incompatible is the whole store, not this partition.
			got.err = result.Err
			count.WithLabelValues(claimUnavailable).Inc()
		case errors.Is(result.Err, partition.ErrUnknown):
			got.err = result.Err
			count.WithLabelValues(claimUnknown).Inc()
			c.unknown = append(c.unknown, result)
		default:
			count.WithLabelValues(claimBroken).Inc()
			c.rejected(result.Partition, "claim rejected", result.Err)
		}
	}
}

// conclude learns from a round of claims, and returns the pause after it.
func (c *claimer) conclude(got claimed, total int) pause {
	c.offset = 0
	if c.unverified = got.err != nil; c.unverified {
		return c.storeFailed(got.err)
	}
	c.storeServes()
	if got.paused != "" {
		return c.paused(got.paused)
	}
	c.resumed()
	c.contention.learn(float64(got.lost) / float64(got.claims))
	if c.contention.any() {
		// All drainers begin at the oldest partitions: spread out while others are met.
		c.offset = rand.IntN(max(total, 1))
	}
	if got.leases+got.expired+got.putOff > 0 {
		c.emptyRounds = 0
		return pause{}
	}
	c.emptyRounds++
	return pause{wait: guard.Backoff(time.Millisecond, 100*time.Millisecond, c.emptyRounds, rand.Float64())}
}

// releaseUnknown gives back the claims that may have run. Where that fails the
// leases lapse.
func (c *claimer) releaseUnknown() {
	if len(c.unknown) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.calling, storeTimeout)
	defer cancel()
	_ = c.store.ReleaseUnknown(ctx, c.unknown)
	c.unknown = nil
}
