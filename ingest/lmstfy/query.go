package lmstfy

import (
	"strconv"
	"time"
	"unsafe"
)

// What a request without the parameter means, where no rule says otherwise.
const (
	defaultTTL = 24 * time.Hour
	defaultTTR = 2 * time.Minute
)

const (
	maxCount   = 100
	maxQueues  = 256               // of a claim: each costs memory while it waits
	maxTimeout = 599 * time.Second // lmstfy's clients give up after 600 s
)

// uintOf reads a parameter as an unsigned decimal of at most bits bits. Of several, the
// first counts. One that is there and empty is invalid.
func (c *call) uintOf(name string, otherwise uint64, bits int) (n uint64, valid bool) {
	args := c.Ctx.QueryArgs()
	if !args.Has(name) {
		return otherwise, true
	}
	text := args.Peek(name)
	n, err := strconv.ParseUint(unsafe.String(unsafe.SliceData(text), len(text)), 10, bits)
	return n, err == nil
}

// seconds reads a parameter that is a time, in 32 bits.
func (c *call) seconds(name string, otherwise time.Duration) (d time.Duration, rejected *rejection) {
	n, valid := c.uintOf(name, uint64(otherwise/time.Second), 32) // #nosec G115 -- never below 0
	if !valid {
		return 0, badRequest("invalid " + name)
	}
	return time.Duration(n) * time.Second, nil // #nosec G115 -- 32 bits
}

// limit reads how many dead letters a request is about.
func (c *call) limit() (n int, rejected *rejection) {
	limit, valid := c.uintOf("limit", 1, 63)
	if !valid || limit < 1 {
		return 0, badRequest("invalid limit")
	}
	return int(min(limit, 1<<31-1)), nil // #nosec G115 -- 31 bits
}
