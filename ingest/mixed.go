package ingest

import (
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// mixed stores entries that name their partition, so unlike produce it has to
// look into every one of them.
func (s *Server) mixed(ctx *fasthttp.RequestCtx, t target) *rejection {
	return s.take(ctx, t, func(r *request, body []byte) *rejection {
		switch mediaType(ctx) {
		case ndjsonType:
			return s.addMixedLines(r, body)
		case jsonType:
			return s.addMixedJSON(r, body)
		}
		return reject(wire.CodeUnsupportedType)
	})
}

func (s *Server) addMixedLines(r *request, body []byte) *rejection {
	lines := wire.SplitLines(body)
	for line, ok := lines.Next(); ok; line, ok = lines.Next() {
		if r.count == s.cfg.MaxEntries {
			return s.tooManyEntries()
		}
		if !wire.ValidJSON(line) {
			return rejectf(wire.CodeBadNDJSON, "line %d is not valid JSON, or nests deeper than %d levels", lines.Number, wire.MaxDepth)
		}
		s.addMixed(r, line)
	}
	return notEmpty(r)
}

func (s *Server) addMixedJSON(r *request, body []byte) *rejection {
	batch, rejected := parseBatch(body)
	if rejected != nil {
		return rejected
	}
	if batch.Form == wire.Single {
		return rejectf(wire.CodeBadJSON, "the body is an array of items, or an object whose batch is one")
	}
	if batch.HasSentAt {
		r.sentAt, r.hasSentAt = batch.SentAt, true
	}
	for raw := range batch.Items() {
		if r.count == s.cfg.MaxEntries {
			return s.tooManyEntries()
		}
		s.addMixed(r, raw)
	}
	return notEmpty(r)
}

func (s *Server) addMixed(r *request, raw []byte) {
	item, why := wire.ParseItem(raw)
	switch {
	case why != "":
		r.drop(why)
	case !partition.ValidPartition(item.Partition):
		r.drop(wire.ReasonBadPartition)
	default:
		r.add(event{
			partition: item.Partition,
			id:        item.ID, hasID: item.HasID,
			ts: item.TS, hasTS: item.HasTS,
			data: item.Data,
		}, s.cfg.MaxEntry)
	}
}
