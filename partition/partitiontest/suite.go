// Package partitiontest is the suite that every store passes, whatever its URL:
// the promises of package partition, seen from outside.
//
//	func TestStoreOnRedis(t *testing.T) {
//		server := redistest.Start(t)
//		partitiontest.Run(t, partitiontest.Target{URL: server.URL()})
//	}
package partitiontest

import (
	"testing"
)

// Target is a store to try.
type Target struct {
	// URL as partition.Config wants it. Every case opens its own Store on it,
	// under a prefix of its own.
	URL string
	// Alone is true where each Store has data of its own, as "embedded:" has:
	// there is no second process, and no restart, to try.
	Alone bool
}

// Run tries the target with every case, in parallel.
func Run(t *testing.T, target Target) {
	t.Helper()
	cases := map[string]func(*bench){
		"produce drops the oldest":                  produceDropsTheOldest,
		"produce runs each group by itself":         produceRunsEachGroupByItself,
		"a full batch is due now":                   aFullBatchIsDueNow,
		"less than a batch lingers":                 lessThanABatchLingers,
		"a lease is exclusive":                      aLeaseIsExclusive,
		"a lease covers several batches":            aLeaseCoversSeveralBatches,
		"only the holder commits":                   onlyTheHolderCommits,
		"a commit repeated counts once":             aCommitRepeatedCountsOnce,
		"a commit elsewhere is told where":          aCommitElsewhereIsToldWhere,
		"a lapsed lease is presented again":         aLapsedLeaseIsPresentedAgain,
		"a release waits":                           aReleaseWaits,
		"an unknown claim is released":              anUnknownClaimIsReleased,
		"its release keeps the attempt":             releasingAnUnknownClaimKeepsTheAttempt,
		"evicted while leased is reclaimed":         evictedWhileLeasedIsReclaimed,
		"at most once leases, too":                  atMostOnceLeasesToo,
		"what the sink took is delivered":           whatTheSinkTookIsDelivered,
		"nothing stale is leased":                   nothingStaleIsLeased,
		"malformed entries expire":                  malformedEntriesExpire,
		"the ledger outlives partitions":            theLedgerOutlivesPartitions,
		"sequences never repeat":                    sequencesNeverRepeat,
		"an idempotency key counts once":            anIdempotencyKeyCountsOnce,
		"idempotency keys are bounded":              keysAreBounded,
		"partitions are bounded":                    partitionsAreBounded,
		"dead letters are bounded":                  deadLettersAreBounded,
		"shards share a namespace":                  shardsShareANamespace,
		"namespaces do not meet":                    namespacesDoNotMeet,
		"stats describe a partition":                statsDescribeAPartition,
		"partitions are listed":                     partitionsAreListed,
		"a list of partitions misses none":          aListOfPartitionsMissesNone,
		"partitions with large entries are listed":  partitionsWithLargeEntriesAreListed,
		"a peek changes nothing":                    aPeekChangesNothing,
		"a peek is bounded in bytes":                aPeekIsBoundedInBytes,
		"a purge drops what is old":                 aPurgeDropsWhatIsOld,
		"a purge has a limit":                       aPurgeHasALimit,
		"a purge leaves leases alone":               aPurgeLeavesLeasesAlone,
		"a purge knows what the sink took":          aPurgeKnowsWhatTheSinkTook,
		"dead letters are listed":                   deadLettersAreListed,
		"a list of dead letters misses none":        aListOfDeadLettersMissesNone,
		"dead letters are discarded":                deadLettersAreDiscarded,
		"dead letters are replayed":                 deadLettersAreReplayed,
		"an overview describes a namespace":         anOverviewDescribesANamespace,
		"due is in the order of time":               dueIsInTheOrderOfTime,
		"a paused partition is not leased":          aPausedPartitionIsNotLeased,
		"a paused namespace is not leased":          aPausedNamespaceIsNotLeased,
		"paused entries expire":                     pausedEntriesExpire,
		"pauses are bounded":                        pausesAreBounded,
		"producers and drainers together lose none": producersAndDrainersTogetherLoseNone,
	}
	if !target.Alone {
		cases["the ledger outlives a process"] = theLedgerOutlivesAProcess
		cases["another process replays a range"] = anotherProcessReplaysARange
		cases["another process knows the key"] = anotherProcessKnowsTheKey
		cases["another process obeys a pause"] = anotherProcessObeysAPause
		cases["pauses outlive a process"] = pausesOutliveAProcess
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(&bench{T: t, target: target})
		})
	}
}
