package otlp

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/ingest/protocol"
)

var (
	// errTooLarge: what was appended is larger than an entry may be.
	errTooLarge = errors.New("larger than an entry")
	errTooDeep  = errors.New("messages nest too deep")
)

// maxMessages is how deep messages may nest. Of each, JSON has two levels.
const maxMessages = 100

// form is how OTLP/JSON writes a field.
type form int

const (
	formMessage form = iota
	formText
	formBase64
	formHex
	formBool
	formNumber // at most 32 bits
	formFixed32
	formInt64 // a text, because JSON's numbers are doubles
	formNano  // unsigned
	formDouble
)

// field is a field of a message, by its number.
type field struct {
	name string
	form form
	list bool
	of   *message
}

type message struct{ fields map[protowire.Number]field }

var types = [...]protowire.Type{
	formMessage: protowire.BytesType,
	formText:    protowire.BytesType,
	formBase64:  protowire.BytesType,
	formHex:     protowire.BytesType,
	formBool:    protowire.VarintType,
	formNumber:  protowire.VarintType,
	formFixed32: protowire.Fixed32Type,
	formInt64:   protowire.VarintType,
	formNano:    protowire.Fixed64Type,
	formDouble:  protowire.Fixed64Type,
}

// The messages of opentelemetry/proto, as far as a log record has them.
var (
	anyValue  = &message{}
	keyValue  = &message{map[protowire.Number]field{1: {name: "key", form: formText}, 2: {name: "value", of: anyValue}}}
	arrayOf   = &message{map[protowire.Number]field{1: {name: "values", list: true, of: anyValue}}}
	keyValues = &message{map[protowire.Number]field{1: {name: "values", list: true, of: keyValue}}}
	resource  = &message{map[protowire.Number]field{
		1: {name: "attributes", list: true, of: keyValue},
		2: {name: "droppedAttributesCount", form: formNumber},
	}}
	scope = &message{map[protowire.Number]field{
		1: {name: "name", form: formText},
		2: {name: "version", form: formText},
		3: {name: "attributes", list: true, of: keyValue},
		4: {name: "droppedAttributesCount", form: formNumber},
	}}
	logRecord = &message{map[protowire.Number]field{
		1:  {name: "timeUnixNano", form: formNano},
		2:  {name: "severityNumber", form: formNumber},
		3:  {name: "severityText", form: formText},
		5:  {name: "body", of: anyValue},
		6:  {name: "attributes", list: true, of: keyValue},
		7:  {name: "droppedAttributesCount", form: formNumber},
		8:  {name: "flags", form: formFixed32},
		9:  {name: "traceId", form: formHex},
		10: {name: "spanId", form: formHex},
		11: {name: "observedTimeUnixNano", form: formNano},
		12: {name: "eventName", form: formText},
	}}
)

func init() { // it is in itself
	anyValue.fields = map[protowire.Number]field{
		1: {name: "stringValue", form: formText},
		2: {name: "boolValue", form: formBool},
		3: {name: "intValue", form: formInt64},
		4: {name: "doubleValue", form: formDouble},
		5: {name: "arrayValue", of: arrayOf},
		6: {name: "kvlistValue", of: keyValues},
		7: {name: "bytesValue", form: formBase64},
	}
}

// writer appends messages as OTLP/JSON, up to limit bytes.
type writer struct{ limit int }

// appendMessage appends a message as an object. Unknown fields are left out. A field that comes
// in two places is malformed: encoders write the elements of a list one after the other.
func (w writer) appendMessage(dst, text []byte, m *message, depth int) ([]byte, error) {
	if dst = append(dst, '{'); depth > maxMessages {
		return dst, errTooDeep
	}
	return w.appendFields(dst, text, m, depth)
}

// appendFields appends the fields of a message and the end of its object.
func (w writer) appendFields(dst, text []byte, m *message, depth int) ([]byte, error) {
	var last protowire.Number // of the field before
	seen, inList := uint64(0), false
	for len(text) > 0 {
		value, rest, err := nextField(text)
		if err != nil {
			return dst, err
		}
		text = rest
		f, known := m.fields[value.number]
		if !known || types[f.form] != value.kind {
			continue
		}
		switch bit := uint64(1) << value.number; {
		case inList && value.number == last:
			dst = append(dst, ',')
		case seen&bit != 0:
			return dst, protocol.ErrBytes
		default:
			if inList {
				dst = append(dst, ']')
			}
			if dst[len(dst)-1] != '{' {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '"'), f.name...), `":`...)
			if inList = f.list; inList {
				dst = append(dst, '[')
			}
			seen, last = seen|bit, value.number
		}
		if len(dst)+len(value.bytes) > w.limit {
			return dst, errTooLarge
		}
		if dst, err = w.appendValue(dst, f, value, depth); err != nil {
			return dst, err
		}
	}
	if inList {
		dst = append(dst, ']')
	}
	return append(dst, '}'), nil
}

func (w writer) appendValue(dst []byte, f field, value wireField, depth int) ([]byte, error) {
	switch f.form {
	case formMessage:
		return w.appendMessage(dst, value.bytes, f.of, depth+1)
	case formText:
		return protocol.AppendText(dst, protocol.TextOf(value.bytes)), nil
	case formBool:
		return strconv.AppendBool(dst, value.bits != 0), nil
	case formNumber, formFixed32:
		return strconv.AppendUint(dst, uint64(uint32(value.bits)), 10), nil
	}
	dst = append(dst, '"')
	switch f.form {
	case formBase64:
		dst = base64.StdEncoding.AppendEncode(dst, value.bytes)
	case formHex:
		dst = hex.AppendEncode(dst, value.bytes)
	case formInt64:
		dst = strconv.AppendInt(dst, int64(value.bits), 10)
	case formNano:
		dst = strconv.AppendUint(dst, value.bits, 10)
	case formDouble:
		switch number := math.Float64frombits(value.bits); {
		case math.IsNaN(number):
			dst = append(dst, "NaN"...)
		case math.IsInf(number, 1):
			dst = append(dst, "Infinity"...)
		case math.IsInf(number, -1):
			dst = append(dst, "-Infinity"...)
		default:
			return strconv.AppendFloat(dst[:len(dst)-1], number, 'g', -1, 64), nil
		}
	}
	return append(dst, '"'), nil
}
