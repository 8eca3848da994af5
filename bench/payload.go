package bench

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A payload is a JSON object with the entry's number, so that no two are alike,
// and padding:
//
//	{"n":"0000000042","pad":"xxxx…"}
const (
	payloadHead = `{"n":"`
	payloadMid  = `","pad":"`
	payloadTail = `"}`
	numberWidth = 10

	// MinPayload is the smallest payload in bytes: one without padding.
	MinPayload = len(payloadHead) + numberWidth + len(payloadMid) + len(payloadTail)
)

// Padding is what AppendPayload needs for payloads of size bytes, MinPayload at least.
func Padding(size int) string { return strings.Repeat("x", size-MinPayload) }

// AppendPayload appends the payload of entry n to dst.
func AppendPayload(dst []byte, n int64, padding string) []byte {
	dst = append(dst, payloadHead...)
	dst = appendPadded(dst, n)
	dst = append(dst, payloadMid...)
	dst = append(dst, padding...)
	return append(dst, payloadTail...)
}

// Payload is the payload of entry n, of size bytes.
func Payload(n int64, size int) string { return string(AppendPayload(nil, n, Padding(size))) }

// PayloadNumber reads the number of the entry that a payload belongs to.
func PayloadNumber(payload []byte) (int64, error) {
	rest, found := bytes.CutPrefix(payload, []byte(payloadHead))
	if !found || len(rest) < numberWidth {
		return 0, fmt.Errorf("read payload: no number in %.40q", payload)
	}
	return strconv.ParseInt(string(rest[:numberWidth]), 10, 64)
}

func appendPadded(dst []byte, n int64) []byte {
	var digits [numberWidth]byte
	for i := numberWidth - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, digits[:]...)
}
