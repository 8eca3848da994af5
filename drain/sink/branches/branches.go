// Package branches is the sink "namespaces://a,b", fan-out: it adds every entry to the
// same partition of other namespaces of the same store, its branches.
//
// A branch is an ordinary namespace. It has its own capacity, max_age, sink, breaker,
// ledger and dead letters, so a branch whose sink is dead holds up no other. An entry
// keeps its id and its time: its age goes on from where it was. It gets a new sequence.
// A batch waits for the linger of the parent, and then for that of the branch.
//
// Delivered means that every branch has the entry. A Write whose outcome is unknown
// comes again. A branch that has the batch already then finds it under its idempotency
// key and stores nothing, for 2 minutes after the first time. A batch is known by the end
// that it was cut at: when it comes again, stale entries may be missing at its beginning.
// Where others are missing, and of what a fallback hands on, each entry has a key of its
// own. A store that is
// unreachable for longer, or lacks the replicas that it is to wait for, makes entries
// come twice.
//
// Jobs of a queue become entries of a partition named like the queue, without their
// attributes. A queue whose name no partition can have is rejected.
package branches

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

const (
	// maxBatches is as many as a lease covers by default. Beyond it the entries of a
	// Write would not fit one script call.
	maxBatches = 8
	// fullPause is how long a store that is out of memory is left alone.
	fullPause = time.Second
	// maxBranches bounds what one Write sends: each branch gets all of it.
	maxBranches = 16
)

// Store is what the sink needs of *partition.Store.
type Store interface {
	Namespace(name string) *partition.Namespace
	Produce(ctx context.Context, groups []*partition.Group)
}

// Sink adds entries to the branches. It needs Use before Open.
type Sink struct {
	names    []string
	store    Store
	branches []*partition.Namespace
}

// New makes the sink of "namespaces://a,b".
func New(u *url.URL) (sink.Sink, error) {
	names, err := Names(u)
	if err != nil {
		return nil, err
	}
	return &Sink{names: names}, nil
}

// Names returns the branches that a URL names.
func Names(u *url.URL) ([]string, error) {
	if _, err := sink.Options(u); err != nil {
		return nil, err
	}
	if u.Opaque != "" || u.Host == "" || u.Path != "" || u.User != nil || u.Fragment != "" {
		return nil, errors.New("want names of namespaces, such as namespaces://hot,archive")
	}
	names := strings.Split(u.Host, ",")
	for i, name := range names {
		switch {
		case !partition.ValidNamespace(name):
			return nil, fmt.Errorf("%.64q is no name of a namespace", name)
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("namespace %s is named twice", name)
		}
	}
	if len(names) > maxBranches {
		return nil, fmt.Errorf("%d namespaces, want %d at most", len(names), maxBranches)
	}
	return names, nil
}

// Use gives the sink the store that has its branches.
func (s *Sink) Use(store Store) error {
	s.branches = nil
	for _, name := range s.names {
		ns := store.Namespace(name)
		if ns == nil {
			return fmt.Errorf("there is no namespace %s", name)
		}
		s.branches = append(s.branches, ns)
	}
	s.store = store
	return nil
}

// Open has nothing to connect: the drain has claimed from the same store.
func (s *Sink) Open(context.Context) error {
	if s.store == nil {
		return errors.New("open branches: no store")
	}
	return nil
}

// Close has nothing to free.
func (*Sink) Close(context.Context) error { return nil }

// Caps allows as many batches as a lease has.
func (*Sink) Caps() sink.Caps { return sink.Caps{MaxBatches: maxBatches} }

