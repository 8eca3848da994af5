package sink

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxErrorText is the most bytes of an error's text in a dead letter.
const MaxErrorText = 512

// AppendLine appends entry i of b as one line of NDJSON, ended by '\n':
//
//	{"namespace":"default","partition":"com.acme.kart","seq":1763629675123456,"ts":1763629675100,"id":"if given","batch":"ID","attempt":1,"data":…}
//
// ts is Unix ms. The payload is the value of exactly one of
//
//	"data"    valid JSON (see ValidJSON), byte for byte; only when it holds a
//	          line break is the white space between its tokens left out
//	"text"    other valid UTF-8, as a JSON string
//	"base64"  anything else, in standard base64 with padding
//
// The line of a job (see Job) has its own attempt, and after it "tries" and, if there
// are any, "attributes":
//
//	{"namespace":"mail","partition":"mail-eu","seq":…,"ts":…,"id":"…","batch":"ID","attempt":1,"tries":3,"attributes":{"kind":"welcome"},"data":…}
//
// It does not allocate once dst has room and b's ID is known.
func AppendLine(dst []byte, b *Batch, i int) []byte {
	return append(appendEntry(dst, b, i), '}', '\n')
}

// AppendBatch appends the lines of all entries of b.
func AppendBatch(dst []byte, b *Batch) []byte {
	for i := range b.Entries {
		dst = AppendLine(dst, b, i)
	}
	return dst
}

// AppendDeadLine appends the same line with why the entry was given up:
// "reason", from the drain's closed list, and, when err is not nil, "error",
// its text cut to MaxErrorText bytes, and "detail", if there is one (see WithDetail).
func AppendDeadLine(dst []byte, b *Batch, i int, reason string, err error) []byte {
	dst = appendEntry(dst, b, i)
	dst = append(dst, `,"reason":`...)
	dst = appendString(dst, reason)
	if err != nil {
		dst = append(dst, `,"error":`...)
		dst = appendString(dst, boundedText(err.Error(), MaxErrorText))
		if detail := Detail(err); detail != "" {
			dst = append(dst, `,"detail":`...)
			dst = appendString(dst, detail)
		}
	}
	return append(dst, '}', '\n')
}

// appendEntry appends a line up to its closing brace.
func appendEntry(dst []byte, b *Batch, i int) []byte {
	e := &b.Entries[i]
	dst = append(dst, `{"namespace":`...)
	dst = appendString(dst, b.Namespace)
	dst = append(dst, `,"partition":`...)
	dst = appendString(dst, b.Partition)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = append(dst, `,"ts":`...)
	dst = strconv.AppendInt(dst, e.Occurred, 10)
	if e.ID != nil {
		dst = append(dst, `,"id":`...)
		dst = appendString(dst, e.ID)
	}
	dst = append(dst, `,"batch":"`...)
	dst = append(dst, b.ID()...)
	dst = append(dst, `","attempt":`...)
	if b.Jobs == nil {
		dst = strconv.AppendInt(dst, int64(b.Attempt), 10)
	} else {
		dst = appendJob(dst, &b.Jobs[i])
	}
	return appendPayload(dst, e.Payload)
}

func appendJob(dst []byte, j *Job) []byte {
	dst = strconv.AppendInt(dst, int64(j.Attempt), 10)
	dst = append(dst, `,"tries":`...)
	dst = strconv.AppendInt(dst, int64(j.Tries), 10)
	if len(j.Attributes) > 0 {
		dst = append(dst, `,"attributes":`...)
		dst = append(dst, j.Attributes...)
	}
	return dst
}

func appendPayload(dst, p []byte) []byte {
	switch {
	case ValidJSON(p):
		dst = append(dst, `,"data":`...)
		if bytes.IndexByte(p, '\n') >= 0 || bytes.IndexByte(p, '\r') >= 0 {
			return appendCompact(dst, p)
		}
		return append(dst, p...)
	case utf8.Valid(p):
		dst = append(dst, `,"text":`...)
		return appendString(dst, p)
	default:
		dst = append(dst, `,"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, p)
		return append(dst, '"')
	}
}

// boundedText is the beginning of s as UTF-8 of at most max bytes.
func boundedText(s string, max int) string {
	// Cut before and after: a replaced byte grows to three.
	s = strings.ToValidUTF8(s[:min(len(s), max+utf8.UTFMax)], "\ufffd")
	if len(s) <= max {
		return s
	}
	for !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max]
}
