package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A payload is a JSON object with the event's number and padding:
//
//	{"n":"0000000042","pad":"xxxx…"}
const (
	payloadHead = `{"n":"`
	payloadMid  = `","pad":"`
	payloadTail = `"}`
	numberWidth = 10
	minPayload  = len(payloadHead) + numberWidth + len(payloadMid) + len(payloadTail)

	// maxEvents of one measurement; 4 MB of marks.
	maxEvents = 1 << 25
)

// payloads writes payloads of one size.
type payloads struct{ template []byte }

func newPayloads(size int) payloads {
	return payloads{[]byte(payloadHead + strings.Repeat("0", numberWidth) + payloadMid +
		strings.Repeat("x", size-minPayload) + payloadTail)}
}

// append writes the payload of event n to dst.
func (p payloads) append(dst []byte, n int64) []byte {
	at := len(dst) + len(payloadHead)
	dst = append(dst, p.template...)
	for i := numberWidth - 1; i >= 0; i-- {
		dst[at+i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// tally counts what comes out. Each event is marked by its number, so a repeated
// one is not taken for another.
type tally struct {
	marks     []atomic.Uint32
	delivered atomic.Int64 // different events
	repeated  atomic.Int64
	damaged   atomic.Int64 // no number, or one that was never given
	batches   atomic.Int64
	last      atomic.Int64 // when something was delivered last, Unix ns
}

func newTally() *tally { return &tally{marks: make([]atomic.Uint32, maxEvents/32)} }

// batch takes one batch, however large.
func (t *tally) batch(events ...[]byte) {
	for _, payload := range events {
		t.mark(payload)
	}
	t.batches.Add(1)
	t.last.Store(time.Now().UnixNano())
}

func (t *tally) mark(payload []byte) {
	n, err := number(payload)
	if err != nil || n < 0 || n >= maxEvents {
		t.damaged.Add(1)
		return
	}
	bit := uint32(1) << (n % 32)
	if t.marks[n/32].Or(bit)&bit != 0 {
		t.repeated.Add(1)
		return
	}
	t.delivered.Add(1)
}

// report is for a side that counts by itself, in another process.
func (t *tally) report(delivered int64) {
	if t.delivered.Swap(delivered) != delivered {
		t.last.Store(time.Now().UnixNano())
	}
}

func number(payload []byte) (int64, error) {
	rest, found := bytes.CutPrefix(payload, []byte(payloadHead))
	if !found || len(rest) < numberWidth {
		return 0, fmt.Errorf("a payload without number: %.40q", payload)
	}
	return strconv.ParseInt(string(rest[:numberWidth]), 10, 64)
}
