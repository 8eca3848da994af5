package ingest

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

const ndjsonType = "application/x-ndjson"

// split encodes the entries of a body into r, grouped by partition. mediaType says which
// form the body has; empty: opaque. From then on r needs neither fasthttp's memory nor the body.
func (s *Server) split(t *target, r *request, mediaType string, body []byte) *rejection {
	rejected := s.growEncoded(r, len(body))
	if rejected != nil {
		return rejected
	}
	mixed := len(t.partition) == 0
	if !mixed {
		r.setPartition(t.path)
	}
	switch {
	case mediaType == jsonType:
		rejected = s.addJSON(r, body, mixed)
	case mediaType == ndjsonType:
		rejected = s.addLines(r, body, mixed)
	case mixed:
		rejected = reject(wire.CodeUnsupportedType)
	default:
		rejected = s.addOpaque(r, body)
	}
	switch {
	case rejected != nil:
		return rejected
	case !mixed && mediaType != jsonType:
		r.warnOfMistake(mediaType, body)
	}
	return s.seal(r)
}

// growEncoded makes room for the entries of a body. A line grows by 14 bytes when it is
// encoded, and an item of an envelope shrinks. An eighth more than the body saves about
// one reallocation, or all.
func (s *Server) growEncoded(r *request, body int) *rejection {
	n := body + body/8 + 64
	if n <= cap(r.encoded) {
		return nil
	}
	if rejected := r.Reserve(n); rejected != nil {
		return rejected
	}
	r.encoded = slices.Grow(r.encoded, n)
	return nil
}

// seal charges the entries of a request that is split, and releases its body.
func (s *Server) seal(r *request) *rejection {
	if rejected := r.key.charge(r.count); rejected != nil {
		return rejected
	}
	r.seal()
	r.ReleaseLarge()
	return r.ReserveInAll(r.footprint())
}

// mediaType is the Content-Type without parameters, if split treats the type
// specially; otherwise it is empty.
func mediaType(ctx *fasthttp.RequestCtx) string {
	name, _, _ := bytes.Cut(ctx.Request.Header.ContentType(), []byte{';'})
	name = bytes.TrimRight(name, " \t")
	switch {
	case bytes.EqualFold(name, []byte(ndjsonType)):
		return ndjsonType
	case bytes.EqualFold(name, []byte(jsonType)):
		return jsonType
	}
	return ""
}

// addLines takes the lines of a body. Those of one partition are not parsed: Content-Type alone says
// which form the body has. Those that name their partition are.
func (s *Server) addLines(r *request, body []byte, mixed bool) *rejection {
	lines := wire.SplitLines(body)
	for line, ok := lines.Next(); ok; line, ok = lines.Next() {
		switch {
		case r.count == s.cfg.MaxEntries:
			return s.tooManyEntries()
		case !mixed:
			r.add(event{data: line}, s.cfg.MaxEntry)
		case wire.ValidJSON(line):
			s.addItem(r, line, true)
		default:
			return rejectf(wire.CodeBadNDJSON, "line %d is not valid JSON, or nests deeper than %d levels",
				lines.Number, wire.MaxDepth)
		}
	}
	return notEmpty(r)
}

func (s *Server) addJSON(r *request, body []byte, mixed bool) *rejection {
	batch, rejected := parseBatch(r, body)
	switch {
	case rejected != nil:
		return rejected
	case batch.Form == wire.Single && mixed:
		return rejectf(wire.CodeBadJSON, "the body is an array of items, or an object whose batch is one")
	case batch.Form == wire.Single:
		return s.addOpaque(r, body)
	}
	for raw := range batch.Items() {
		switch {
		case r.count == s.cfg.MaxEntries:
			return s.tooManyEntries()
		case batch.Form == wire.Array && !mixed:
			r.add(event{data: raw}, s.cfg.MaxEntry)
		default:
			s.addItem(r, raw, mixed)
		}
	}
	return notEmpty(r)
}

// addOpaque takes the whole body as one entry.
func (s *Server) addOpaque(r *request, body []byte) *rejection {
	if len(body) > s.cfg.MaxEntry {
		return rejectf(wire.CodeEntryTooLarge, "an entry is at most %d bytes", s.cfg.MaxEntry)
	}
	r.add(event{data: body, ts: r.eventTS, hasTS: r.hasEventTS}, s.cfg.MaxEntry)
	return nil
}

