package drops

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// ringSize is how many samples of one namespace and reason are kept.
	ringSize = 128
	// sampleEvery is how often a namespace and reason may add a sample, after the first
	// ringSize of a burst.
	sampleEvery = 10 * time.Millisecond
	// maxNamespaces have samples of their own. The others share one set of them.
	maxNamespaces = 64
	maxDetail     = 300 // bytes
	maxName       = 128 // bytes of a partition or an id
)

// A Log holds the samples of a process. It takes at most 64 namespaces × 23 reasons ×
// 128 samples, which are allocated when they come. A nil *Log keeps nothing. It is
// safe for concurrent use.
type Log struct {
	mu         sync.Mutex
	namespaces map[string]*Namespace
	others     *Namespace
}

// NewLog makes an empty Log.
func NewLog() *Log {
	return &Log{namespaces: make(map[string]*Namespace), others: newNamespace("", nil)}
}

// Of returns the part of a namespace, which callers keep; nil of a nil Log.
func (l *Log) Of(namespace string) *Namespace {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n, known := l.namespaces[namespace]
	if !known {
		var shared *Namespace
		if len(l.namespaces) >= maxNamespaces {
			shared = l.others
		}
		n = newNamespace(namespace, shared)
		l.namespaces[strings.Clone(namespace)] = n
	}
	return n
}

// Namespace is the part of a namespace of a Log. A nil *Namespace keeps nothing.
type Namespace struct {
	name  string
	rings map[Reason]*ring // all of reasons, and Delivered; never written after it is made
}

// newNamespace makes one that keeps its samples with those of shared, unless that is nil.
func newNamespace(name string, shared *Namespace) *Namespace {
	n := &Namespace{name: strings.Clone(name), rings: make(map[Reason]*ring, len(reasons))}
	for _, r := range append(Reasons(), Delivered) {
		n.rings[r] = &ring{samples: &samples{}}
		if shared != nil {
			n.rings[r].samples = shared.rings[r].samples
		}
	}
	return n
}

// ring is one reason of a namespace.
type ring struct {
	total atomic.Int64
	*samples
}

type samples struct {
	// paid is when, in Unix ns, all samples so far are paid for at one each
	// sampleEvery. It may be ringSize samples ahead of the clock.
	paid atomic.Int64

	mu    sync.Mutex
	next  int // samples so far; the oldest are overwritten
	drops []Drop
}

// CountOne counts dropped entries of a reason, and reports whether the caller may
// describe them by a Record now.
func (n *Namespace) CountOne(r Reason, entries int) (sample bool) {
	return n.Count(r, entries, 1) == 1
}

// CountOneUnnamed is CountOne where the caller can say little of the entries. It leaves
// half of the allowance to samples that name one.
func (n *Namespace) CountOneUnnamed(r Reason, entries int) (sample bool) {
	return n.count(r, entries, 1, ringSize/2) == 1
}

// Count counts dropped entries of a reason of which the caller could record so many
// samples. It returns how many of those the caller may Record. It costs an addition and
// a look at the clock, so describe only what it asks for.
func (n *Namespace) Count(r Reason, entries, samples int) (granted int) {
	return n.count(r, entries, samples, ringSize)
}

// count is Count; most is how many samples of a burst it grants.
func (n *Namespace) count(r Reason, entries, samples, most int) (granted int) {
	if n == nil || entries < 1 {
		return 0
	}
	ring, known := n.rings[r]
	if !known {
		return 0
	}
	ring.total.Add(int64(entries))
	return ring.grant(samples, most)
}

// Open reports whether Count would ask for a sample now.
func (n *Namespace) Open(r Reason) bool {
	if n == nil {
		return false
	}
	ring, known := n.rings[r]
	now := time.Now().UnixNano()
	return known && paidFrom(ring.paid.Load(), now)-now <= int64((ringSize-1)*sampleEvery)
}

// paidFrom is when the next sample is paid for from. A time further ahead than any burst
// means that the clock was set back: the allowance begins anew.
func paidFrom(paid, now int64) int64 {
	if paid > now+int64(ringSize*sampleEvery) {
		return now
	}
	return max(paid, now)
}

