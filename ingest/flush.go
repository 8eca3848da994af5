package ingest

import (
	"strings"

	"github.com/spillway-io/spillway/partition"
)

// Bounds of a flush. A script call of 1000 entries takes Redis under a
// millisecond, so a full flush keeps it busy for a few.
const (
	maxGroupEntries = 1000
	maxFlushEntries = 4096
	maxFlushBytes   = 4 << 20
	// keepGroups is how many partitions a lane remembers between flushes, to
	// spare the allocator their names and groups.
	keepGroups = 8192
)

// flush is one call of Store.Produce in the making: parts grouped by partition,
// one group each. It is used again and again and belongs to one goroutine.
type flush struct {
	number         uint64
	known          map[string]*group // by "namespace/partition", also from earlier flushes
	used           []*group          // in this flush
	groups         []*partition.Group
	arena          [][]byte // entries of groups that join several parts
	bytes, entries int
}

// group is the parts of one partition in one flush.
type group struct {
	partition.Group
	flush       uint64 // the flush that the rest is about
	first, last *part
	size        int  // entries
	full        bool // later parts wait for the next flush, or they would overtake
}

func newFlush() flush { return flush{known: make(map[string]*group)} }

// fill makes a new flush from the oldest parts and returns the others, in
// order. Those that alive denies are left out of both.
func (f *flush) fill(parts []*part, alive func(*part) bool) (rest []*part) {
	f.begin()
	rest = parts[:0]
	for i, p := range parts {
		if !alive(p) {
			continue
		}
		if f.entries > 0 && (f.entries+len(p.entries) > maxFlushEntries || f.bytes+p.bytes > maxFlushBytes) {
			rest = append(rest, parts[i:]...)
			break
		}
		if !f.join(p) {
			rest = append(rest, p)
		}
	}
	clear(parts[len(rest):])
	f.seal()
	return rest
}

func (f *flush) begin() {
	f.number++
	f.bytes, f.entries = 0, 0
	if len(f.known) > keepGroups {
		clear(f.known)
	}
}

// join adds a part to its partition's group, or reports that it has to wait. A
// request with an idempotency key is a group of its own: its result is stored
// under the key and must not include others.
func (f *flush) join(p *part) bool {
	g := f.known[p.name]
	if g == nil {
		g = &group{}
		name := strings.Clone(p.name) // the part's is the request's memory
		g.Partition = name[len(p.request.namespace.Name)+1:]
		f.known[name] = g
	}
	if g.flush != f.number {
		*g = group{flush: f.number, Group: partition.Group{
			Namespace: p.request.namespace, Partition: g.Partition,
			IdempotencyKey: p.request.idempotencyKey,
		}}
		g.first = p
		f.used = append(f.used, g)
	} else {
		keyed := g.IdempotencyKey != "" || p.request.idempotencyKey != ""
		if g.full || keyed || g.size+len(p.entries) > maxGroupEntries {
			g.full = true
			return false
		}
		g.last.next = p
	}
	g.last = p
	g.size += len(p.entries)
	f.entries += len(p.entries)
	f.bytes += p.bytes
	return true
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
		// Remembered groups must not keep requests from the collector.
		g.first, g.last, g.Entries = nil, nil, nil
	}
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
