package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// unacked holds the entries that are answered before the store has them, until it has. It copies
// them into batches of a namespace and a zone: an entry then takes a tenth of what its request
// does, and a flush has few large parts. The lanes get one batch of each at a time, again and
// again while the store is away, so that entries of a partition stay in their order.
type unacked struct {
	lanes   *lanes
	metrics *metrics
	memory  *memory.Budget
	log     *zap.Logger
	spare   sync.Pool       // of *batch
	ctx     context.Context // ends when there is no time left to store what waits
	abort   context.CancelFunc
	running sync.WaitGroup // one for each queue that is not empty
	// repeatFor is how long after an attempt of unknown outcome another one may begin. That reaches
	// the store while the store still knows the key.
	repeatFor time.Duration

	mu      sync.Mutex
	queues  map[batchQueue]*batches // that somebody stores: an empty one is removed
	names   map[string]string       // of partitions, so that no batch allocates them again
	account [len(outcomes)]int64
	taken   int64 // entries
	waiting int64 // of them, those without an outcome
	logged  int64 // of those that are lost
	closed  bool
}

// batchQueue says whose batches are stored one after the other, also where the policy of the
// namespace changes.
type batchQueue struct {
	namespace string
	zone      int
}

// batches wait, the oldest first. The last one takes more entries.
type batches struct{ list []*batch }

// batch is entries of several requests, at most what a flush takes. Of a partition it has one part
// for each idempotency key, and others for what comes before, between and after them.
type batch struct {
	*request
	reserved int64
	newest   time.Time // when the last entry was added
	tried    time.Time // when the last attempt to store it began
}

// outcome is what became of entries that were answered before.
type outcome int

const (
	outStored outcome = iota
	outRejected
	outLost  // in memory
	outAgain // not known yet
)

// outcomes are the labels of their metric.
var outcomes = [...]string{outStored: "stored", outRejected: "rejected", outLost: "lost"}

// What entries and parts of a batch take beside their bytes.
const (
	keptEntry = 32
	keptPart  = 384
)

// Waits between two attempts to store a batch.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
)

func newUnacked(l *lanes, m *metrics, budget *memory.Budget, log *zap.Logger) *unacked {
	u := &unacked{lanes: l, metrics: m, memory: budget, log: log,
		queues: map[batchQueue]*batches{}, names: map[string]string{},
		repeatFor: partition.IdempotencyWindow - 3*l.all[0].timeout - lastRetry}
	u.ctx, u.abort = context.WithCancel(context.Background())
	u.spare.New = func() any { return &batch{request: newRequest()} }
	return u
}

// take copies the entries of a sealed request, all of them or none and rejects. Parts that have
// an error stay with the request; the others have no entries afterwards.
func (u *unacked) take(r *request) *rejection {
	var reserved int64
	for i := range r.parts {
		reserved += r.parts[i].kept()
	}
	tenant := u.memory.Tenant(r.namespace.Name)
	if !tenant.Keep(reserved) {
		return rejectf(wire.CodeOverloaded, "too many entries wait in memory to be stored: send later, or wait for the store with ack=commit")
	}
	now, moved, used := time.Now(), 0, int64(0)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		tenant.Let(reserved)
		return reject(wire.CodeShuttingDown)
	}
	for i := range r.parts {
		if p := &r.parts[i]; p.err == nil && p.count > 0 {
			used += u.add(p, now)
			moved += p.count
			p.accepted, p.count, p.entries = p.count, 0, nil
		}
	}
	tenant.Let(reserved - used)
	u.taken += int64(r.count)
	u.waiting += int64(r.count)
	u.count(r.namespace, outRejected, r.count-moved)
	return nil
}

// kept is what a part takes in memory at most, in bytes.
func (p *part) kept() int64 {
	if p.err != nil || p.count == 0 {
		return 0
	}
	return p.keptEntries() + keptPart + int64(len(p.idempotencyKey)+requestCost)
}

func (p *part) keptEntries() int64 { return int64(p.bytes + p.bytes/4 + p.count*keptEntry) }

