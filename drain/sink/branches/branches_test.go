package branches

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

func batch(name string, first, n int) *sink.Batch {
	b := &sink.Batch{Namespace: "parent", Partition: name, FirstSeq: int64(first), End: int64(first + n), Attempt: 1, Deadline: time.Now().Add(time.Minute)}
	for i := first; i < first+n; i++ {
		b.Entries = append(b.Entries, sink.Entry{Seq: int64(i), Occurred: firstTime + int64(i), Payload: fmt.Appendf(nil, "%d", i)})
	}
	return b
}

// sequences are what a branch has of a partition, in its order.
func (x *target) sequences(t *testing.T, branch, name string) (list []int64) {
	t.Helper()
	records, err := x.records(t, branch)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Partition == name {
			list = append(list, r.Seq)
		}
	}
	return list
}

func from(first, n int) (list []int64) {
	for i := range n {
		list = append(list, int64(first+i))
	}
	return list
}

func TestURLsThatNameNoBranchesAreErrors(t *testing.T) {
	t.Parallel()
	registry := sink.Registry{"namespaces": New}
	for raw, want := range map[string]string{
		"namespaces:a,b":                           "such as namespaces://hot,archive",
		"namespaces://":                            "such as namespaces://hot,archive",
		"namespaces://a/b":                         "such as namespaces://hot,archive",
		"namespaces://u:p@a":                       "such as namespaces://hot,archive",
		"namespaces://a,b#c":                       "such as namespaces://hot,archive",
		"namespaces://a,,b":                        `"" is no name`,
		"namespaces://a,-b":                        `"-b" is no name`,
		"namespaces://a,b,a":                       "namespace a is named twice",
		"namespaces://a?x=1":                       `unknown option "x"`,
		"namespaces://a" + strings.Repeat(",b", 2): "namespace b is named twice",
	} {
		if _, err := registry.New(raw); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: got %v, want an error with %q", raw, err, want)
		}
	}
	many := make([]string, maxBranches+1)
	for i := range many {
		many[i] = fmt.Sprint("n", i)
	}
	if _, err := New(&url.URL{Scheme: "namespaces", Host: strings.Join(many, ",")}); err == nil {
		t.Error("too many branches are accepted")
	}
}

func TestAnUnknownBranchIsAnError(t *testing.T) {
	t.Parallel()
	x := startTarget(t)
	s := &Sink{names: []string{"a", "c"}}
	if err := s.Use(x.store); err == nil || !strings.Contains(err.Error(), "no namespace c") {
		t.Errorf("got %v", err)
	}
	if err := s.Open(t.Context()); err == nil {
		t.Error("a sink without a store opened")
	}
}

func TestSeveralBatchesReachEveryBranchInOrder(t *testing.T) {
	t.Parallel()
	x := startTarget(t)
	s := x.sink(t, "namespaces://b,a")
	var batches []*sink.Batch
	for i := range maxBatches {
		batches = append(batches, batch("kart", 1+i*128, 128))
	}
	if err := s.Write(t.Context(), batches); err != nil {
		t.Fatal(err)
	}
	for _, branch := range []string{"a", "b"} {
		if got := x.sequences(t, branch, "kart"); !slices.Equal(got, from(1, maxBatches*128)) {
			t.Errorf("%s: got %d entries, want %d in order", branch, len(got), maxBatches*128)
		}
	}
}

// The store runs the script, and the answer is lost. The batch comes again without its
// first entries, which have gone stale meanwhile.
func TestALostAnswerDoublesNothingThoughEntriesWentStale(t *testing.T) {
	t.Parallel()
	x := startTarget(t)
	s := x.sink(t, "namespaces://a,b")
	if err := s.Write(t.Context(), []*sink.Batch{batch("connects", 1, 1)}); err != nil {
		t.Fatal(err)
	}
	x.server.Signal(syscall.SIGSTOP)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Write(short, []*sink.Batch{batch("kart", 1, 100), batch("kart", 101, 50)}); err == nil {
		t.Fatal("a Write without an answer succeeded")
	}
	x.server.Signal(syscall.SIGCONT)
	redistest.Until(t, 10*time.Second, "the script ran", func() bool { return len(x.sequences(t, "b", "kart")) == 150 })
	again := []*sink.Batch{batch("kart", 31, 70), batch("kart", 101, 50)}
	if err := s.Write(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	for _, branch := range []string{"a", "b"} {
		if got := x.sequences(t, branch, "kart"); !slices.Equal(got, from(1, 150)) {
			t.Errorf("%s: got %v, want 1 to 150 once", branch, got)
		}
	}
}

// lame is a store whose answers about one branch are lost, or which never gets there.
type lame struct {
	*partition.Store
	branch string
	runs   bool
	err    error
}

func (l *lame) Produce(ctx context.Context, groups []*partition.Group) {
	if l.runs {
		l.Store.Produce(ctx, groups)
	} else {
		l.Store.Produce(ctx, slices.DeleteFunc(slices.Clone(groups), func(g *partition.Group) bool { return g.Namespace.Name == l.branch }))
	}
	for _, g := range groups {
		if g.Namespace.Name == l.branch {
			g.Err = l.err
		}
	}
}

func TestABranchThatFailsGetsTheEntriesLaterAndTheOthersOnce(t *testing.T) {
	t.Parallel()
	for _, runs := range []bool{false, true} {
		x := startTarget(t)
		s := x.sink(t, "namespaces://a,b")
		if err := s.Use(&lame{x.store, "b", runs, partition.ErrUnknown}); err != nil {
			t.Fatal(err)
		}
		b := batch("kart", 1, 20)
		err := s.Write(t.Context(), []*sink.Batch{b})
		var failed *sink.BatchError
		if !errors.As(err, &failed) || len(failed.Failed) != 20 || sink.IsPermanent(failed.Failed[0].Err) || !strings.Contains(err.Error(), "branch b") {
			t.Fatalf("got %v, want 20 entries to be retried because of branch b", err)
		}
		if err := s.Use(x.store); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), []*sink.Batch{b}); err != nil {
			t.Fatal(err)
		}
		for _, branch := range []string{"a", "b"} {
			if got := x.sequences(t, branch, "kart"); !slices.Equal(got, from(1, 20)) {
				t.Errorf("runs %t: %s has %v, want 1 to 20 once", runs, branch, got)
			}
		}
	}
}

func TestABranchWithoutRoomForAnotherPartitionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	x := startTarget(t)
	s := x.sink(t, "namespaces://a,b")
	if err := s.Write(t.Context(), []*sink.Batch{batch("early", 1, 1)}); err != nil {
		t.Fatal(err)
	}
	x.fill(t)
	err := s.Write(t.Context(), []*sink.Batch{batch("early", 2, 3), batch("late", 1, 2)})
	var failed *sink.BatchError
	if !errors.As(err, &failed) || len(failed.Failed) != 2 {
		t.Fatalf("got %v, want the two entries of the partition that has no room", err)
	}
	for _, f := range failed.Failed {
		if f.Batch != 1 || !sink.IsPermanent(f.Err) || f.Err.Error() != "branch b: too many partitions" {
			t.Errorf("got batch %d, %v", f.Batch, f.Err)
		}
	}
	if got := x.partitions(t, "a"); !slices.Equal(got, []string{"early", "late"}) {
		t.Errorf("a has %v, want both", got)
	}
}

func TestAFullStoreIsLeftAlone(t *testing.T) {
	t.Parallel()
	x := startTarget(t)
	s := x.sink(t, "namespaces://a,b")
	x.set(t, "maxmemory", "1")
	var failed *sink.BatchError
	if err := s.Write(t.Context(), []*sink.Batch{batch("kart", 1, 2)}); !errors.As(err, &failed) {
		t.Fatalf("got %v", err)
	}
	if after, ok := sink.ThrottledFor(failed.Failed[0].Err); !ok || after != fullPause {
		t.Errorf("got %v, want a pause of %s", failed.Failed[0].Err, fullPause)
	}
}

// On a cluster the branches of a partition lie on different masters.
func TestBranchesOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 3)
	policy := partition.DefaultPolicy()
	policy.Shards = 4
	store, err := partition.Open(partition.Config{
		Backend: backendtest.Open(t, backend.Config{URL: cluster.URL()}), Prefix: "sw", Namespaces: map[string]partition.Policy{"a": policy, "b": policy},
	}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := (&target{store: store}).sink(t, "namespaces://a,b")
	for i := range 20 {
		b := batch(fmt.Sprint("kart-", i), 1, 10)
		for range 2 {
			if err := s.Write(t.Context(), []*sink.Batch{b}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, branch := range []string{"a", "b"} {
		o, err := store.Overview(t.Context(), store.Namespace(branch))
		if err != nil || o.Ledger.Accepted != 200 || o.Ledger.Buffered != 200 {
			t.Errorf("%s: got %+v, %v, want 200 accepted, though each batch came twice", branch, o.Ledger, err)
		}
	}
}

// Of a batch that comes again a branch stores what it has not got, whatever was missing
// of the batch before.
func TestABranchThatHasOnlyAPartOfABatchGetsAllOfIt(t *testing.T) {
	t.Parallel()
	x := startTarget(t)
	s := x.sink(t, "namespaces://a,b")
	scattered := batch("kart", 11, 5)
	scattered.Entries = []sink.Entry{scattered.Entries[0], scattered.Entries[4]}
	for _, part := range []*sink.Batch{batch("kart", 5, 1), scattered} {
		if err := s.Write(t.Context(), []*sink.Batch{part}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := s.Write(t.Context(), []*sink.Batch{batch("kart", 1, 5), batch("kart", 14, 2)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, branch := range []string{"a", "b"} {
		if got := x.sequences(t, branch, "kart"); !slices.Equal(got, []int64{5, 15, 11, 1, 2, 3, 4, 14}) {
			t.Errorf("%s: got %v, want each entry once", branch, got)
		}
	}
}

// A job's id may be longer than an entry's, and a queue may have a name that no partition
// has.
func TestJobsBecomeEntriesOfBranches(t *testing.T) {
	t.Parallel()
	x := startTarget(t)
	s := x.sink(t, "namespaces://a,b")
	jobs := batch("mail-eu", 1, 1)
	jobs.Jobs = []sink.Job{{Attempt: 1, Tries: 3}}
	jobs.Entries[0].ID = []byte("01JD7Z8Q4V5N0W6X2Y3T1R9K8M-" + strings.Repeat("x", 64))
	if err := s.Write(t.Context(), []*sink.Batch{jobs}); err != nil {
		t.Fatal(err)
	}
	list, err := x.records(t, "a")
	if err != nil || len(list) != 1 || len(list[0].ID) != partition.MaxIDLen {
		t.Errorf("got %v, %v, want one entry with an id of %d bytes", list, err, partition.MaxIDLen)
	}
	for _, name := range []string{"-mail", strings.Repeat("q", 200)} {
		jobs.Partition = name
		if err := s.Write(t.Context(), []*sink.Batch{jobs}); !sink.IsPermanent(err) {
			t.Errorf("queue %.10s: got %v, want a permanent error", name, err)
		}
	}
}
