package ingest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/share"
)

// queued are parts that wait.
func queued(parts ...*part) *share.Queue[*part] {
	q := share.NewQueue[*part]()
	for _, p := range parts {
		q.Push(p.request.namespace.Name, p)
	}
	return &q
}

// partResult is the result of one part.
type partResult struct{ accepted, evicted, depth int }

func TestFlushesKeepOrderAndBoundsAndDivideResultsExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ns := &partition.Namespace{Name: "n", Policy: partition.DefaultPolicy()}
		ns.Policy.Capacity = rapid.IntRange(1, 2500).Draw(t, "capacity")
		size := rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 1000))

		var parts []*part
		model := map[string]int{} // depth by partition, one part after the other
		want := map[*part]partResult{}
		for i := range rapid.IntRange(1, 60).Draw(t, "parts") {
			p := &part{request: &request{namespace: ns}, name: fmt.Sprintf("n/p%d", rapid.IntRange(0, 4).Draw(t, "partition"))}
			p.count = size.Draw(t, "entries")
			if rapid.IntRange(0, 5).Draw(t, "keyed") == 0 {
				p.request.idempotencyKey = fmt.Sprint("key", i)
			}
			for j := range p.count {
				p.entries = append(p.entries, fmt.Appendf(nil, "%d.%d", i, j))
			}
			p.bytes = rapid.OneOf(rapid.Just(100), rapid.IntRange(1, maxFlushBytes)).Draw(t, "bytes")
			parts = append(parts, p)

			depth := model[p.name] + p.count
			evicted := max(0, depth-ns.Policy.Capacity)
			model[p.name] = depth - evicted
			want[p] = partResult{p.count, evicted, depth - evicted}
		}

		var order [5][]string // entries as the store sees them
		var wantOrder [5][]string
		partitionOf := func(name string) int { return int(name[len(name)-1] - '0') }
		for _, p := range parts {
			for _, e := range p.entries {
				wantOrder[partitionOf(p.name)] = append(wantOrder[partitionOf(p.name)], string(e))
			}
		}

		store := newFake()
		depths := map[string]int{}
		f := newFlush(maxKnownPartitions, maxFlushBytes)
		completed := 0
		rest := parts
		waiting := queued(parts...)
		for flushes := 0; len(rest) > 0; flushes++ {
			if flushes > len(parts) {
				t.Fatalf("%d parts are left after %d flushes", len(rest), flushes)
			}
			looked, taken := 0, 0
			f.fill(waiting, func(*part) bool { looked++; return true })
			for _, g := range f.used {
				for p := g.first; p != nil; p = p.next {
					taken++
				}
			}
			prefix, last := rest[:taken], taken == len(rest)
			rest = rest[taken:]
			if looked > taken+1 {
				t.Fatalf("looked at %d parts to take %d", looked, taken)
			}
			entries, bytes, joined := 0, 0, 0
			for i, g := range f.groups {
				members, keyed := 0, false
				for p := f.used[i].first; p != nil; p = p.next {
					members++
					keyed = keyed || p.request.idempotencyKey != ""
					bytes += p.bytes
				}
				if keyed && members > 1 || (g.IdempotencyKey != "") != keyed {
					t.Fatalf("a request with a key shares its group with %d others", members-1)
				}
				if len(g.Entries) > maxGroupEntries {
					t.Fatalf("a group of %d entries", len(g.Entries))
				}
				entries += len(g.Entries)
				joined += members
				for _, e := range g.Entries {
					order[partitionOf(g.Partition)] = append(order[partitionOf(g.Partition)], string(e))
				}
				g.Accepted = len(g.Entries)
				g.Evicted = max(0, depths[g.Partition]+g.Accepted-ns.Policy.Capacity)
				depths[g.Partition] += g.Accepted - g.Evicted
				g.Depth = depths[g.Partition]
			}
			if joined > 1 && (entries > maxFlushEntries || bytes > maxFlushBytes) {
				t.Fatalf("a flush of %d entries, %d bytes", entries, bytes)
			}
			if joined != len(prefix) {
				t.Fatalf("took %d parts, grouped %d", len(prefix), joined)
			}
			if !last && entries+rest[0].count <= maxFlushEntries && bytes+rest[0].bytes <= maxFlushBytes {
				t.Fatalf("a part waits although it fits into the flush: %d entries, %d bytes", entries, bytes)
			}
			f.results(func(p *part, err error) {
				completed++
				if got := (partResult{p.accepted, p.evicted, p.depth}); got != want[p] || err != nil {
					t.Fatalf("part got %+v, %v; want %+v", got, err, want[p])
				}
			})
		}
		if completed != len(parts) || fmt.Sprint(order) != fmt.Sprint(wantOrder) || store.wrong != nil {
			t.Fatalf("completed %d of %d parts; order %v", completed, len(parts), order)
		}
	})
}

func TestAFlushRemembersABoundedNumberOfPartitions(t *testing.T) {
	t.Parallel()
	f := newFlush(maxKnownPartitions, maxFlushBytes)
	ns := newFake().namespaces["default"]
	for i := range 2 * maxKnownPartitions {
		p := &part{request: &request{namespace: ns}, name: fmt.Sprintf("default/p%d", i), entries: [][]byte{{}}}
		f.fill(queued(p), func(*part) bool { return true })
		if f.groups[0].Partition != fmt.Sprintf("p%d", i) {
			t.Fatalf("got %q", f.groups[0].Partition)
		}
		f.results(func(*part, error) {})
	}
	if len(f.known) > maxKnownPartitions+1 {
		t.Errorf("%d partitions are remembered", len(f.known))
	}
}

func TestPartsDoNotJoinAGroupAcrossAKeyedRequest(t *testing.T) {
	t.Parallel()
	ns := newFake().namespaces["default"]
	var parts []*part
	for _, key := range []string{"", "", "k", "", "k", "l", "", ""} {
		r := &request{namespace: ns}
		r.idempotencyKey = key
		parts = append(parts, &part{request: r, name: "default/p", entries: [][]byte{{}}, count: 1})
	}
	f := newFlush(maxKnownPartitions, maxFlushBytes)
	waiting := queued(parts...)
	f.fill(waiting, func(*part) bool { return true })
	var got []string
	for _, g := range f.groups {
		got = append(got, fmt.Sprintf("%s%d", g.IdempotencyKey, len(g.Entries)))
	}
	_, waits := waiting.Next()
	if want := "[2 k1 1 k1 l1 2]"; waits || fmt.Sprint(got) != want {
		t.Errorf("groups %v, want %s; some still wait: %v", got, want, waits)
	}
}

func TestThePartitionNameOfAGroupIsACopy(t *testing.T) {
	t.Parallel()
	f := newFlush(maxKnownPartitions, maxFlushBytes)
	r := newRequest()
	r.namespace = newFake().namespaces["default"]
	r.setPartition([]byte("default/first"))
	r.add(event{data: []byte("x")}, 10)
	r.seal()
	f.fill(queued(&r.parts[0]), func(*part) bool { return true })
	name := f.groups[0].Partition
	copy(r.name, "zzzzzzzzzzzzz")
	if name != "first" {
		t.Errorf("the group's partition became %q", name)
	}
}
