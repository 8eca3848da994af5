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
)

const jsonType = "application/json"

// options are the headers of a produce request.
type options struct {
	sentAt, eventTS       int64 // Unix ms
	hasSentAt, hasEventTS bool
	idempotencyKey        string // empty: none
	minimal               bool   // Prefer: return=minimal
	discards              []wire.Discard
}

// readOptions checks headers. An empty one counts as absent.
func readOptions(h *fasthttp.RequestHeader) (o options, rejected *rejection) {
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
	}
	return o, nil
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
