package protocol

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Field is a field of a message of protobuf.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	Bytes  []byte // of BytesType
	Bits   uint64 // of the numeric types
}

// NextField cuts the first field off a message that is not empty. Groups are malformed: no
// message here has any. The error is ErrBytes.
func NextField(message []byte) (f Field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 {
		return f, nil, ErrBytes
	}
	f.Number, f.Type, rest = number, kind, message[n:]
	switch kind {
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(rest)
	case protowire.VarintType:
		f.Bits, n = protowire.ConsumeVarint(rest)
	case protowire.Fixed64Type:
		f.Bits, n = protowire.ConsumeFixed64(rest)
	case protowire.Fixed32Type:
		var bits uint32
		bits, n = protowire.ConsumeFixed32(rest)
		f.Bits = uint64(bits)
	default:
		n = -1
	}
	if n < 0 {
		return f, nil, ErrBytes
	}
	return f, rest[n:], nil
}

// EachMessage calls do for the messages in a field of another, until it returns an error.
func EachMessage(message []byte, number protowire.Number, do func(message []byte) error) error {
	for len(message) > 0 {
		f, rest, err := NextField(message)
		if err == nil && f.Number == number && f.Type == protowire.BytesType {
			err = do(f.Bytes)
		}
		if err != nil {
			return err
		}
		message = rest
	}
	return nil
}

// FirstField finds the first field of a number and type; false: there is none.
func FirstField(message []byte, number protowire.Number, kind protowire.Type) (Field, bool) {
	for len(message) > 0 {
		f, rest, err := NextField(message)
		if err != nil {
			break
		}
		if f.Number == number && f.Type == kind {
			return f, true
		}
		message = rest
	}
	return Field{}, false
}
