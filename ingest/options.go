package ingest

import (
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// Header names as fasthttp spells them, so that a lookup needs no conversion.
var (
	headerSentAt         = []byte("X-Sent-At")
	headerEventTS        = []byte("X-Event-Ts")
	headerIdempotencyKey = []byte("Idempotency-Key")
	headerDiscards       = []byte("X-Client-Discards")
	headerPrefer         = []byte("Prefer")
	headerApplied        = []byte("Preference-Applied")
	preferAsync          = []byte("respond-async")
)

const jsonType = "application/json"

// options are the query and the headers of a produce request.
type options struct {
	sentAt, eventTS       int64 // Unix ms
	hasSentAt, hasEventTS bool
	idempotencyKey        string // empty: none
	noAck                 bool   // the answer does not wait for the store
	async                 bool   // that is so for Prefer: respond-async
	minimal               bool   // Prefer: return=minimal
	discards              []wire.Discard
}

// readOptions checks query and headers. An empty header counts as absent. noAck is the default of
// the namespace.
func readOptions(ctx *fasthttp.RequestCtx, noAck bool) (o options, rejected *rejection) {
	ack, rejected := readAck(ctx)
	if rejected != nil {
		return o, rejected
	}
	h := &ctx.Request.Header
	if o.sentAt, o.hasSentAt, rejected = readTime(h, headerSentAt); rejected != nil {
		return o, rejected
	}
	if o.eventTS, o.hasEventTS, rejected = readTime(h, headerEventTS); rejected != nil {
		return o, rejected
	}
	if key := h.PeekCanonical(headerIdempotencyKey); len(key) > 0 {
		if !wire.ValidIdempotencyKey(key) {
			return o, rejectf(wire.CodeBadHeader, "Idempotency-Key is 1 to 128 printable ASCII characters")
		}
		o.idempotencyKey = string(key)
	}
	if value := h.PeekCanonical(headerDiscards); len(value) > 0 {
		var ok bool
		if o.discards, ok = wire.ParseDiscards(value); !ok {
			return o, rejectf(wire.CodeBadHeader,
				"X-Client-Discards is a list of reason=count, as in queue_overflow=23,stale=5")
		}
	}
	if prefer := h.PeekCanonical(headerPrefer); len(prefer) > 0 {
		o.minimal = wire.Prefers(prefer, "return=minimal")
		o.async = ack != ackCommit && wire.Prefers(prefer, string(preferAsync))
	}
	o.noAck = o.async || ack == ackNone || ack == "" && noAck
	return o, nil
}

// Values of ack.
const (
	ackNone   = "none"
	ackCommit = "commit"
)

// readAck is what the query says; empty: nothing.
func readAck(ctx *fasthttp.RequestCtx) (ack string, rejected *rejection) {
	switch string(ctx.URI().QueryString()) {
	case "":
		return "", nil
	case "ack=commit":
		return ackCommit, nil
	case "ack=none":
		return ackNone, nil
	}
	args := ctx.QueryArgs()
	if !args.Has("ack") {
		return "", nil
	}
	// Of two values, a proxy in front may have read the other.
	if levels := args.PeekMulti("ack"); len(levels) == 1 {
		switch string(levels[0]) {
		case ackCommit:
			return ackCommit, nil
		case ackNone:
			return ackNone, nil
		}
	}
	return "", rejectf(wire.CodeBadRequest, "ack is commit or none, given once")
}

func readTime(h *fasthttp.RequestHeader, name []byte) (ms int64, has bool, rejected *rejection) {
	value := h.PeekCanonical(name)
	if len(value) == 0 {
		return 0, false, nil
	}
	if ms, has = wire.ParseMillis(value); !has {
		return 0, false, rejectf(wire.CodeBadTime, "%s is Unix milliseconds in at most 13 digits", name)
	}
	return ms, true, nil
}
