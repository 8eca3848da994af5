package ingest

import (
	"bytes"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// admit admits whatever key the body may have.
func (p *sdkProtocol) admit(s *Server, ctx *fasthttp.RequestCtx, t *target) *rejection {
	switch {
	case s.writeKeys.none():
		return reject(wire.CodeUnauthorized)
	case len(s.writeKeys.byName) > 0: // a name that everybody knows
		return s.rejectPage(ctx, "", t.listed, false)
	}
	return nil
}

// serve takes the events of another vendor's SDK. It differs from produce in three ways:
// the namespace comes from a write key, which may be in the body; the route says what
// the body is, whatever its type; and the answer is what the SDK expects.
func (p *sdkProtocol) serve(s *Server, ctx *fasthttp.RequestCtx, t *target) *rejection {
	if t.route.method == fasthttp.MethodOptions {
		return s.preflight(ctx, t)
	}
	to, rejected := s.takeSDK(ctx, t, p.adapter)
	if to != nil {
		t.namespace, t.listed = to.namespace, to.origins
	}
	return rejected
}

// reject gives a rejection the form of the protocol.
func (p *sdkProtocol) reject(_ *Server, ctx *fasthttp.RequestCtx, t *target, r *rejection) {
	writeRejection(ctx, r)
	f := protocol.Failure{Request: sdkRequest(ctx, t), Code: r.Code, Status: ctx.Response.StatusCode(),
		Message: r.Text()}
	switch r.Code {
	case wire.CodeUnauthorized:
		f.Message = "no namespace lists this key under write_keys"
	case wire.CodeRateLimited:
		f.Message = "the write key has used its rate: send fewer events, or raise its rate"
	}
	status, text := p.adapter.Failure(f)
	answerSDK(ctx, p.adapter, f.Request, status, text)
}

// takeSDK returns what the key of a request opens, also of one that it rejects; nil: it
// did not get to know the key, or the key opens nothing.
func (s *Server) takeSDK(ctx *fasthttp.RequestCtx, t *target,
	adapter protocol.Adapter) (to *sdkNamespace, rejected *rejection) {
	inHeader := adapter.HeaderKey(&ctx.Request.Header)
	if to = s.writeKeys.find(inHeader); inHeader == "" {
		to = s.writeKeys.find(queryKey(ctx.QueryArgs(), adapter))
	}
	switch {
	case to == nil && (inHeader != "" || len(adapter.BodyKeys()) == 0):
		return nil, reject(wire.CodeUnauthorized)
	case t.skipBody:
		return to, reject(wire.CodeOverloaded)
	case to != nil:
		if rejected := to.limits.checkRate(); rejected != nil {
			return to, rejected
		}
	}
	r := s.requests.Get().(*request)
	defer s.release(r)
	if rejected := s.payBySDK(r, to); rejected != nil {
		return to, rejected
	}
	about := sdkRequest(ctx, t)
	batch, size, rejected := s.openSDK(ctx, about, adapter, r, to)
	if rejected != nil {
		return to, rejected
	}
	if to == nil || inHeader == "" && batch.Key != "" {
		if to = s.writeKeys.find(batch.Key); to == nil {
			return nil, reject(wire.CodeUnauthorized)
		}
		if rejected := s.payBySDK(r, to); rejected != nil {
			return to, rejected
		}
	}
	transport.Keep(ctx)
	if rejected := s.splitSDK(r, to, adapter, &batch, size); rejected != nil {
		return to, rejected
	}
	s.commit(r)
	if rejected := r.rejectUnstored(); rejected != nil {
		return to, rejected
	}
	status, text := adapter.Answer(protocol.Answer{
		Request:  about,
		Notes:    batch.Notes,
		Count:    r.count,
		Accepted: r.answer.Accepted,
		Bytes:    size,
		Received: r.received,
		Results:  r.answer.Results,
	})
	answerSDK(ctx, adapter, about, status, text)
	return to, nil
}

// sdkRequest is what an adapter knows of a request.
func sdkRequest(ctx *fasthttp.RequestCtx, t *target) protocol.Request {
	return protocol.Request{Call: t.call, Header: &ctx.Request.Header, Query: ctx.QueryArgs()}
}

// answerSDK sends what an adapter has written.
func answerSDK(ctx *fasthttp.RequestCtx, adapter protocol.Adapter, r protocol.Request, status int,
	text []byte) {
	ctx.SetStatusCode(status)
	ctx.Response.Header.SetContentType(jsonType)
	if dresser, ok := adapter.(protocol.Dresser); ok {
		dresser.Dress(r, ctx.Response.Header.Set)
	}
	ctx.Response.SetBodyRaw(text)
}

// payBySDK notes whose request it is, and when it came, by the clock of the namespace's
// store. A namespace that only the body will name, nil, is no error.
func (s *Server) payBySDK(r *request, to *sdkNamespace) *rejection {
	if to == nil {
		return nil
	}
	var known bool
	if r.received, known = s.store.NowOf(to.namespace); !known {
		return reject(wire.CodeStoreUnavailable)
	}
	return r.Charge(s.tenantOf(to.namespace.Name, to.limits))
}

// openSDK receives a body and opens it, as what to or a key at its beginning says who pays.
// Where nothing does, and the body is more than a small one, it waits for one of few places:
// anybody can send such a body. size is that of the decompressed body.
func (s *Server) openSDK(ctx *fasthttp.RequestCtx, about protocol.Request, adapter protocol.Adapter, r *request,
	to *sdkNamespace) (batch protocol.Batch, size int, rejected *rejection) {
	var body []byte
	var coding string
	if ctx.IsGet() {
		body = ctx.URI().QueryString()
	} else {
		body, coding, rejected = r.ReceiveSent(ctx, s.cfg.MaxBody)
		if rejected = unlessEmpty(adapter, rejected); rejected != nil {
			return batch, 0, rejected
		}
	}
	// SDKs whose key may be in the body may compress without saying so in a header. They send JSON
	// and forms, which never begin like gzip. The data of others may.
	if coding == "" && len(adapter.BodyKeys()) > 0 && bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		coding = "gzip"
	}
	if to == nil {
		head := body
		if coding != "" {
			head = r.Head(body)
		}
		if to = s.writeKeys.find(protocol.FindKey(head, adapter.BodyKeys())); to != nil {
			rejected = r.Charge(s.tenantOf(to.namespace.Name, to.limits))
		}
	}
	open := func() {
		if coding != "" {
			body, rejected = r.Inflate(coding, body)
			rejected = unlessEmpty(adapter, rejected)
		}
		if size = len(body); rejected == nil {
			var err error
			if batch, err = adapter.Open(about, body); err != nil {
				rejected = rejectForm(err)
			}
		}
	}
	switch {
	case rejected != nil:
	case to != nil, coding == "" && len(body) <= memory.Prefetched:
		open()
	case !s.keyless.DoFor("", s.cfg.ProduceTimeout, open):
		rejected = reject(wire.CodeOverloaded)
	}
	return batch, size, rejected
}

