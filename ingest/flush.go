package ingest

import (
	"strings"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/share"
)

// Bounds of a flush. A script call with 1000 entries takes Redis less than 1 ms,
// so a full flush occupies Redis for a few ms. A flush of 4096 requests with
// idempotency keys, each a call of its own, is a round trip of 70 ms.
const (
	maxGroupEntries = 1000
	maxFlushEntries = 4096
	maxFlushBytes   = 1 << 20
	// maxLargeFlushBytes is of a flush of large parts.
	maxLargeFlushBytes = 4 << 20
	// maxKnownPartitions is how many partitions are remembered between flushes, so
	// that their names are not allocated again. Each zone has an equal share.
	maxKnownPartitions = 8192
)

// flush is one call of Store.Produce: of each namespace a prefix of the parts that wait, cut
// into groups. A flush is reused and belongs to one goroutine.
type flush struct {
	maxBytes       int
	maxKnown       int // partitions remembered between flushes
	number         uint64
	known          map[string]*knownPartition // by "namespace/partition", also from earlier flushes
	used           []*group                   // in this flush, in the order of their first parts
	spare          []*group                   // groups of earlier flushes, to be reused
	groups         []*partition.Group
	joined         [][]byte // entries of groups that have several parts
	bytes, entries int
}

// knownPartition is the name of a partition, kept between flushes, and its last
// group. A later part may only join the last group: in an earlier one it would
// overtake other parts.
type knownPartition struct {
	partition string
	flush     uint64 // number of the flush that last is in
	last      *group
}

// group is successive parts of one partition that share a script call.
type group struct {
	partition.Group
	first, last *part
	size, bytes int // of its entries
}

func newFlush(maxKnown, maxBytes int) flush {
	return flush{maxKnown: maxKnown, maxBytes: maxBytes, known: make(map[string]*knownPartition)}
}

// fill makes a new flush from the parts that are next. It removes those for which include is
// false, and does not take them. It looks at no more than one part beyond those it removes,
// so its cost does not depend on the backlog.
func (f *flush) fill(waiting *share.Queue[*part], include func(*part) bool) {
	f.begin()
	for p, waits := waiting.Next(); waits; p, waits = waiting.Next() {
		if !include(p) { // and it may be another request's by now
			waiting.Pop(0)
			continue
		}
		if f.entries > 0 && (f.entries+len(p.entries) > maxFlushEntries || f.bytes+p.bytes > f.maxBytes) {
			break
		}
		f.add(p)
		waiting.Pop(p.cost())
	}
	f.seal()
}

// cost is the part of a flush that a part takes, where a whole flush is maxFlushBytes.
func (p *part) cost() int { return max(p.bytes, len(p.entries)*(maxFlushBytes/maxFlushEntries)) }

func (f *flush) begin() {
	f.number++
	f.bytes, f.entries = 0, 0
	if len(f.known) > f.maxKnown {
		clear(f.known)
	}
}

// add puts a part into its partition's last group, or into a new group after it.
// A part with an idempotency key has a group of its own, because the result of
// the group is stored under the key.
func (f *flush) add(p *part) {
	to := f.known[p.name]
	if to == nil {
		name := strings.Clone(p.name) // the part's is the request's memory
		to = &knownPartition{partition: name[len(p.request.namespace.Name)+1:]}
		f.known[name] = to
	}
	g, key := to.last, p.idempotencyKey
	if to.flush == f.number && key == "" && g.IdempotencyKey == "" &&
		g.size+len(p.entries) <= maxGroupEntries &&
		g.bytes+p.bytes <= maxPart {
		g.last.next = p
	} else {
		g = f.newGroup(to, p)
	}
	g.last = p
	g.size += len(p.entries)
	g.bytes += p.bytes
	f.entries += len(p.entries)
	f.bytes += p.bytes
}

// newGroup makes another group for a partition, with its first part.
func (f *flush) newGroup(to *knownPartition, p *part) *group {
	var g *group
	if n := len(f.spare); n > 0 {
		g, f.spare = f.spare[n-1], f.spare[:n-1]
	} else {
		g = &group{}
	}
	*g = group{first: p, Group: partition.Group{
		Namespace: p.request.namespace, Partition: to.partition, IdempotencyKey: p.idempotencyKey,
	}}
	to.flush, to.last = f.number, g
	f.used = append(f.used, g)
	return g
}

// seal gives each group its entries, once all parts are added.
func (f *flush) seal() {
	for _, g := range f.used {
		if g.first == g.last {
			g.Entries = g.first.entries
		} else {
			start := len(f.joined)
			for p := g.first; p != nil; p = p.next {
				f.joined = append(f.joined, p.entries...)
			}
			g.Entries = f.joined[start:len(f.joined):len(f.joined)]
		}
		f.groups = append(f.groups, &g.Group)
	}
}

// results gives each part its own result out of its group's, and clears the flush.
func (f *flush) results(complete func(*part, error)) {
	for _, g := range f.used {
		s := newShares(&g.Group)
		for p := g.first; p != nil; {
			next := p.next // complete may hand p's memory to another request
			p.repeated = g.Repeated
			if g.first == g.last {
				p.accepted = g.Accepted
				p.evicted = g.Evicted
				p.depth = g.Depth
			} else {
				p.accepted = len(p.entries)
				p.evicted, p.depth = s.next(len(p.entries))
			}
			complete(p, g.Err)
			p = next
		}
		// A remembered group must not keep requests in memory.
		*g = group{}
	}
	f.spare = append(f.spare, f.used...)
	clear(f.used)
	clear(f.groups)
	clear(f.joined)
	f.used = f.used[:0]
	f.groups = f.groups[:0]
	f.joined = f.joined[:0]
}

// shares computes what each part of a group did to the partition, one part after
// the other: how many old entries it evicted. The sum is the group's result.
type shares struct{ depth, capacity int }

func newShares(g *partition.Group) shares {
	return shares{depth: g.Depth + g.Evicted - g.Accepted, capacity: g.Namespace.Policy.Capacity}
}

func (s *shares) next(added int) (evicted, depth int) {
	evicted = max(0, s.depth+added-s.capacity)
	s.depth += added - evicted
	return evicted, s.depth
}