// add copies a part into the last batch of its queue, or into a new one, and returns what that
// takes in memory.
func (u *unacked) add(p *part, now time.Time) int64 {
	r := p.request
	of := batchQueue{r.namespace.Name, u.lanes.zoneOf(p)}
	q := u.queues[of]
	if q == nil {
		q = &batches{}
		u.queues[of] = q
		u.running.Go(func() { u.storeAll(of, q) })
	}
	var b *batch
	used := p.keptEntries()
	if n := len(q.list); n > 0 && q.list[n-1].hasRoom(p) {
		b = q.list[n-1]
	} else {
		b = u.spare.Get().(*batch)
		b.namespace, b.received = r.namespace, r.received
		q.list = append(q.list, b)
		used += int64(requestCost)
	}
	if b.add(p, u.nameOf(p)) {
		used += keptPart + int64(len(p.idempotencyKey))
	}
	b.newest = now
	b.reserved += used
	return used
}

// nameOf is the name of a part, which is the memory of its request.
func (u *unacked) nameOf(p *part) string {
	name, known := u.names[p.name]
	if !known {
		if len(u.names) >= maxKnownPartitions {
			clear(u.names)
		}
		name = strings.Clone(p.name)
		u.names[name] = name
	}
	return name
}

// hasRoom reports whether a part may join a batch.
func (b *batch) hasRoom(p *part) bool {
	return b.namespace == p.request.namespace &&
		len(b.spans)+p.count <= maxFlushEntries && len(b.encoded)+p.bytes <= maxFlushBytes
}

// add copies a part into the last one of its partition, or into a new one, and reports which. Under
// an idempotency key a part stays alone, which the store has seen or not.
func (b *batch) add(p *part, name string) (isNew bool) {
	at, known := b.byName[name]
	isNew = !known || p.idempotencyKey != "" || !b.parts[at].joins(p)
	if isNew {
		at = int32(len(b.parts))
		b.byName[name] = at
		b.parts = append(b.parts, part{request: b.request, name: name, idempotencyKey: p.idempotencyKey})
	}
	for _, e := range p.entries {
		b.encoded = append(b.encoded, e...)
		b.spans = append(b.spans, span{end: len(b.encoded), part: at})
	}
	b.parts[at].count += p.count
	b.parts[at].bytes += p.bytes
	return isNew
}

// joins reports whether a later part without a key may share the script call of p.
func (p *part) joins(later *part) bool {
	return p.idempotencyKey == "" && p.count+later.count <= maxGroupEntries && p.bytes+later.bytes <= maxPart
}

// link tells each part which one of its partition is before it: other flushes may take them.
func (b *batch) link() {
	clear(b.byName)
	for i := range b.parts {
		p := &b.parts[i]
		p.after = nil
		if at, known := b.byName[p.name]; known {
			p.after = &b.parts[at]
		}
		b.byName[p.name] = int32(i)
	}
}

// storeAll stores the batches of a queue until it is empty.
func (u *unacked) storeAll(of batchQueue, q *batches) {
	for {
		u.mu.Lock()
		if len(q.list) == 0 {
			delete(u.queues, of)
			u.mu.Unlock()
			return
		}
		b := q.list[0]
		q.list = slices.Delete(q.list, 0, 1)
		u.mu.Unlock()

		u.store(b)
		u.memory.Tenant(b.namespace.Name).Let(b.reserved)
		u.recycle(b)
	}
}

// recycle keeps the buffers of a batch for the next ones, also those that are large for a request.
func (u *unacked) recycle(b *batch) {
	encoded, spans, entries, parts := b.encoded, b.spans, b.entries, b.parts
	b.reset()
	b.encoded, b.spans, b.entries, b.parts = encoded[:0], spans[:0], entries[:0], parts[:0]
	b.reserved = 0
	u.spare.Put(b)
}

