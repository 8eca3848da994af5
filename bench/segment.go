package bench

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

// A request of Segment's SDKs is a batch of events as these SDKs send them:
//
//	{"batch":[{"messageId":"bench-0000000042","type":"track",…,"properties":{"game":"bench-0000000007","pad":"xxxx…"}},…],"sentAt":"2025-11-20T09:07:55.100Z"}
const (
	segmentBatch = `{"batch":[`
	segmentHead  = `{"messageId":"bench-`
	segmentAt    = `","type":"track","userId":"u-1","event":"lap","context":{"library":{"name":"bench","version":"1.0.0"}},"timestamp":"`
	segmentGame  = `","properties":{"game":"`
	segmentPad   = `","pad":"`
	segmentTail  = `"}}`
	segmentSent  = `],"sentAt":"`
	segmentEnd   = `"}`

	segmentTime = "2006-01-02T15:04:05.000Z"
)

// segmentRequest writes requests of Segment's SDKs.
type segmentRequest struct{ path, head, padding string }

// minSegmentPayload is the size of an event without padding, in bytes.
func (l Load) minSegmentPayload() int {
	return len(segmentHead) + numberWidth + len(segmentAt) + len(segmentTime) + len(segmentGame) +
		len(l.prefix()) + numberWidth +
		len(segmentPad) + len(segmentTail)
}

func newSegmentRequest(l Load, host string) *segmentRequest {
	length := len(segmentBatch) + (l.PayloadBytes+len(","))*l.Entries - len(",") + len(segmentSent) +
		len(segmentTime) + len(segmentEnd)
	key := base64.StdEncoding.EncodeToString([]byte(l.Namespace + ":"))
	return &segmentRequest{
		path: "POST /segment/v1/batch",
		head: fmt.Sprintf(" HTTP/1.1\r\nHost: %s\r\nAuthorization: Basic %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
			host, key, length),
		padding: strings.Repeat("x", l.PayloadBytes-l.minSegmentPayload()),
	}
}

// append writes request i of b to dst.
func (s *segmentRequest) append(dst []byte, b *requestBuilder, i int64) []byte {
	now := time.Now().UTC()
	dst = append(append(append(dst, s.path...), s.head...), segmentBatch...)
	for n := i * b.entries; n < (i+1)*b.entries; n++ {
		if n > i*b.entries {
			dst = append(dst, ',')
		}
		dst = appendPadded(append(dst, segmentHead...), n)
		dst = now.AppendFormat(append(dst, segmentAt...), segmentTime)
		dst = append(append(dst, segmentGame...), b.prefix...)
		dst = appendPadded(dst, Scatter(n, b.partitions))
		dst = append(append(append(dst, segmentPad...), s.padding...), segmentTail...)
	}
	dst = now.AppendFormat(append(dst, segmentSent...), segmentTime)
	return append(dst, segmentEnd...)
}