// Write adds all batches to all branches, in one round trip. What fails in one branch fails
// for the entries of its batch: plain, Throttle for 1 s where the store is out of memory, and
// Permanent where a branch has no room for a partition, because waiting would hold up the
// other branches.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.store == nil {
		return sink.ErrNotConnected
	}
	// All batches are of one partition. Queues have names that partitions have not.
	if name := batches[0].Partition; !partition.ValidPartition(name) {
		return sink.Permanent(fmt.Errorf("queue %.140q: no partition can have this name", name))
	}
	var groups, rest []*partition.Group
	of := make([][]*partition.Group, len(batches)) // of each batch: a group a branch, then rest
	encoded := make([][][]byte, len(batches))
	for i, b := range batches {
		encoded[i] = encode(b.Entries)
		run := runToEnd(b)
		for _, branch := range s.branches {
			g := &partition.Group{Namespace: branch, Partition: b.Partition,
				Entries: encoded[i][len(b.Entries)-run:]}
			if of[i] = append(of[i], g); run > 0 {
				g.IdempotencyKey = key("branch", b, len(b.Entries)-1)
				groups = append(groups, g)
			}
		}
	}
	s.store.Produce(ctx, groups)
	for i, b := range batches {
		for _, g := range of[i] {
			for j := range b.Entries {
				// A branch has what its run under that key had at the first time.
				if g.Err == nil && b.Entries[j].Seq < b.End-int64(g.Accepted) || b.End == 0 {
					one := &partition.Group{
						Namespace:      g.Namespace,
						Partition:      b.Partition,
						Entries:        encoded[i][j : j+1],
						IdempotencyKey: key("entry", b, j),
					}
					rest, of[i] = append(rest, one), append(of[i], one)
				}
			}
		}
	}
	if len(rest) > 0 {
		s.store.Produce(ctx, rest)
	}
	failed := &sink.BatchError{}
	for i, b := range batches {
		err := s.failure(of[i])
		if err == nil {
			continue
		}
		for j := range b.Entries {
			failed.Fail(i, j, err)
		}
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}

// encode makes stored entries in memory of their own.
func encode(entries []sink.Entry) [][]byte {
	size := 0
	for i := range entries {
		size += len("1763629675100# ") + len(entries[i].ID) + len(entries[i].Payload)
	}
	all, list := make([]byte, 0, size), make([][]byte, len(entries))
	for i := range entries {
		start := len(all)
		id := entries[i].ID // that of a job is longer with a caller's id; its first 26 bytes are unique
		all = partition.AppendEntry(all, entries[i].Occurred, id[:min(len(id), partition.MaxIDLen)],
			entries[i].Payload)
		list[i] = all[start:len(all):len(all)]
	}
	return list
}

// runToEnd is how many entries of a batch lie together up to the end that it was cut at.
func runToEnd(b *sink.Batch) (n int) {
	for n < len(b.Entries) && b.Entries[len(b.Entries)-1-n].Seq == b.End-1-int64(n) {
		n++
	}
	return n
}

// key is the idempotency key of the run that ends with an entry, or of the entry alone.
// The line break keeps it apart from the keys of clients, which are printable.
func key(kind string, b *sink.Batch, entry int) string {
	last := sink.Batch{
		Namespace: b.Namespace,
		Partition: b.Partition,
		Entries:   b.Entries[entry : entry+1],
	}
	return kind + "\n" + last.ID()
}

// failure is what the branches' answers mean for the entries of one batch. A retry
// goes first, because it repeats nothing where a branch has the batch. A branch that
// has no room for another partition is no reason to hold up the others, so the entries
// are dead letters: not every branch has them.
func (s *Sink) failure(groups []*partition.Group) (failure error) {
	for _, g := range groups {
		if g.Err == nil {
			continue
		}
		err := fmt.Errorf("branch %s: %w", g.Namespace.Name, brief(g.Err))
		switch {
		case errors.Is(g.Err, partition.ErrFull):
			return sink.Throttle(err, fullPause)
		case !errors.Is(g.Err, partition.ErrTooManyPartitions):
			return err
		case failure == nil:
			failure = sink.Permanent(err)
		}
	}
	return failure
}

// maxErrorText bounds what Redis says.
const maxErrorText = 200

func brief(err error) error {
	if text := err.Error(); len(text) > maxErrorText {
		return errors.New(strings.ToValidUTF8(text[:maxErrorText], ""))
	}
	return err
}
