package client

import (
	"maps"
	"strconv"
	"strings"
)

// Reason says why an entry was dropped. The list only grows.
type Reason string

const (
	// QueueOverflow: newer entries took its place.
	QueueOverflow Reason = "queue_overflow"
	// Stale: it got older than Config.MaxAge before the service had it.
	Stale Reason = "stale"
	// TooLarge: its payload is larger than Config.MaxEntry.
	TooLarge Reason = "too_large"
	// RetriesExhausted: its request failed Config.Attempts times.
	RetriesExhausted Reason = "retries_exhausted"
	// Shutdown: it was reported after Close, or Close had no time left for it.
	Shutdown Reason = "shutdown"
	// Rejected: the service rejected it, and would again.
	Rejected Reason = "rejected"
	// Unknown: an attempt may have stored it, and none can follow, because the service does not
	// remember longer what it stored.
	Unknown Reason = "unknown"
	// Invalid: its partition or id is none, by the service's rules.
	Invalid Reason = "invalid"
)

// Stats counts entries since New. Reported = Acked + Pending + the sum of Dropped,
// in every copy.
type Stats struct {
	Reported int64            // calls of Report and ReportAt
	Acked    int64            // the service has stored them
	Pending  int64            // waiting or on their way
	Dropped  map[Reason]int64 // the others
}

// Stats returns the counts as they are now.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{c.reported, c.acked, c.pending(), maps.Clone(c.dropped)}
}

// pending is called with the lock held.
func (c *Client) pending() int64 {
	n := c.reported - c.acked
	for _, dropped := range c.dropped {
		n -= dropped
	}
	return n
}

// drop counts entries as dropped. It is called with the lock held.
func (c *Client) drop(why Reason, n int64) {
	if n == 0 {
		return
	}
	c.dropped[why] += n
	if why != Rejected { // the service knows those
		c.untold[why] += n
	}
	c.notices.dropped(why, n)
}

// discards are drops that the service has not been told of. Where an answer is lost it is
// told of them again: it hears of each drop at least once.
type discards map[Reason]int64

// header is the value of X-Client-Discards.
func (d discards) header() string {
	var b strings.Builder
	for why, n := range d {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		if why == Invalid {
			why = "other"
		}
		b.WriteString(string(why) + "=" + strconv.FormatInt(n, 10))
	}
	return b.String()
}

// maxDiscards is the largest count that the header may say.
const maxDiscards = 999_999_999

// tell takes the drops that the service has not been told of, to be told now.
func (c *Client) tell() discards {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.untold) == 0 {
		return nil
	}
	told := make(discards, len(c.untold))
	for why, n := range c.untold {
		told[why] = min(n, maxDiscards)
		if n -= told[why]; n == 0 {
			delete(c.untold, why)
		} else {
			c.untold[why] = n
		}
	}
	return told
}

// untell takes that back: the service did not hear it, or nobody knows.
func (c *Client) untell(told discards) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for why, n := range told {
		c.untold[why] += n
	}
}
