package job

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A record is what the store keeps of a job, without its state.
//
//	<13-digit expiry, Unix ms; 0…0: never> <tries>[@<caller's id>]<form>
//
// The form is ' ' and the payload, or '#<n>,', n bytes of attributes and the payload.
const expiryDigits = 13

// maxExpiry is the largest expiry, in ms: the year 2286.
const maxExpiry = 9_999_999_999_999

// appendRecord appends the record of a message to dst.
func appendRecord(dst []byte, expires int64, tries int, callerID string, m Message) []byte {
	at := len(dst)
	dst = append(dst, "0000000000000 "...)
	for i := at + expiryDigits - 1; expires > 0; i-- {
		dst[i] = byte('0' + expires%10) // #nosec G115 -- a digit
		expires /= 10
	}
	dst = strconv.AppendInt(dst, int64(tries), 10)
	if callerID != "" {
		dst = append(append(dst, '@'), callerID...)
	}
	if m.Attributes == nil {
		dst = append(dst, ' ')
	} else {
		dst = strconv.AppendInt(append(dst, '#'), int64(len(m.Attributes)), 10)
		dst = append(append(dst, ','), m.Attributes...)
	}
	return append(dst, m.Payload...)
}

// recordSize is at least the length of a record.
func recordSize(callerID string, m Message) int {
	return expiryDigits + len(" 65535@#1234567890,") + len(callerID) + len(m.Attributes) + len(m.Payload)
}

// parseRecord reads a record into j; its payload and attributes share the record's memory.
// false: something other than Spillway wrote it.
func parseRecord(record []byte, j *Job) bool {
	if len(record) < expiryDigits+len(" 1 ") || record[expiryDigits] != ' ' {
		return false
	}
	expires, n := number(record)
	if n != expiryDigits {
		return false
	}
	rest := record[expiryDigits+1:]
	tries, n := number(rest)
	if n == 0 || tries > MaxAttempt {
		return false
	}
	rest = rest[n:]
	j.Expires = expires
	j.Tries = int(tries)
	j.CallerID = ""
	j.Attributes = nil
	if len(rest) > 0 && rest[0] == '@' {
		end := bytes.IndexAny(rest, " #")
		if end < 0 || !ValidCallerID(rest[1:end]) {
			return false
		}
		j.CallerID, rest = string(rest[1:end]), rest[end:]
	}
	switch {
	case len(rest) == 0:
		return false
	case rest[0] == ' ':
		j.Payload = rest[1:]
		return true
	case rest[0] != '#':
		return false
	}
	length, n := number(rest[1:])
	rest = rest[1+n:]
	if n == 0 || len(rest) == 0 || rest[0] != ',' || length > int64(len(rest)-1) {
		return false
	}
	end := 1 + int(length)
	j.Attributes, j.Payload = rest[1:end:end], rest[end:]
	return true
}

// MaxError bounds Failure.Error, in bytes.
const MaxError = 1 << 10

// keptText is a text of a worker as it is kept: its beginning, without what is not printed.
func keptText(text string, size int) string {
	var kept []byte
	for _, r := range text { // what is not UTF-8 becomes U+FFFD
		if !unicode.IsPrint(r) {
			r = ' '
		}
		if len(kept)+utf8.RuneLen(r) > size {
			break
		}
		kept = utf8.AppendRune(kept, r)
	}
	return strings.TrimSpace(string(kept))
}

// failures reads what the store keeps of errors: lines of attempt, ms and text. A line that
// something other than Spillway wrote is left out.
func failures(text []byte) (list []Failure) {
	for line := range bytes.SplitSeq(text, []byte{'\n'}) {
		attempt, n := number(line)
		line = bytes.TrimPrefix(line[n:], []byte{' '})
		at, n := number(line)
		if n > 0 && n < len(line) && attempt <= MaxAttempt {
			list = append(list, Failure{
				Attempt: int(attempt),
				AtMS:    at,
				Error:   keptText(string(line[n:]), MaxError),
			})
		}
	}
	return list
}

// acked reads what the store keeps of an ack: attempt, ms and result.
func (j *Job) acked(text []byte) {
	attempt, n := number(text)
	at, m := number(text[min(n+1, len(text)):])
	j.Attempt, j.At, j.Expires = int(attempt), at, 0
	j.Result = asJSON(text[min(n+m+2, len(text)):])
}

// asJSON is a result as JSON: a worker may have said any text. nil: it said none.
func asJSON(result []byte) json.RawMessage {
	if len(result) > 0 && !json.Valid(result) {
		result, _ = json.Marshal(string(result)) // a string cannot fail
	}
	return result
}

// number reads the decimal digits that text begins with, 18 at most, and returns how many
// there are.
func number(text []byte) (value int64, digits int) {
	for digits < len(text) && digits < 18 && text[digits] >= '0' && text[digits] <= '9' {
		value = value*10 + int64(text[digits]-'0')
		digits++
	}
	return value, digits
}

// MaxNote bounds Progress.Note, in bytes.
const MaxNote = 200

// progress reads how far the attempt of a job got, as the store keeps it: which attempt, percent and
// a text. nil: it said nothing, or that was an earlier attempt.
func (j *Job) progress(text []byte) *Progress {
	attempt, n := number(text)
	text = bytes.TrimPrefix(text[n:], []byte{' '})
	percent, m := number(text)
	if n == 0 || m == 0 || percent > 100 || j.Attempt >= 0 && int64(j.Attempt) != attempt {
		return nil
	}
	return &Progress{Percent: int(percent), Note: keptText(string(text[m:]), MaxNote)}
}