// unlessEmpty is nil, too, where a request is rejected for being empty, and its adapter takes that.
func unlessEmpty(adapter protocol.Adapter, rejected *rejection) *rejection {
	_, takes := adapter.(protocol.Emptier)
	if takes && rejected != nil && (rejected.Code == wire.CodeEmptyBody || rejected.Code == wire.CodeEmptyBatch) {
		return nil
	}
	return rejected
}

// queryKey is a key in the query, where one of the names that a body has for it says so.
func queryKey(query *fasthttp.Args, adapter protocol.Adapter) string {
	for _, name := range adapter.BodyKeys() {
		if key := query.Peek(name); len(key) > 0 {
			return string(key)
		}
	}
	return ""
}

// splitSDK encodes the events of a batch into r, grouped by partition.
func (s *Server) splitSDK(r *request, to *sdkNamespace, adapter protocol.Adapter, batch *protocol.Batch,
	size int) *rejection {
	s.own(r, to.namespace, to.limits)
	if rejected := s.growEncoded(r, size); rejected != nil {
		return rejected
	}
	paths := to.paths
	if paths == nil {
		paths = adapter.Paths()
	}
	var rejected *rejection
	left := s.cfg.MaxDecompressed
	err := batch.Each(paths, s.cfg.MaxEntry, func(e protocol.Event, why wire.Reason) bool {
		if r.count == s.cfg.MaxEntries {
			rejected = s.tooManyEntries()
			return false
		}
		// What an adapter makes may be larger than the body.
		if left -= len(e.Data); left < 0 {
			rejected = rejectf(wire.CodeBodyTooLarge, "the events take more than %d bytes: send fewer a request", s.cfg.MaxDecompressed)
			return false
		}
		if why != "" {
			r.drop(why)
			return true
		}
		if n := len(r.encoded) + len(e.Data); n > cap(r.encoded) {
			rejected = s.growEncoded(r, n)
		}
		if rejected == nil {
			s.addSDK(r, to, e)
		}
		return rejected == nil
	})
	switch {
	case rejected != nil:
		return rejected
	case err != nil:
		return rejectForm(err)
	}
	if rejected := unlessEmpty(adapter, notEmpty(r)); rejected != nil {
		return rejected
	}
	return s.seal(r)
}

// addSDK adds an event of a batch.
func (s *Server) addSDK(r *request, to *sdkNamespace, e protocol.Event) {
	if e.Partition == "" {
		e.Partition = unnamedPartition
	}
	if !partition.ValidID(e.ID) {
		e.ID = nil
	}
	r.sentAt, r.hasSentAt = e.SentAt, e.HasSentAt
	r.add(event{
		partition: e.Partition,
		id:        e.ID,
		hasID:     e.ID != nil,
		ts:        e.TS,
		hasTS:     e.HasTS,
		data:      e.Data,
	}, s.cfg.MaxEntry)
}

// rejectForm rejects a body that an adapter could not open.
func rejectForm(err error) *rejection {
	if errors.Is(err, protocol.ErrBytes) {
		return rejectf(wire.CodeBadRequest, "the body is not of the form that this call takes: cut short, or malformed")
	}
	return rejectf(wire.CodeBadJSON, "the body is not JSON of the form that this call takes, or nests deeper than %d levels", wire.MaxDepth)
}

// rejectUnstored adds the results up. SDKs repeat whole requests or nothing. So it rejects a
// request of which an entry may be stored at the next attempt, although others are stored:
// these may double, under their ids. Entries of partitions beyond max_partitions, or new ones
// beyond the key's quota, would be rejected again, so they are dropped unless nothing was
// stored.
func (r *request) rejectUnstored() *rejection {
	stored := r.sumResults()
	if len(r.spans) > 0 && stored == 0 {
		return rejectParts(r)
	}
	for i := range r.parts {
		if err := r.parts[i].err; err != nil && !errors.Is(err, partition.ErrTooManyPartitions) &&
			!errors.Is(err, errNewPartitions) {
			rejected := rejectUnknown(err)
			rejected.Counted = true
			return rejected
		}
	}
	return nil
}
