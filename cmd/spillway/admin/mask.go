package admin

import (
	"bytes"
	"encoding/json"
	"strings"
)

// DefaultMaskFields are the keys whose values are masked unless mask_fields says otherwise.
func DefaultMaskFields() []string {
	return []string{
		"password", "passwd", "secret", "token", "access_token", "refresh_token", "authorization",
		"cookie", "api_key", "email", "phone", "card", "ssn",
	}
}

// masked is what stands for the value of a masked key.
const masked = `"***"`

// mask rewrites valid JSON without the values of the given keys, which are compared without
// regard to case, at any depth. Order, repeated keys and numbers stay as they are.
func mask(text []byte, keys []string) ([]byte, error) {
	hidden := make(map[string]bool, len(keys))
	for _, key := range keys {
		hidden[strings.ToLower(key)] = true
	}
	m := masker{json.NewDecoder(bytes.NewReader(text)), hidden, make([]byte, 0, len(text))}
	m.d.UseNumber()
	err := m.value()
	return m.out, err
}

type masker struct {
	d      *json.Decoder
	hidden map[string]bool
	out    []byte
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
		return m.d.Decode(new(json.RawMessage))
	}
	return m.value()
}

func (m *masker) scalar(value any) error {
	text, err := json.Marshal(value)
	m.out = append(m.out, text...)
	return err
}
