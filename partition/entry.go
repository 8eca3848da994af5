package partition

import (
	"errors"
	"strconv"
)

// An encoded entry is what Redis stores, readable in redis-cli:
//
//	1763629675100 {"score":7}          13 digits of Unix ms, a space, the payload
//	1763629675100#order-81 {"score":7} the same with the client's id
//
// The scripts read the first 14 bytes and nothing else; the payload is never parsed.
// Byte 14 is the form: ' ' or '#'; all other values are reserved.
const (
	timeDigits = 13
	MaxIDLen   = 64 // bytes

	// MinTime and MaxTime are the times that fit 13 digits, in Unix ms.
	MinTime int64 = 1_000_000_000_000
	MaxTime int64 = 9_999_999_999_999
)

// An Entry is one event. The slices are read-only views.
type Entry struct {
	Seq      int64  // position in its partition; never repeats while the store lives
	Occurred int64  // when the event happened, Unix ms on the store's clock
	ID       []byte // the client's id, nil when none was given
	Payload  []byte // the bytes as sent
}

// ErrMalformedEntry means that stored bytes are not an encoded entry: something other
// than Spillway wrote to the list.
var ErrMalformedEntry = errors.New("malformed entry")

// AppendEntry appends the encoded form of one event to dst. occurred is clamped
// to [MinTime, MaxTime]; id must have passed ValidID, or be empty.
func AppendEntry(dst []byte, occurred int64, id, payload []byte) []byte {
	dst = strconv.AppendInt(dst, min(max(occurred, MinTime), MaxTime), 10)
	if len(id) > 0 {
		dst = append(dst, '#')
		dst = append(dst, id...)
	}
	dst = append(dst, ' ')
	return append(dst, payload...)
}

// ParseEntry reads an encoded entry; its slices alias raw.
func ParseEntry(raw []byte) (Entry, error) {
	if len(raw) <= timeDigits || raw[0] == '0' {
		return Entry{}, ErrMalformedEntry
	}
	var ms int64
	for _, c := range raw[:timeDigits] {
		if c < '0' || c > '9' {
			return Entry{}, ErrMalformedEntry
		}
		ms = ms*10 + int64(c-'0')
	}
	rest := raw[timeDigits+1:]
	switch raw[timeDigits] {
	case ' ':
		return Entry{Occurred: ms, Payload: rest}, nil
	case '#':
		for i, c := range rest {
			if c != ' ' {
				continue
			}
			if !ValidID(rest[:i]) {
				break
			}
			return Entry{Occurred: ms, ID: rest[:i:i], Payload: rest[i+1:]}, nil
		}
	}
	return Entry{}, ErrMalformedEntry
}

// ValidID reports whether id is 1 to 64 printable ASCII bytes without a space.
func ValidID[T string | []byte](id T) bool {
	if len(id) == 0 || len(id) > MaxIDLen {
		return false
	}
	for i := 0; i < len(id); i++ {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}
