package client

import "time"

// A request is a group of entries on their way, oldest first within a partition.
type request struct {
	entries []*entry
	parts   []*part
	first   uint64 // the lowest sequence
}

// dispatch makes requests of what waits, until Close.
func (c *Client) dispatch() {
	defer c.abandon()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := c.deal()
		if wait >= 0 {
			timer.Reset(wait)
		}
		select {
		case <-c.wake:
		case <-timer.C:
		case <-c.quit:
			return
		}
	}
}

// deal hands requests to the senders while some are free and entries are due. It
// returns after how long to look again; a negative time means: when woken.
func (c *Client) deal() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	for len(c.inFlight) < c.cfg.InFlight && c.due() <= 0 {
		r := c.gather()
		if len(r.entries) == 0 {
			c.release(r)
			continue
		}
		c.inFlight[r] = true
		c.requests <- r // has room for as many as may be in flight
	}
	wait := time.Duration(-1)
	if len(c.inFlight) < c.cfg.InFlight && len(c.queue.ready) > 0 {
		wait = c.due()
	}
	if c.queue.oldest != nil {
		stale := max(time.Until(c.staleAt(c.queue.oldest)), 0) + time.Millisecond
		if wait < 0 || stale < wait {
			wait = stale
		}
	}
	return wait
}

// due is how long until a request should be made; the entries that may be sent are
// more than none where that is 0 or less.
func (c *Client) due() time.Duration {
	if len(c.queue.ready) == 0 {
		return time.Hour
	}
	oldest := c.queue.ready[0].first
	if c.full() || c.closed || oldest.seq <= c.urgent {
		return 0
	}
	return oldest.queued + c.cfg.Linger - time.Since(c.began)
}

// gather takes the entries of a request: of the partition with the oldest entry,
// then of the next, as many as fit.
func (c *Client) gather() *request {
	r := &request{first: ^uint64(0)}
	bytes := 0
	for len(c.queue.ready) > 0 {
		p := c.queue.ready[0]
		if len(r.entries) > 0 && (len(r.entries) >= c.cfg.Batch ||
			bytes+len(p.first.payload) > c.cfg.BatchBytes) {
			break
		}
		c.queue.send(p)
		r.parts = append(r.parts, p)
		for p.first != nil && len(r.entries) < c.cfg.Batch {
			if len(r.entries) > 0 && bytes+len(p.first.payload) > c.cfg.BatchBytes {
				break
			}
			e := c.queue.take(p)
			if !c.fresh(e) {
				e.free()
				c.drop(Stale, 1)
				continue
			}
			r.entries = append(r.entries, e)
			r.first = min(r.first, e.seq)
			bytes += len(e.payload)
		}
	}
	return r
}

func (c *Client) staleAt(e *entry) time.Time {
	return time.UnixMilli(e.occurred).Add(c.cfg.MaxAge)
}

func (c *Client) fresh(e *entry) bool { return time.Now().Before(c.staleAt(e)) }

// expire drops the oldest entries that got stale while they waited.
func (c *Client) expire() {
	for c.queue.oldest != nil && !c.fresh(c.queue.oldest) {
		c.lose(c.queue.oldest.part, Stale)
	}
}

// release gives the partitions of a request back to the queue.
func (c *Client) release(r *request) {
	for _, p := range r.parts {
		c.queue.arrived(p)
	}
	c.announce()
}

// finish ends a request.
func (c *Client) finish(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inFlight, r)
	c.release(r)
	c.look()
}

// abandon drops what Close had no time for.
func (c *Client) abandon() {
	close(c.requests)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.queue.oldest != nil {
		c.lose(c.queue.oldest.part, Shutdown)
	}
	c.announce()
}
