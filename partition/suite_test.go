package partition_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

func TestStoreEmbedded(t *testing.T) {
	t.Parallel()
	runSuite(t, target{URL: "embedded:", Alone: true})
}

func TestStoreOnOneRedis(t *testing.T) {
	t.Parallel()
	runSuite(t, target{URL: "redis://" + redistest.Shared(t)})
}

func TestStoreOnSentinel(t *testing.T) {
	t.Parallel()
	runSuite(t, target{URL: redistest.StartSentinel(t).URL(), Part: true})
}

func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	runSuite(t, target{URL: redistest.SharedMasters(t).URL()})
}

// A target is a store for the suite: the promises of package partition, seen from outside,
// which every store keeps, whatever its URL.
type target struct {
	// URL as partition.Config wants it. Every case opens its own Store on it,
	// under a prefix of its own.
	URL string
	// Alone is true where each Store has data of its own, as "embedded:" has:
	// there is no second process, and no restart, to try.
	Alone bool
	// Part is true where only the way to the server is another: -short tries a quarter of the cases.
	Part bool
}

// runSuite tries a target with every case, in parallel.
func runSuite(t *testing.T, on target) {
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
		"at most once leases, too":                  atMostOnceLeasesToo,
		"what the sink took is delivered":           whatTheSinkTookIsDelivered,
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
	if !on.Alone {
		cases["the ledger outlives a process"] = theLedgerOutlivesAProcess
		cases["another process replays a range"] = anotherProcessReplaysARange
		cases["another process knows the key"] = anotherProcessKnowsTheKey
		cases["another process obeys a pause"] = anotherProcessObeysAPause
		cases["pauses outlive a process"] = pausesOutliveAProcess
	}
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		if on.Part && testing.Short() && i%4 > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases[name](&bench{T: t, target: on})
		})
	}
}

// patience is how long anything a case waits for may take.
const patience = 20 * time.Second

var prefixes atomic.Int64

// bench is what a case works on: a Store under its own prefix.
type bench struct {
	*testing.T
	target target
	prefix string
	store  *partition.Store
	ns     *partition.Namespace
	made   int
}

// open makes the Store, with one namespace of the default policy as changed.
func (b *bench) open(change func(*partition.Policy)) {
	b.Helper()
	policy := partition.DefaultPolicy()
	policy.Batch, policy.Capacity, policy.Linger = 4, 10, time.Hour
	policy.MaxAge = 2 * time.Hour
	if change != nil {
		change(&policy)
	}
	b.prefix = fmt.Sprintf("pt%d-%d", time.Now().UnixNano(), prefixes.Add(1))
	b.store = b.another(map[string]partition.Policy{"default": policy})
	b.ns = b.store.Namespace("default")
}

