package ingest

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// request is one produce request. Everything a lane reads lives in the request's
// own buffers, because fasthttp reuses its memory as soon as the handler returns.
// Requests are pooled with their buffers.
type request struct {
	options
	namespace *partition.Namespace
	key       *key  // limits new partitions of a mixed request; nil: none
	received  int64 // Unix ms on the store's clock
	count     int   // entries added or dropped so far: the index of the next

	small    []byte   // body that arrived with its headers
	large    []byte   // body that arrived later; from Server.buffers
	inflated []byte   // decompressed body
	encoded  []byte   // entries in the store's form, back to back
	spans    []span   // where each of them is
	entries  [][]byte // the same as slices, grouped by part
	parts    []part
	byName   map[string]int32 // partition → index in parts, for mixed bodies
	maxNames int              // the largest size byName ever had: maps do not shrink
	name     []byte           // "namespace/partition" of an unmixed request

	drops   *drops.Namespace // of the namespace; nil: none are kept
	dropped []drops.Drop     // samples of entries that were dropped

	answer wire.Answer
	out    []byte // encoded answer

	tenant     *tenant       // who pays; nil: not known yet
	reserved   int64         // bytes reserved of the budget
	incomplete int64         // the part of reserved that is for a body still arriving
	pending    atomic.Int32  // parts without a result
	done       chan struct{} // receives one value when pending is 0, unless the request has ack=none
}

// span is one encoded entry: encoded[previous end:end].
type span struct {
	end   int
	part  int32
	index int32 // in the request
}

// part is the entries of one request for one partition, or up to maxPart bytes of them. Lanes
// handle parts.
type part struct {
	request *request
	name    string // "namespace/partition"; the request's memory
	lane    *lane
	home    *lane // it came from this one to the lane for large parts; nil: it did not
	count   int
	entries [][]byte
	bytes   int
	queued  time.Time
	next    *part // in its group

	accepted, evicted, depth int
	repeated                 bool
	err                      error
}

// maxPart is how many bytes of entries a part holds at most, unless it is one entry or its
// request has an idempotency key. A partition of more has several parts, one after the other:
// Redis serves others between their script calls, of less than 1 ms each. It also pays a third
// for them: one call of 16 MiB took 98 ms of its processor, and kept others waiting for 300 ms.
const maxPart = 256 << 10

// Larger buffers do not go back to the pool, so that one large request does not
// keep its memory for ever.
const (
	maxPooledBytes   = 256 << 10
	maxPooledEntries = 1024
)

func newRequest() *request {
	return &request{byName: make(map[string]int32), done: make(chan struct{}, 1)}
}

// reset clears everything but the buffers.
func (r *request) reset() {
	clear(r.entries)
	clear(r.parts)
	clear(r.byName)
	*r = request{
		small:    r.small[:0],
		inflated: reuse(r.inflated, maxPooledBytes), encoded: reuse(r.encoded, maxPooledBytes),
		spans: reuse(r.spans, maxPooledEntries), entries: reuse(r.entries, maxPooledEntries),
		parts: reuse(r.parts, maxPooledEntries), byName: r.byName, maxNames: r.maxNames, name: r.name[:0],
		answer: wire.Answer{Results: reuse(r.answer.Results, maxPooledEntries)},
		out:    reuse(r.out, maxPooledBytes), done: r.done,
	}
}

func reuse[T any](buffer []T, maxCap int) []T {
	if cap(buffer) > maxCap {
		return nil
	}
	return buffer[:0]
}

// event is one entry before it is checked. Its strings and slices are views.
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
	r.parts = append(r.parts, part{request: r, name: full, err: r.key.admitPartition(name)})
	r.maxNames = max(r.maxNames, len(r.parts))
	return i
}

// add checks an event and encodes it for its part, or drops it. It does not drop
// stale entries of a request with an idempotency key. An earlier attempt may have
// stored them when they were younger, which only the store knows. If it did not,
// a claim expires them.
func (r *request) add(e event, maxEntry int) {
	if len(e.data) > maxEntry {
		r.dropEvent(e, wire.ReasonTooLarge, 0)
		return
	}
	if e.hasID && !partition.ValidID(e.id) {
		r.dropEvent(e, wire.ReasonBadID, 0)
		return
	}
	at, check := eventTimes{
		received: r.received,
		sent:     r.sentAt, hasSent: r.hasSentAt,
		ts: e.ts, hasTS: e.hasTS,
	}.eventTime(r.namespace.Policy.MaxAge)
	switch {
	case check == stale && r.idempotencyKey == "":
		r.dropEvent(e, wire.ReasonStale, time.Duration(r.received-at)*time.Millisecond)
		return
	case check == unskewed:
		r.addResult(wire.Warning, wire.ReasonUnskewed)
	}
	to := int32(len(r.parts) - 1)
	if e.partition != "" {
		to = r.partFor(e.partition)
	}
	start := len(r.encoded)
	r.encoded = partition.AppendEntry(r.encoded, at, e.id, e.data)
	bytes := len(r.encoded) - start
	if p := &r.parts[to]; p.count > 0 && p.bytes+bytes > maxPart && r.idempotencyKey == "" {
		to = int32(len(r.parts))
		if e.partition != "" {
			r.byName[p.name[len(p.name)-len(e.partition):]] = to
		}
		r.parts = append(r.parts, part{request: r, name: p.name, err: p.err})
	}
	r.spans = append(r.spans, span{end: len(r.encoded), part: to, index: int32(r.count)})
	r.parts[to].count++
	r.parts[to].bytes += bytes
	r.count++
}

// drop rejects the next entry, of which nothing is known, for good.
func (r *request) drop(why wire.Reason) { r.dropEvent(event{}, why, 0) }

// dropEvent rejects the next entry for good. age is 0 where it is not known.
func (r *request) dropEvent(e event, why wire.Reason, age time.Duration) {
	r.sample(e, why, age)
	r.addResult(wire.Drop, why)
	r.answer.Rejected++
	r.count++
}

func (r *request) addResult(disposition wire.Disposition, why wire.Reason) {
	r.answer.Results = append(r.answer.Results,
		wire.Result{Index: r.count, Disposition: disposition, Reason: why})
}

// seal cuts the encoded bytes into entries and groups the entries by part. It is
// called once all entries are added, because r.encoded moves when it grows.
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
		start = s.end
	}
}