// addItem takes an item, which names its partition where the request does not.
func (s *Server) addItem(r *request, raw []byte, mixed bool) {
	item, why := wire.ParseItem(raw)
	if !mixed {
		item.Partition = ""
	}
	switch {
	case why != "":
		r.drop(why)
	case mixed && !partition.ValidPartition(item.Partition):
		r.dropEvent(event{partition: item.Partition, id: item.ID}, wire.ReasonBadPartition, 0)
	default:
		r.add(event{
			partition: item.Partition,
			id:        item.ID,
			hasID:     item.HasID,
			ts:        item.TS,
			hasTS:     item.HasTS,
			data:      item.Data,
		}, s.cfg.MaxEntry)
	}
}

// parseBatch finds the form of a JSON body. The sent_at of an envelope takes the
// place of the header's.
func parseBatch(r *request, body []byte) (wire.Batch, *rejection) {
	batch, err := wire.ParseBatch(body)
	switch {
	case errors.Is(err, wire.ErrSentAt):
		return batch, rejectf(wire.CodeBadTime, "sent_at is Unix milliseconds in at most 13 digits")
	case err != nil:
		return batch, reject(wire.CodeBadJSON)
	case batch.HasSentAt:
		r.sentAt, r.hasSentAt = batch.SentAt, true
	}
	return batch, nil
}

func notEmpty(r *request) *rejection {
	if r.count == 0 {
		return reject(wire.CodeEmptyBatch)
	}
	return nil
}

func (s *Server) tooManyEntries() *rejection {
	return rejectf(wire.CodeTooManyEntries, "a request holds at most %d entries: send fewer", s.cfg.MaxEntries)
}

// How compressed data begins: gzip with its only method, and zstd.
var (
	gzipMagic = []byte{0x1f, 0x8b, 8}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// warnOfMistake adds a warning to the first entry of a body that is stored but was
// probably meant otherwise. An entry has one result, so another one stays.
func (r *request) warnOfMistake(mediaType string, body []byte) {
	var why wire.Reason
	switch {
	case looksCompressed(body):
		why = wire.ReasonLooksCompressed
	case mediaType == "" && looksBatched(body):
		why = wire.ReasonLooksBatched
	default:
		return
	}
	if results := r.answer.Results; len(results) == 0 || results[0].Index > 0 {
		r.answer.Results = slices.Insert(results, 0, wire.Result{Disposition: wire.Warning, Reason: why})
	}
}

// looksCompressed reports whether a body lacks its Content-Encoding, or was compressed twice.
func looksCompressed(body []byte) bool {
	return bytes.HasPrefix(body, gzipMagic) || bytes.HasPrefix(body, zstdMagic)
}

// looksBatched reports whether a body begins with two lines that are a JSON object or
// array each. Lines that are numbers or strings are more likely text.
func looksBatched(body []byte) bool {
	lines := wire.SplitLines(body)
	first, _ := lines.Next()
	second, several := lines.Next()
	return several && opensJSON(first) && opensJSON(second) && wire.ValidJSON(first) && wire.ValidJSON(second)
}

func opensJSON(line []byte) bool { return line[0] == '{' || line[0] == '[' }

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
	name := textOf(r.name)
	r.parts = append(r.parts, part{request: r, name: name, idempotencyKey: r.idempotencyKey})
}

// partFor returns the part for a partition of a mixed request.
func (r *request) partFor(name string) int32 {
	if i, known := r.byName[name]; known {
		return i
	}
	i := int32(len(r.parts))
	full := r.namespace.Name + "/" + name
	r.byName[full[len(full)-len(name):]] = i
	r.parts = append(r.parts,
		part{request: r, name: full, idempotencyKey: r.idempotencyKey, err: r.key.admitPartition(name)})
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
		sent:     r.sentAt,
		hasSent:  r.hasSentAt,
		ts:       e.ts,
		hasTS:    e.hasTS,
	}.eventTime(r.namespace.Policy.MaxAge)
	switch {
	case check == stale && r.idempotencyKey == "":
		r.dropEvent(e, wire.ReasonStale, time.Duration(r.received-at)*time.Millisecond)
		return
	case check == unskewed:
		r.addResult(wire.Warning, wire.ReasonUnskewed)
	}
	if r.transform != nil && !r.change(&e, maxEntry) {
		return
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

// change runs the namespace's transform on an event. It is false where that drops it.
func (r *request) change(e *event, maxEntry int) bool {
	done := r.transform.Apply(&r.changed, e.data)
	if e.data = done.Data; done.Dropped == "" && len(e.data) > maxEntry {
		done.Dropped = wire.ReasonTooLarge
	}
	if done.Dropped != "" {
		r.dropEvent(*e, done.Dropped, 0)
		return false
	}
	if done.Opaque {
		r.opaque++
	}
	if e.partition != "" && done.Partition != "" { // that of a URL stays
		e.partition = done.Partition
	}
	return true
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