// store stores a batch, or gives it up once its entries are older than max_age.
func (u *unacked) store(b *batch) {
	b.seal()
	for wait := firstRetry; len(b.parts) > 0; wait = min(2*wait, lastRetry) {
		if u.ctx.Err() != nil {
			u.settle(b, errShuttingDown)
			return
		}
		b.link()
		b.tried = time.Now()
		u.lanes.put(b.request)
		<-b.done
		u.settle(b, nil)
		switch {
		case len(b.parts) == 0:
		case time.Since(b.newest) > b.namespace.Policy.MaxAge:
			u.settle(b, errOverloaded)
		default:
			select {
			case <-u.ctx.Done():
			case <-time.After(wait):
			}
		}
	}
}

// settle counts the parts of a batch that have a result, and removes them. With an error none is
// tried again.
func (u *unacked) settle(b *batch, err error) {
	m := u.metrics.namespace(b.namespace)
	var entries [len(outcomes)]int
	left := b.parts[:0]
	for i := range b.parts {
		p := &b.parts[i]
		what := p.outcome()
		switch {
		case err != nil:
			p.err, what = err, outLost
		case what == outStored:
			p.err = nil
		case what == outAgain && p.repeat(b.tried, u.repeatFor):
			left = append(left, *p)
			continue
		case what == outAgain:
			p.err, what = partition.ErrUnknown, outLost
		}
		m.countPart(p)
		entries[what] += p.count
	}
	clear(b.parts[len(left):])
	b.parts = left
	u.mu.Lock()
	defer u.mu.Unlock()
	for what, n := range entries {
		u.count(b.namespace, outcome(what), n)
	}
}

// outcome says what a result of the store means for entries that were answered before.
func (p *part) outcome() outcome {
	err := p.err
	switch {
	case err == nil, errors.Is(err, partition.ErrUnconfirmed): // which has run
		return outStored
	case errors.Is(err, errShuttingDown):
		return outLost
	case errors.Is(err, partition.ErrTooManyKeys) && p.ownKey: // which nobody asked for: later there is room
		return outAgain
	case errors.Is(err, partition.ErrTooManyPartitions), errors.Is(err, partition.ErrTooManyKeys),
		errors.Is(err, partition.ErrBroken):
		return outRejected
	}
	return outAgain
}

// repeat notes that a part is to be stored again after the attempt that began at tried. Where it may
// be stored already, further attempts have a key: it is stored twice at most, however many there
// are. It is false once the store may forget the key before the next one, as of the first such attempt.
func (p *part) repeat(tried time.Time, within time.Duration) bool {
	if _, reason := codesFor(p.err); reason == wire.ReasonUnknown {
		if p.unknown.IsZero() {
			p.unknown = tried
		}
		if p.idempotencyKey == "" {
			p.idempotencyKey, p.ownKey = rand.Text(), true
		}
	}
	if !p.unknown.IsZero() && time.Since(p.unknown) > within {
		return false
	}
	p.err, p.home = nil, nil
	return true
}

// count counts what became of entries. It is called with the lock.
func (u *unacked) count(ns *partition.Namespace, what outcome, entries int) {
	u.waiting -= int64(entries)
	u.account[what] += int64(entries)
	u.metrics.namespace(ns).unacked[what].Add(float64(entries))
}

// drain waits until all is stored. When ctx ends first, the rest is lost: the lanes must be
// stopped next, and then wait called.
func (u *unacked) drain(ctx context.Context) {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	empty := make(chan struct{})
	go func() {
		u.running.Wait()
		close(empty)
	}()
	select {
	case <-empty:
	case <-ctx.Done():
	}
	u.abort()
}

// wait ends what drain began, and logs what was lost.
func (u *unacked) wait() {
	u.running.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := u.account[outLost] - u.logged; n > 0 {
		u.log.Warn("entries lost in memory after their requests were answered 202", zap.Int64("entries", n))
		u.logged = u.account[outLost]
	}
}

// appendAccount appends the account as keys of a JSON object, and closes it and the one around:
// taken = stored + rejected + lost + waiting.
func (u *unacked) appendAccount(to []byte) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	to = fmt.Appendf(to, `"taken":%d,"waiting":%d`, u.taken, u.waiting)
	for i, what := range outcomes {
		to = fmt.Appendf(to, `,"%s":%d`, what, u.account[i])
	}
	return append(to, "}}"...)
}
