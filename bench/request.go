package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// A mixed line names the partition of its payload:
//
//	{"partition":"bench-0000000042","data":{"n":…}}
const (
	mixedHead = `{"partition":"`
	mixedMid  = `","data":`
	mixedTail = `}`
)

// requestBuilder writes whole HTTP requests. It is immutable, so every
// connection shares it.
type requestBuilder struct {
	partitions int64
	skewed     []uint32 // Zipf: the partition of request i modulo its length
	entries    int64
	mixed      bool
	prefix     string // of a partition's name
	path       string // up to the partition, or the end of it where entries name theirs
	head       string // from the end of the partition to the body
	padding    string
	segment    *segmentRequest // nil: our own routes
}

// prefix is what the names of partitions begin with.
func (l Load) prefix() string {
	if l.Prefix == "" {
		return "bench-"
	}
	return l.Prefix
}

func newRequestBuilder(l Load, host string) *requestBuilder {
	contentType, length := "application/json", l.PayloadBytes
	if l.Entries > 1 {
		contentType, length = "application/x-ndjson", (l.PayloadBytes+len("\n"))*l.Entries
	}
	prefix := l.prefix()
	path := "POST /v1/" + l.Namespace
	if l.Mixed {
		contentType = "application/x-ndjson"
		length = (len(mixedHead) + len(prefix) + numberWidth + len(mixedMid) + l.PayloadBytes + len(mixedTail) +
			len("\n")) * l.Entries
	} else {
		path += "/" + prefix
	}
	var auth string
	if l.Token != "" {
		auth = "Authorization: Bearer " + l.Token + "\r\n"
	}
	b := &requestBuilder{
		partitions: int64(l.Partitions),
		entries:    int64(l.Entries),
		mixed:      l.Mixed,
		prefix:     prefix,
		path:       path,
		head: fmt.Sprintf(" HTTP/1.1\r\nHost: %s\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n",
			host, auth, contentType, length),
		padding: Padding(l.PayloadBytes),
	}
	if l.Segment {
		b.segment = newSegmentRequest(l, host)
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
	if b.segment != nil {
		return b.segment.append(dst, b, i)
	}
	dst = append(dst, b.path...)
	if !b.mixed {
		dst = strconv.AppendInt(dst, b.partition(i), 10)
	}
	dst = append(dst, b.head...)
	for n := i * b.entries; n < (i+1)*b.entries; n++ {
		if b.mixed {
			dst = append(dst, mixedHead...)
			dst = append(dst, b.prefix...)
			dst = appendPadded(dst, Scatter(n, b.partitions))
			dst = append(dst, mixedMid...)
		}
		dst = AppendPayload(dst, n, b.padding)
		if b.mixed {
			dst = append(dst, mixedTail...)
		}
		if b.mixed || b.entries > 1 {
			dst = append(dst, '\n')
		}
	}
	return dst
}

// Scatter is the partition, of that many, that entry n of a mixed load goes to:
// evenly, in no order, and the same at every run (the finaliser of splitmix64).
func Scatter(n, partitions int64) int64 {
	x := uint64(n) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64((x ^ x>>31) % uint64(partitions))
}
