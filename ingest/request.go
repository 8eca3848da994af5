package ingest

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// request is one produce request on its way through the lanes. Everything a
// lane reads lives in the request's own buffers: fasthttp takes its memory back
// as soon as the handler returns. Requests are pooled, buffers and all.
type request struct {
	options
	namespace *partition.Namespace
	key       *key  // limits new partitions of a mixed request; nil: none
	received  int64 // Unix ms on the store's clock
	count     int   // entries judged so far: the index of the next

	small    []byte   // body that was there with its head
	large    []byte   // body that had to be waited for; of Server.buffers
	inflated []byte   // decompressed body
	encoded  []byte   // entries in the store's form, back to back
	spans    []span   // where each of them lies
	entries  [][]byte // the same as slices, those of a part together
	parts    []part
	byName   map[string]int32 // partition → index in parts, for mixed bodies
	names    int              // the most that byName ever held: maps do not shrink
	name     []byte           // "namespace/partition" of an unmixed request

	answer wire.Answer
	out    []byte // encoded answer

	reserved   int64         // bytes reserved of the budget
	incomplete int64         // those of them that count as a body not complete
	pending    atomic.Int32  // parts without a result
	done       chan struct{} // one token when there are none left, for requests that are waited for
}

// span is one encoded entry: encoded[previous end:end].
type span struct {
	end   int
	part  int32
	index int32 // in the request
}

// part is the entries of one request for one partition: what a lane handles.
type part struct {
	request *request
	name    string // "namespace/partition"; the request's memory
	lane    *lane
	count   int
	entries [][]byte
	bytes   int
	queued  time.Time
	next    *part // in its group

	accepted, evicted, depth int
	repeated                 bool
	err                      error
}

// Buffers that grew past these are not kept: one large request must not pin
// its memory in the pool.
const (
	maxPooledBytes   = 256 << 10
	maxPooledEntries = 1024
)

func newRequest() *request {
	return &request{byName: make(map[string]int32), done: make(chan struct{}, 1)}
}

// reset forgets everything but the buffers.
func (r *request) reset() {
	clear(r.entries)
	clear(r.parts)
	clear(r.byName)
	*r = request{
		small:    r.small[:0],
		inflated: keep(r.inflated, maxPooledBytes), encoded: keep(r.encoded, maxPooledBytes),
		spans: keep(r.spans, maxPooledEntries), entries: keep(r.entries, maxPooledEntries),
		parts: keep(r.parts, maxPooledEntries), byName: r.byName, names: r.names, name: r.name[:0],
		answer: wire.Answer{Results: keep(r.answer.Results, maxPooledEntries)},
		out:    keep(r.out, maxPooledBytes), done: r.done,
	}
}

func keep[T any](buffer []T, most int) []T {
	if cap(buffer) > most {
		return nil
	}
	return buffer[:0]
}

// event is one entry before it is judged; its strings and slices are views.
type event struct {
	partition string // of a mixed request
	id, data  []byte
	hasID     bool
	ts        int64
	hasTS     bool
}

// setPartition makes a part for the one partition of an unmixed request.
func (r *request) setPartition(path []byte) {
	r.name = append(r.name, path...)
	r.parts = append(r.parts, part{request: r, name: unsafe.String(unsafe.SliceData(r.name), len(r.name))})
}

// partFor returns the part for a partition of a mixed request.
func (r *request) partFor(name string) int32 {
	if i, known := r.byName[name]; known {
		return i
	}
	i := int32(len(r.parts))
	full := r.namespace.Name + "/" + name
	r.byName[full[len(full)-len(name):]] = i
	r.parts = append(r.parts, part{request: r, name: full, err: r.key.admit(name)})
	r.names = max(r.names, len(r.parts))
	return i
}

// add judges an event and encodes it for its part, or notes why not. Age is no
// reason against an entry of a request with an idempotency key: it may be
// stored since an earlier attempt, when it was younger, and only the store can
// tell. A claim expires it otherwise.
func (r *request) add(e event, maxEntry int) {
	if len(e.data) > maxEntry {
		r.drop(wire.ReasonTooLarge)
		return
	}
	if e.hasID && !partition.ValidID(e.id) {
		r.drop(wire.ReasonBadID)
		return
	}
	at, check := eventTimes{
		received: r.received,
		sent:     r.sentAt, hasSent: r.hasSentAt,
		ts: e.ts, hasTS: e.hasTS,
	}.eventTime(r.namespace.Policy.MaxAge)
	switch {
	case check == stale && r.idempotencyKey == "":
		r.drop(wire.ReasonStale)
		return
	case check == unskewed:
		r.note(wire.Warning, wire.ReasonUnskewed)
	}
	to := int32(0)
	if e.partition != "" {
		to = r.partFor(e.partition)
	}
	r.encoded = partition.AppendEntry(r.encoded, at, e.id, e.data)
	r.spans = append(r.spans, span{end: len(r.encoded), part: to, index: int32(r.count)})
	r.parts[to].count++
	r.count++
}

// drop notes that the next entry is rejected for good.
func (r *request) drop(why wire.Reason) {
	r.note(wire.Drop, why)
	r.answer.Rejected++
	r.count++
}

func (r *request) note(disposition wire.Disposition, why wire.Reason) {
	r.answer.Results = append(r.answer.Results, wire.Result{Index: r.count, Disposition: disposition, Reason: why})
}

// seal cuts the encoded bytes into slices, now that they no longer move, and
// lays those of a part together.
func (r *request) seal() {
	r.entries = slices.Grow(r.entries[:0], len(r.spans))[:len(r.spans)]
	start := 0
	for i := range r.parts {
		p := &r.parts[i]
		p.entries = r.entries[start : start : start+p.count]
		start += p.count
	}
	start = 0
	for _, s := range r.spans {
		p := &r.parts[s.part]
		p.entries = append(p.entries, r.encoded[start:s.end:s.end])
		p.bytes += s.end - start
		start = s.end
	}
}

// collect sums the parts up into the answer: entries of failed ones are to be
// retried. It returns how many parts were stored.
func (r *request) collect() (stored int) {
	failed := false
	for i := range r.parts {
		p := &r.parts[i]
		if p.err != nil {
			failed = true
			r.answer.Rejected += p.count
			continue
		}
		stored++
		r.answer.Accepted += p.accepted
		r.answer.Evicted += p.evicted
	}
	if failed {
		r.noteRetries()
	}
	return stored
}

// noteRetries adds a result for each entry of a failed part, in the order of
// the request and in place of a warning about the same entry.
func (r *request) noteRetries() {
	for _, s := range r.spans {
		if err := r.parts[s.part].err; err != nil {
			_, reason := codesFor(err)
			r.answer.Results = append(r.answer.Results, wire.Result{Index: int(s.index), Disposition: wire.Retry, Reason: reason})
		}
	}
	slices.SortStableFunc(r.answer.Results, func(a, b wire.Result) int {
		if a.Index != b.Index {
			return cmp.Compare(a.Index, b.Index)
		}
		return cmp.Compare(a.Disposition, b.Disposition) // "retry" < "warning"
	})
	r.answer.Results = slices.CompactFunc(r.answer.Results, func(a, b wire.Result) bool { return a.Index == b.Index })
}
