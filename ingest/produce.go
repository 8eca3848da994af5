package ingest

import (
	"bytes"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// produce stores the entries of one partition. Content-Type alone says which
// form the body has, so the usual one is never parsed.
func (s *Server) produce(ctx *fasthttp.RequestCtx, t target) *rejection {
	return s.take(ctx, t, func(r *request, body []byte) *rejection {
		r.setPartition(t.path)
		switch mediaType(ctx) {
		case ndjsonType:
			return s.addLines(r, body)
		case jsonType:
			return s.addJSON(r, body)
		}
		return s.addOpaque(r, body)
	})
}

const ndjsonType = "application/x-ndjson"

// mediaType is the Content-Type without parameters, when it is one that we
// look into; otherwise empty.
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

func (s *Server) addLines(r *request, body []byte) *rejection {
	lines := wire.SplitLines(body)
	for line, ok := lines.Next(); ok; line, ok = lines.Next() {
		if r.count == s.cfg.MaxEntries {
			return s.tooManyEntries()
		}
		r.add(event{data: line}, s.cfg.MaxEntry)
	}
	return notEmpty(r)
}

func (s *Server) addJSON(r *request, body []byte) *rejection {
	batch, rejected := parseBatch(body)
	if rejected != nil {
		return rejected
	}
	if batch.Form == wire.Single {
		return s.addOpaque(r, body)
	}
	if batch.HasSentAt {
		r.sentAt, r.hasSentAt = batch.SentAt, true
	}
	for raw := range batch.Items() {
		if r.count == s.cfg.MaxEntries {
			return s.tooManyEntries()
		}
		if batch.Form == wire.Array {
			r.add(event{data: raw}, s.cfg.MaxEntry)
			continue
		}
		item, why := wire.ParseItem(raw)
		if why != "" {
			r.drop(why)
			continue
		}
		r.add(event{id: item.ID, hasID: item.HasID, ts: item.TS, hasTS: item.HasTS, data: item.Data}, s.cfg.MaxEntry)
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

func parseBatch(body []byte) (wire.Batch, *rejection) {
	batch, err := wire.ParseBatch(body)
	switch {
	case errors.Is(err, wire.ErrSentAt):
		return batch, rejectf(wire.CodeBadTime, "sent_at is Unix milliseconds in at most 13 digits")
	case err != nil:
		return batch, reject(wire.CodeBadJSON)
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