// another is one more Store under the same prefix: another process.
func (b *bench) another(namespaces map[string]partition.Policy) *partition.Store {
	b.Helper()
	back := backendtest.Open(b, backend.Config{URL: b.target.URL})
	s, err := partition.Open(partition.Config{Backend: back, Prefix: b.prefix, Namespaces: namespaces},
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	usable(b, s)
	return s
}

// restart is our process ending and starting again with the same settings.
func (b *bench) restart() {
	b.Helper()
	policy := b.ns.Policy
	if err := b.store.Close(); err != nil {
		b.Fatal(err)
	}
	b.store = b.another(map[string]partition.Policy{"default": policy})
	b.ns = b.store.Namespace("default")
}

// entries makes n fresh entries whose payloads count up from 1.
func (b *bench) entries(n int) [][]byte {
	b.Helper()
	return b.aged(n, 0)
}

func (b *bench) aged(n int, age time.Duration) [][]byte {
	b.Helper()
	now := b.now()
	list := make([][]byte, n)
	for i := range list {
		b.made++
		list[i] = partition.AppendEntry(nil, now-age.Milliseconds(), nil, strconv.AppendInt(nil, int64(b.made), 10))
	}
	return list
}

// now is the store's time in ms.
func (b *bench) now() int64 {
	b.Helper()
	now, ok := b.store.Now()
	if !ok {
		b.Fatal("the store's clock is not known")
	}
	return now
}

// pass lets ms pass on the store's clock.
func (b *bench) pass(ms int64) {
	b.Helper()
	until := b.now() + ms
	if _, _, err := b.store.Due(b.Context(), b.ns, 0, 0, 1); err != nil { // forgets what rang before
		b.Fatal(err)
	}
	b.store.WaitDue(b.Context(), b.ns, 0, until, patience)
}

func (b *bench) group(name string, entries [][]byte) *partition.Group {
	return &partition.Group{Namespace: b.ns, Partition: name, Entries: entries}
}

// produce stores entries and returns the group with its result.
func (b *bench) produce(name string, entries [][]byte) *partition.Group {
	b.Helper()
	g := b.group(name, entries)
	b.store.Produce(b.Context(), []*partition.Group{g})
	if g.Err != nil {
		b.Fatalf("produce: %v", g.Err)
	}
	return g
}

// claim asks once; the lease may be nil.
func (b *bench) claim(name string, batches int, lease time.Duration) partition.ClaimResult {
	b.Helper()
	c := b.store.Claim(b.Context(), []partition.ClaimRequest{{Namespace: b.ns, Partition: name, MaxBatches: batches}}, lease)[0]
	if c.Err != nil {
		b.Fatalf("claim: %v", c.Err)
	}
	return c
}

// lease claims until the partition is given.
func (b *bench) lease(name string, batches int, lease time.Duration) *partition.Lease {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	for {
		if c := b.claim(name, batches, lease); c.Lease != nil {
			return c.Lease
		}
		b.await(ctx, name)
	}
}

// await sleeps until the partition is due, as a drainer would.
func (b *bench) await(ctx context.Context, name string) {
	b.Helper()
	shard := b.ns.ShardOf(name)
	list, _, err := b.store.Due(ctx, b.ns, shard, 0, 1000)
	if err != nil {
		b.Fatal(err)
	}
	for _, d := range list {
		if d.Partition == name {
			b.store.WaitDue(ctx, b.ns, shard, d.Due, patience)
		}
	}
	if ctx.Err() != nil {
		b.Fatalf("%s was not given in %v", name, patience)
	}
}

func (b *bench) commit(c *partition.Commit) error {
	b.store.Commit(b.Context(), []*partition.Commit{c})
	return c.Err
}

func (b *bench) release(r *partition.Release) error {
	b.store.Release(b.Context(), []*partition.Release{r})
	return r.Err
}

// delivered commits [lo, hi) as delivered.
func (b *bench) delivered(l *partition.Lease, lo, hi int64) {
	b.Helper()
	if err := b.commit(&partition.Commit{Lease: l, Lo: lo, Hi: hi, Delivered: int(hi - lo)}); err != nil {
		b.Fatalf("commit: %v", err)
	}
}

// payloads are the payloads of a lease, as one string.
func texts(l *partition.Lease) string {
	var list []string
	for _, e := range l.Entries {
		list = append(list, string(e.Payload))
	}
	return fmt.Sprint(list)
}

// same compares anything by its text.
func (b *bench) same(what string, got, want any) {
	b.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		b.Fatalf("%s: got %s, want %s", what, g, w)
	}
}

func (b *bench) is(what string, got, want error) {
	b.Helper()
	if !errors.Is(got, want) {
		b.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// ledgerIs compares the account, which must be what is there.
func (b *bench) ledgerIs(want partition.Ledger) {
	b.Helper()
	o, err := b.store.Overview(b.Context(), b.ns)
	if err != nil {
		b.Fatal(err)
	}
	b.same("ledger", fmt.Sprintf("%+v", o.Ledger), fmt.Sprintf("%+v", want))
	residual, err := b.store.Audit(b.Context(), b.ns)
	if err != nil || residual != 0 {
		b.Fatalf("audit: the account says %d entries more than there are (%v)", residual, err)
	}
}
