package admin

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// maxShown is how much of a payload is shown, in bytes.
const maxShown = 32 << 10

// Payload is what an entry holds: Data where it is JSON, else Text where it is UTF-8, else
// Base64. Cut ones are never Data.
type Payload struct {
	Bytes int `json:"bytes"` // of the whole
	Shown
}

// Shown is a payload as far as it is shown.
type Shown struct {
	Data   json.RawMessage `json:"data,omitempty"`
	Text   string          `json:"text,omitempty"`
	Base64 string          `json:"base64,omitempty"`
	Cut    bool            `json:"cut,omitempty"`
}

// Entry is an entry in a partition.
type Entry struct {
	Seq        int64  `json:"seq"` // 0: the partition's hash is lost
	ID         string `json:"id,omitempty"`
	OccurredMS int64  `json:"occurred_at_ms"` // 0: something other than Spillway wrote it
	AgeMS      int64  `json:"age_ms"`
	Payload
}

// masks are the keys whose values a request may not see. Only admins may ask for none.
func (s *Server) masks(r *request) ([]string, error) {
	unmasked, err := r.flag("unmasked")
	switch {
	case err != nil:
		return nil, err
	case !unmasked:
		return r.view.MaskFields, nil
	case r.who.role < Admin:
		return nil, &refusal{http.StatusForbidden, wire.CodeForbidden, "unmasked needs the role admin; the token of " + r.who.name + " has " + r.who.role.String()}
	}
	s.log.Info("payloads shown without masks", zap.String("name", r.who.name), zap.String("path", r.URL.Path))
	return nil, nil
}

func entryOf(e partition.Entry, masks []string, now int64) Entry {
	entry := Entry{Seq: e.Seq, ID: string(e.ID), OccurredMS: e.Occurred, Payload: payloadOf(e.Payload, masks)}
	if e.Occurred > 0 {
		entry.AgeMS = max(0, now-e.Occurred)
	}
	return entry
}

// payloadOf masks JSON before it cuts, so a long payload hides as much as a short one.
func payloadOf(raw []byte, masks []string) Payload {
	p := Payload{Bytes: len(raw)}
	isJSON := json.Valid(raw)
	if isJSON && len(masks) > 0 {
		shown, err := mask(raw, masks)
		if err != nil { // it is nested too deep
			p.Text = "not shown: " + err.Error()
			return p
		}
		raw = shown
	}
	p.Cut = len(raw) > maxShown
	switch {
	case isJSON && !p.Cut && utf8.Valid(raw):
		p.Data = raw
	case utf8.Valid(raw):
		p.Text = string(cutText(raw))
	default:
		p.Base64 = base64.StdEncoding.EncodeToString(raw[:min(len(raw), maxShown)])
	}
	return p
}

// cutText cuts UTF-8 to maxShown, at the start of a character.
func cutText(text []byte) []byte {
	if len(text) <= maxShown {
		return text
	}
	end := maxShown
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
