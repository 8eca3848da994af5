package ingest

import (
	"strings"

	"github.com/spillway-io/spillway/partition"
)

// Bounds of a flush. A script call of 1000 entries takes Redis under a
// millisecond, so a full flush keeps it busy for a few; one of 4096 keyed
// requests, each a call, is a round trip of 70 ms.
const (
	maxGroupEntries = 1000
	maxFlushEntries = 4096
	maxFlushBytes   = 4 << 20
	// maxKnownPartitions is how many partitions the lanes of all zones remember between
	// flushes, a lane its zone's part, to spare the allocator their names.
	maxKnownPartitions = 8192
)

// flush is one call of Store.Produce in the making: a prefix of what waits, cut
// into groups. It is used again and again and belongs to one goroutine.
type flush struct {
	keep           int // partitions remembered between flushes
	number         uint64
	known          map[string]*place // by "namespace/partition", also from earlier flushes
	used           []*group          // in this flush, in the order of their first parts
	spare          []*group          // of earlier ones
	groups         []*partition.Group
	arena          [][]byte // entries of groups that join several parts
	bytes, entries int
}

// place is a partition and the last of its groups, the only one that a later
// part may join without overtaking another.
type place struct {
	partition string
	flush     uint64 // the flush that last is in
	last      *group
}

// group is successive parts of one partition that share a script call.
type group struct {
	partition.Group
	first, last *part
	size        int // entries
}

func newFlush(keep int) flush { return flush{keep: keep, known: make(map[string]*place)} }

// fill makes a new flush from the oldest parts and returns how many it took.
// Those of them that alive denies are left out. It never looks at more than one
// part beyond, so a backlog costs nothing until its turn.
func (f *flush) fill(parts []*part, alive func(*part) bool) (taken int) {
	f.begin()
	for _, p := range parts {
		if alive(p) {
			if f.entries > 0 && (f.entries+len(p.entries) > maxFlushEntries || f.bytes+p.bytes > maxFlushBytes) {
				break
			}
			f.join(p)
		}
		taken++
	}
	f.seal()
	return taken
}

func (f *flush) begin() {
	f.number++
	f.bytes, f.entries = 0, 0
	if len(f.known) > f.keep {
		clear(f.known)
	}
}

// join adds a part to its partition's last group, or opens another behind it. A
// request with an idempotency key is a group of its own: its result is stored
// under the key and must not include others.
func (f *flush) join(p *part) {
	at := f.known[p.name]
	if at == nil {
		name := strings.Clone(p.name) // the part's is the request's memory
		at = &place{partition: name[len(p.request.namespace.Name)+1:]}
		f.known[name] = at
	}
	g, key := at.last, p.request.idempotencyKey
	if at.flush == f.number && key == "" && g.IdempotencyKey == "" && g.size+len(p.entries) <= maxGroupEntries {
		g.last.next = p
	} else {
		g = f.open(at, p)
	}
	g.last = p
	g.size += len(p.entries)
	f.entries += len(p.entries)
	f.bytes += p.bytes
}

// open begins a group with its first part.
func (f *flush) open(at *place, p *part) *group {
	var g *group
	if n := len(f.spare); n > 0 {
		g, f.spare = f.spare[n-1], f.spare[:n-1]
	} else {
		g = &group{}
	}
	*g = group{first: p, Group: partition.Group{
		Namespace: p.request.namespace, Partition: at.partition, IdempotencyKey: p.request.idempotencyKey,
	}}
	at.flush, at.last = f.number, g
	f.used = append(f.used, g)
	return g
}

// seal gives each group its entries, now that all are known.
func (f *flush) seal() {
	for _, g := range f.used {
		if g.first == g.last {
			g.Entries = g.first.entries
		} else {
			start := len(f.arena)
			for p := g.first; p != nil; p = p.next {
				f.arena = append(f.arena, p.entries...)
			}
			g.Entries = f.arena[start:len(f.arena):len(f.arena)]
		}
		f.groups = append(f.groups, &g.Group)
	}
}

// share gives every part its own outcome out of its group's, and ends the flush.
func (f *flush) share(settle func(*part, error)) {
	for _, g := range f.used {
		s := newSplit(&g.Group)
		for p := g.first; p != nil; {
			next := p.next // settle may hand p's memory to another request
			p.repeated = g.Repeated
			if g.first == g.last {
				p.accepted, p.evicted, p.depth = g.Accepted, g.Evicted, g.Depth
			} else {
				p.accepted = len(p.entries)
				p.evicted, p.depth = s.next(len(p.entries))
			}
			settle(p, g.Err)
			p = next
		}
		// What is remembered must not keep requests from the collector.
		*g = group{}
	}
	f.spare = append(f.spare, f.used...)
	clear(f.used)
	clear(f.groups)
	clear(f.arena)
	f.used, f.groups, f.arena = f.used[:0], f.groups[:0], f.arena[:0]
}

// split replays what a joined group did to its partition, request by request:
// who pushed how many old entries out. The parts add up to the group exactly.
type split struct{ depth, capacity int }

func newSplit(g *partition.Group) split {
	return split{depth: g.Depth + g.Evicted - g.Accepted, capacity: g.Namespace.Policy.Capacity}
}

func (s *split) next(added int) (evicted, depth int) {
	evicted = max(0, s.depth+added-s.capacity)
	s.depth += added - evicted
	return evicted, s.depth
}
