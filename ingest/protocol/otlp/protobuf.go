package otlp

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/ingest/protocol"
)

// wireField is a field of a message as it is sent.
type wireField struct {
	number protowire.Number
	kind   protowire.Type
	bytes  []byte // of BytesType
	bits   uint64 // of the numeric types
}

// nextField cuts the first field off a message that is not empty. Groups are malformed: no
// message here has any. The error is ErrBytes.
func nextField(message []byte) (f wireField, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 {
		return f, nil, protocol.ErrBytes
	}
	f.number, f.kind, rest = number, kind, message[n:]
	switch kind {
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(rest)
	case protowire.VarintType:
		f.bits, n = protowire.ConsumeVarint(rest)
	case protowire.Fixed64Type:
		f.bits, n = protowire.ConsumeFixed64(rest)
	case protowire.Fixed32Type:
		var bits uint32
		bits, n = protowire.ConsumeFixed32(rest)
		f.bits = uint64(bits)
	default:
		n = -1
	}
	if n < 0 {
		return f, nil, protocol.ErrBytes
	}
	return f, rest[n:], nil
}

// eachMessage calls do for the messages in a field of another, until it returns an error.
func eachMessage(message []byte, number protowire.Number, do func(message []byte) error) error {
	for len(message) > 0 {
		f, rest, err := nextField(message)
		if err == nil && f.number == number && f.kind == protowire.BytesType {
			err = do(f.bytes)
		}
		if err != nil {
			return err
		}
		message = rest
	}
	return nil
}

// firstField finds the first field of a number and type; false: there is none.
func firstField(message []byte, number protowire.Number, kind protowire.Type) (wireField, bool) {
	for len(message) > 0 {
		f, rest, err := nextField(message)
		if err != nil {
			break
		}
		if f.number == number && f.kind == kind {
			return f, true
		}
		message = rest
	}
	return wireField{}, false
}
