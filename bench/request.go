package bench

import (
	"fmt"
	"math/rand/v2"
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

// requestBuilder writes whole HTTP requests. It is immutable, so every
// connection shares it.
type requestBuilder struct {
	partitions int64
	skewed     []uint32 // Zipf: the partition of request i modulo its length
	entries    int64
	path       string // up to the partition
	head       string // from the end of the partition to the body
	padding    string
}

func newRequestBuilder(l Load, host string) *requestBuilder {
	contentType, length := "application/json", l.PayloadBytes
	if l.Entries > 1 {
		contentType, length = "application/x-ndjson", (l.PayloadBytes+len("\n"))*l.Entries
	}
	var auth string
	if l.Token != "" {
		auth = "Authorization: Bearer " + l.Token + "\r\n"
	}
	prefix := l.Prefix
	if prefix == "" {
		prefix = "bench-"
	}
	b := &requestBuilder{
		partitions: int64(l.Partitions),
		entries:    int64(l.Entries),
		path:       "POST /v1/" + l.Namespace + "/" + prefix,
		head: fmt.Sprintf(" HTTP/1.1\r\nHost: %s\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n",
			host, auth, contentType, length),
		padding: strings.Repeat("x", l.PayloadBytes-MinPayload),
	}
	if l.Zipf {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(l.Partitions-1))
		b.skewed = make([]uint32, 1<<16)
		for i := range b.skewed {
			b.skewed[i] = uint32(zipf.Uint64())
		}
	}
	return b
}

// partition is where request i goes.
func (b *requestBuilder) partition(i int64) int64 {
	if b.skewed != nil {
		return int64(b.skewed[i%int64(len(b.skewed))])
	}
	return i % b.partitions
}

// append writes request i to dst.
func (b *requestBuilder) append(dst []byte, i int64) []byte {
	dst = append(dst, b.path...)
	dst = strconv.AppendInt(dst, b.partition(i), 10)
	dst = append(dst, b.head...)
	for n := i * b.entries; n < (i+1)*b.entries; n++ {
		dst = append(dst, payloadHead...)
		dst = appendPadded(dst, n)
		dst = append(dst, payloadMid...)
		dst = append(dst, b.padding...)
		dst = append(dst, payloadTail...)
		if b.entries > 1 {
			dst = append(dst, '\n')
		}
	}
	return dst
}

func appendPadded(dst []byte, n int64) []byte {
	var digits [numberWidth]byte
	for i := numberWidth - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, digits[:]...)
}
