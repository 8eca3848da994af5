package spillway

import (
	"container/heap"
	"sync"
	"time"
)

// An entry waits in two lists: that of its partition, and that of all entries, by
// age. It is reused, with the memory of its payload.
type entry struct {
	payload  []byte
	id       string
	occurred int64         // ms since 1970, of the client's clock
	queued   time.Duration // when it came, since the Reporter began
	seq      uint64
	part     *part

	older, newer *entry // of all
	next         *entry // of its partition
}

// keptPayload bounds the memory that an entry keeps when it is reused.
const keptPayload = 4 << 10

var entries = sync.Pool{New: func() any { return new(entry) }}

func newEntry(payload []byte) *entry {
	e, _ := entries.Get().(*entry)
	e.payload = append(e.payload[:0], payload...)
	return e
}

func (e *entry) free() {
	kept := e.payload[:0]
	if cap(kept) > keptPayload {
		kept = nil
	}
	*e = entry{payload: kept}
	entries.Put(e)
}

// A part is the queue of one partition, oldest entry first.
type part struct {
	name        string
	first, last *entry
	size        size
	inFlight    bool // a request carries entries of it
	at          int  // in ready, or -1
}

// ready are the partitions that have entries and none in flight, that with the
// oldest entry first.
type ready []*part

func (r ready) Len() int           { return len(r) }
func (r ready) Less(i, j int) bool { return r[i].first.seq < r[j].first.seq }
func (r ready) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].at, r[j].at = i, j
}
func (r *ready) Push(x any) {
	p, _ := x.(*part)
	p.at = len(*r)
	*r = append(*r, p)
}
func (r *ready) Pop() any {
	list := *r
	p := list[len(list)-1]
	list[len(list)-1] = nil
	*r = list[:len(list)-1]
	p.at = -1
	return p
}

// size is so many entries and bytes of their payloads.
type size struct{ entries, bytes int }

func (s *size) add(other size) { s.entries, s.bytes = s.entries+other.entries, s.bytes+other.bytes }
func (s *size) sub(other size) { s.entries, s.bytes = s.entries-other.entries, s.bytes-other.bytes }

// queue holds the entries that wait. It is not safe for concurrent use.
type queue struct {
	parts          map[string]*part
	ready          ready
	oldest, newest *entry
	size           size
	sendable       size // of the partitions in ready
	spare          []*part
}

// spareParts bounds the emptied parts that are kept for new partitions.
const spareParts = 256

func (q *queue) part(name string) *part {
	if p := q.parts[name]; p != nil {
		return p
	}
	var p *part
	if n := len(q.spare); n > 0 {
		p, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		p = new(part)
	}
	*p = part{name: name, at: -1}
	q.parts[name] = p
	return p
}

// settle puts a partition where it belongs after a change: into ready, or out of
// the map when there is nothing of it.
func (q *queue) settle(p *part) {
	switch {
	case p.first != nil && !p.inFlight && p.at < 0:
		heap.Push(&q.ready, p)
		q.sendable.add(p.size)
	case p.first != nil && p.at >= 0:
		heap.Fix(&q.ready, p.at)
	case p.first == nil && p.at >= 0:
		heap.Remove(&q.ready, p.at)
	}
	if p.first == nil && !p.inFlight {
		delete(q.parts, p.name)
		if len(q.spare) < spareParts {
			q.spare = append(q.spare, p)
		}
	}
}

// add appends a new entry.
func (q *queue) add(p *part, e *entry) {
	e.part = p
	if p.last == nil {
		p.first = e
	} else {
		p.last.next = e
	}
	p.last = e
	e.older = q.newest
	if q.newest == nil {
		q.oldest = e
	} else {
		q.newest.newer = e
	}
	q.newest = e
	q.grow(e)
	if p.at < 0 && !p.inFlight {
		q.settle(p)
	}
}

// grow counts an entry that came.
func (q *queue) grow(e *entry) {
	one := size{1, len(e.payload)}
	q.size.add(one)
	e.part.size.add(one)
	if e.part.at >= 0 {
		q.sendable.add(one)
	}
}

// take removes the oldest entry of a partition. The caller calls settle when it is done
// with the partition.
func (q *queue) take(p *part) *entry {
	e := p.first
	if p.first = e.next; p.first == nil {
		p.last = nil
	}
	if e.older == nil {
		q.oldest = e.newer
	} else {
		e.older.newer = e.newer
	}
	if e.newer == nil {
		q.newest = e.older
	} else {
		e.newer.older = e.older
	}
	e.next = nil
	e.older = nil
	e.newer = nil
	one := size{1, len(e.payload)}
	q.size.sub(one)
	p.size.sub(one)
	if p.at >= 0 {
		q.sendable.sub(one)
	}
	return e
}

// send marks a partition as in flight: it leaves ready.
func (q *queue) send(p *part) {
	if p.at >= 0 {
		q.sendable.sub(p.size)
		heap.Remove(&q.ready, p.at)
	}
	p.inFlight = true
}

// arrived ends that.
func (q *queue) arrived(p *part) {
	p.inFlight = false
	q.settle(p)
}