// grant takes up to n samples from the reason's allowance, where that is most at once.
func (r *samples) grant(n, most int) int {
	now := time.Now().UnixNano()
	for {
		paid := r.paid.Load()
		from := paidFrom(paid, now)
		room := int((now + int64(most)*int64(sampleEvery) - from) / int64(sampleEvery))
		if n = min(n, room); n <= 0 {
			return 0
		}
		if r.paid.CompareAndSwap(paid, from+int64(n)*int64(sampleEvery)) {
			return n
		}
	}
}

// Record keeps a sample, for which Count asked. It copies the strings.
func (n *Namespace) Record(d Drop) {
	if n == nil {
		return
	}
	ring, known := n.rings[d.Reason]
	if !known {
		return
	}
	if d.At.IsZero() {
		d.At = time.Now()
	}
	d.Namespace = n.name
	d.Partition = cut(d.Partition, maxName)
	d.ID = cut(d.ID, maxName)
	d.Detail = cut(d.Detail, maxDetail)
	ring.mu.Lock()
	defer ring.mu.Unlock()
	if len(ring.drops) < ringSize {
		ring.drops = append(ring.drops, d)
	} else {
		ring.drops[ring.next%ringSize] = d
	}
	ring.next++
}

// cut copies text, and cuts it to limit bytes at the start of a character.
func cut(text string, limit int) string {
	if len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit]
	}
	return strings.Clone(text)
}

// A Query selects samples. A zero field selects all, but Delivered has to be named.
type Query struct {
	Namespace     string
	Reason        Reason
	Partition, ID string
	Since         time.Time
	Limit         int // the newest so many; 0: all
}

// Recent returns the samples that a query selects, the newest first.
func (l *Log) Recent(q Query) []Drop {
	var list []Drop
	for _, n := range l.selected("") {
		for reason, r := range n.rings {
			if n.ownSamples(l) && (q.Reason == reason || q.Reason == "" && reason != Delivered) {
				list = r.matching(list, q)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Drop) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Reason, b.Reason))
	})
	if q.Limit > 0 && len(list) > q.Limit {
		list = list[:q.Limit]
	}
	return list
}

// selected is the namespace of a name, or, for "", all and the one of the shared samples.
func (l *Log) selected(namespace string) (list []*Namespace) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if namespace != "" {
		if n := l.namespaces[namespace]; n != nil {
			list = append(list, n)
		}
		return list
	}
	list = append(list, l.others)
	for _, n := range l.namespaces {
		list = append(list, n)
	}
	return list
}

// ownSamples is false for a namespace that shares those of others.
func (n *Namespace) ownSamples(l *Log) bool {
	return n == l.others || n.rings[Evicted].samples != l.others.rings[Evicted].samples
}

// matching appends the ring's samples that a query selects to list, the newest first.
func (r *samples) matching(list []Drop, q Query) []Drop {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.drops {
		d := r.drops[(r.next-1-i+ringSize)%ringSize]
		if (q.Namespace == "" || q.Namespace == d.Namespace) &&
			(q.Partition == "" || q.Partition == d.Partition) && !d.At.Before(q.Since) &&
			(q.ID == "" || q.ID == d.ID) {
			list = append(list, d)
		}
	}
	return list
}

// A Total is the figures of one reason.
type Total struct {
	Entries int64 // dropped since the start of this process, exact
	Sampled int   // of which so many samples are kept
}

// Totals returns the figures of each reason that has any, of one namespace, or of all
// for "". Beyond the 64th, namespaces share their samples.
func (l *Log) Totals(namespace string) map[Reason]Total {
	totals := make(map[Reason]Total)
	for _, n := range l.selected(namespace) {
		for reason, r := range n.rings {
			t := totals[reason]
			entries := r.total.Load()
			t.Entries += entries
			if n.ownSamples(l) || namespace != "" && entries > 0 {
				r.mu.Lock()
				t.Sampled += len(r.drops)
				r.mu.Unlock()
			}
			if t != (Total{}) {
				totals[reason] = t
			}
		}
	}
	return totals
}
