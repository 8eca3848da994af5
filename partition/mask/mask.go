// Package mask hides the values of some keys in payloads, which people may see without them.
package mask

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
)

// DefaultFields are the keys whose values are masked unless mask_fields says otherwise.
func DefaultFields() []string {
	return []string{
		"password", "passwd", "secret", "token", "access_token", "refresh_token", "authorization",
		"cookie", "api_key", "email", "phone", "card", "ssn",
	}
}

// minMasked is from which length a value is searched for in other texts, in bytes: a shorter
// one is a part of too many words.
const minMasked = 3

// Value is what stands for the value of a masked key.
const Value = `"***"`

// JSON rewrites valid JSON without the values of the given keys, which are compared without
// regard to case, at any depth. Order, repeated keys and numbers stay as they are.
func JSON(text []byte, keys []string) ([]byte, error) {
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

// Quote hides in a text that may quote a payload, whole or in part, what JSON hides in it:
// the values, and all that follows one of the keys.
func Quote(text string, payload []byte, keys []string) string {
	if len(keys) == 0 || text == "" {
		return text
	}
	if m, _ := masking(payload, keys); len(m.values) > 0 {
		text = strings.NewReplacer(m.values...).Replace(text)
		for i := 0; i < len(m.values); i += 2 { // the text may end within one, where it was cut
			for n := min(len(m.values[i])-1, len(text)); n >= 3; n-- {
				if begun, is := strings.CutSuffix(text, m.values[i][:n]); is {
					text = begun + m.values[i+1]
					break
				}
			}
		}
	}
	return following(keys).ReplaceAllString(text, "$1: ***")
}

// followings are what following made, by the keys: there are as many as settings that the process had.
var followings sync.Map

// following finds one of the keys, and all that follows it.
func following(keys []string) *regexp.Regexp {
	all := strings.Join(keys, "\n")
	known, ok := followings.Load(all)
	if !ok {
		quoted := strings.ReplaceAll(regexp.QuoteMeta(all), "\n", "|")
		known, _ = followings.LoadOrStore(all, regexp.MustCompile(`(?is)\b(`+quoted+`)\b[\\"'\s]*[:=].*`))
	}
	return known.(*regexp.Regexp)
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
		m.out = append(m.out, Value...)
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
