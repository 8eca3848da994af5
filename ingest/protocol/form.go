package protocol

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// FormData decodes the value of data= of a form in place: %-escapes, then, unless it is JSON,
// base64. false: there is none, or it is malformed.
func FormData(form []byte) (data []byte, ok bool) {
	var value []byte
	for pair := range bytes.SplitSeq(form, []byte{'&'}) {
		if value, ok = bytes.CutPrefix(pair, []byte("data=")); ok {
			break
		}
	}
	begin := strings.ToUpper(string(value[:min(3, len(value))]))
	isJSON := begin == "%7B" || begin == "%5B" || strings.HasPrefix(begin, "{") || strings.HasPrefix(begin, "[")
	n := 0
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '+' && isJSON:
			c = ' '
		case c == '%':
			if i+2 >= len(value) {
				return nil, false
			}
			high, low := hexDigit(value[i+1]), hexDigit(value[i+2])
			if high > 15 || low > 15 {
				return nil, false
			}
			c = high<<4 | low
			i += 2
		}
		value[n] = c
		n++
	}
	if isJSON || !ok {
		return value[:n], ok
	}
	// In place: base64 writes fewer bytes than it has read.
	n, err := base64.StdEncoding.Decode(value, value[:n])
	return value[:n], err == nil
}

// hexDigit is the value of a digit, or more than 15.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
