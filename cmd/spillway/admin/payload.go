package admin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

// Peek is what a partition holds, the oldest entry first.
type Peek struct {
	Depth   int64   `json:"depth"`
	Entries []Entry `json:"entries"`
}

func (s *Server) peek(r *request) (any, error) {
	ns := r.namespace()
	name := r.partition()
	masks := s.masks(r)
	ask := partition.PeekRequest{Limit: r.number("limit", 20, 1, 128)}
	switch r.param("from") {
	case "", "oldest":
	case "newest":
		ask.FromNewest = true
	default:
		r.bad("from: want oldest or newest")
	}
	if r.err != nil {
		return nil, r.err
	}
	found, err := r.view.Store.Peek(r.ctx, ns, name, ask)
	if err != nil {
		return nil, err
	}
	answer := Peek{Depth: found.Depth, Entries: []Entry{}}
	now := s.sweep.now().UnixMilli()
	for _, e := range found.Entries {
		answer.Entries = append(answer.Entries, entryOf(e, masks, now))
	}
	return answer, nil
}

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

// DefaultMaskFields are the keys whose values are masked unless mask_fields says otherwise.
func DefaultMaskFields() []string {
	return []string{
		"password", "passwd", "secret", "token", "access_token", "refresh_token", "authorization",
		"cookie", "api_key", "email", "phone", "card", "ssn",
	}
}

// minMasked is from which length a value is searched for in other texts, in bytes: a shorter
// one is a part of too many words.
const minMasked = 3

// masked is what stands for the value of a masked key.
const masked = `"***"`

// mask rewrites valid JSON without the values of the given keys, which are compared without
// regard to case, at any depth. Order, repeated keys and numbers stay as they are.
func mask(text []byte, keys []string) ([]byte, error) {
	m, err := masking(text, keys)
	return m.out, err
}

func masking(text []byte, keys []string) (*masker, error) {
	m := &masker{d: json.NewDecoder(bytes.NewReader(text)), hidden: make(map[string]bool, len(keys)),
		out: make([]byte, 0, len(text))}
	for _, key := range keys {
		m.hidden[strings.ToLower(key)] = true
	}
	m.d.UseNumber()
	return m, m.value()
}

// maskQuote hides in a text that may quote a payload, whole or in part, what mask hides in it:
// the values, and all that follows one of the keys.
func maskQuote(text string, payload []byte, keys []string) string {
	if len(keys) == 0 || text == "" {
		return text
	}
	if m, _ := masking(payload, keys); len(m.values) > 0 {
		text = strings.NewReplacer(m.values...).Replace(text)
	}
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = regexp.QuoteMeta(key)
	}
	after := regexp.MustCompile(`(?is)\b(` + strings.Join(quoted, "|") + `)\b[\\"'\s]*[:=].*`)
	return after.ReplaceAllString(text, "$1: ***")
}

// resultOf is what an ack said, or stars where it quotes what is masked in the payload of its job.
func resultOf(result, payload []byte, keys []string) json.RawMessage {
	shown := payloadOf(result, keys).Data
	if text := string(shown); maskQuote(text, payload, keys) != text {
		return json.RawMessage(`"***"`)
	}
	return shown
}

type masker struct {
	d      *json.Decoder
	hidden map[string]bool
	out    []byte
	values []string // that are hidden, each with what stands for it
}

// value copies the next value. encoding/json bounds how deep values nest.
func (m *masker) value() error {
	t, err := m.d.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('{'):
		return m.members('{', '}', m.member)
	case json.Delim('['):
		return m.members('[', ']', m.value)
	}
	return m.scalar(t)
}

func (m *masker) members(begin, end byte, one func() error) error {
	for separator := begin; m.d.More(); separator = ',' {
		m.out = append(m.out, separator)
		begin = 0
		if err := one(); err != nil {
			return err
		}
	}
	if begin != 0 { // no members
		m.out = append(m.out, begin)
	}
	m.out = append(m.out, end)
	_, err := m.d.Token()
	return err
}

func (m *masker) member() error {
	t, err := m.d.Token()
	if err != nil {
		return err
	}
	if err := m.scalar(t); err != nil {
		return err
	}
	m.out = append(m.out, ':')
	if key, _ := t.(string); m.hidden[strings.ToLower(key)] {
		m.out = append(m.out, masked...)
		var value json.RawMessage
		err := m.d.Decode(&value)
		var words string
		if json.Unmarshal(value, &words) != nil {
			words = string(value)
		}
		if len(words) >= minMasked {
			m.values = append(m.values, words, "***")
		}
		return err
	}
	return m.value()
}

func (m *masker) scalar(value any) error {
	text, err := json.Marshal(value)
	m.out = append(m.out, text...)
	return err
}
