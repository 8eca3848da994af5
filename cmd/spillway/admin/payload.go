package admin

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/mask"
	"github.com/spillway-io/spillway/partition/php"
)

// Peek is what a partition holds, the oldest entry first.
type Peek struct {
	Depth   int64   `json:"depth"`
	Entries []Entry `json:"entries"`
}

type ofPartition struct {
	Partition string `arg:"" help:"The partition."`
}

type peek struct {
	ofPartition
	Limit int    `default:"20" bounds:"1..128" help:"Entries to print, at most 128."`
	From  string `enum:"oldest,newest" default:"oldest" help:"oldest, which are delivered next, or newest."`
}

func (s *Server) peek(r *request, q *peek) (answer Peek, err error) {
	ns := r.namespace()
	if r.err != nil {
		return answer, r.err
	}
	found, err := r.view.Store.Peek(r.ctx, ns, q.Partition, partition.PeekRequest{Limit: q.Limit, FromNewest: q.From == "newest"})
	if err != nil {
		return answer, err
	}
	answer = Peek{Depth: found.Depth, Entries: []Entry{}}
	now := s.observer.now().UnixMilli()
	for _, e := range found.Entries {
		answer.Entries = append(answer.Entries, entryOf(e, r.masks, now))
	}
	return answer, nil
}

// maxShown is how much of a payload is shown, in bytes.
const maxShown = 32 << 10

// Payload is what an entry holds: Data where it is JSON, else Text where it is UTF-8, else
// Base64. Cut ones are never Data.
type Payload struct {
	Bytes int `json:"bytes" help:"Of the whole."`
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
	Seq        int64  `json:"seq" help:"0: the partition's hash is lost."`
	ID         string `json:"id,omitempty"`
	OccurredMS int64  `json:"occurred_at_ms" help:"0: something other than Spillway wrote it."`
	AgeMS      int64  `json:"age_ms"`
	Payload
}

// masks are the keys whose values a request may not see. Only admins may ask for none.
func (s *Server) masks(r *request) []string {
	if !r.flag("unmasked") {
		return r.view.MaskFields
	}
	if r.who.role < Admin {
		r.fail(r.who.lacks("unmasked", Admin))
	} else {
		s.log.Info("payloads shown without masks", zap.String("name", r.who.name),
			zap.String("path", r.URL.Path))
	}
	return nil
}

func entryOf(e partition.Entry, masks []string, now int64) Entry {
	entry := Entry{
		Seq:        e.Seq,
		ID:         string(e.ID),
		OccurredMS: e.Occurred,
		Payload:    payloadOf(e.Payload, masks),
	}
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
		shown, err := mask.JSON(raw, masks)
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

// resultOf is what an ack said, or stars where it quotes what is masked in the payload of its job.
func resultOf(result, payload []byte, keys []string) json.RawMessage {
	shown := payloadOf(result, keys).Data
	if text := string(shown); mask.Quote(text, payload, keys) != text {
		return json.RawMessage(mask.Value)
	}
	return shown
}

// classedBy are the keys of a payload of PHP's that say the class.
var classedBy = []string{"job", "data", "commandname", "displayname"}

// classOf is the class of a job of PHP's, as far as masks let it be shown.
func classOf(payload []byte, masks []string) string {
	if slices.ContainsFunc(masks, func(key string) bool {
		return slices.Contains(classedBy,
			strings.ToLower(key))
	}) {
		return strings.Trim(mask.Value, `"`)
	}
	return cmp.Or(fmt.Sprintf("%.200s", php.Read(payload).Class), "unknown")
}

// ofPHP adds what the payload of a job of PHP's says: its class, and how often a dead one was delivered.
func (j *Job) ofPHP(payload []byte, masks []string) {
	j.Class = classOf(payload, masks)
	if n := int(gjson.GetBytes(payload, "attempts").Int()); j.Attempt == nil && j.State == "dead" && n > 0 {
		j.Attempt = &n
	}
}
