package spillway

import "time"

// A request is a group of entries on their way, oldest first within a partition.
type request struct {
	entries []*entry
	parts   []*part
	first   uint64 // the lowest sequence
}

// dispatch makes requests of what waits, until Close.
func (r *Reporter) dispatch() {
	defer r.abandon()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := r.deal()
		if wait >= 0 {
			timer.Reset(wait)
		}
		select {
		case <-r.wake:
		case <-timer.C:
		case <-r.quit:
			return
		}
	}
}

// deal hands requests to the senders while some are free and entries are due. It
// returns after how long to look again; a negative time means: when woken.
func (r *Reporter) deal() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	for len(r.inFlight) < r.cfg.InFlight && r.due() <= 0 {
		req := r.gather()
		if len(req.entries) == 0 {
			r.release(req)
			continue
		}
		r.inFlight[req] = true
		r.requests <- req // has room for as many as may be in flight
	}
	wait := time.Duration(-1)
	if len(r.inFlight) < r.cfg.InFlight && len(r.queue.ready) > 0 {
		wait = r.due()
	}
	if r.queue.oldest != nil {
		stale := max(time.Until(r.staleAt(r.queue.oldest)), 0) + time.Millisecond
		if wait < 0 || stale < wait {
			wait = stale
		}
	}
	return wait
}

// due is how long until a request should be made; the entries that may be sent are
// more than none where that is 0 or less.
func (r *Reporter) due() time.Duration {
	if len(r.queue.ready) == 0 {
		return time.Hour
	}
	oldest := r.queue.ready[0].first
	if r.full() || r.closed || oldest.seq <= r.urgent {
		return 0
	}
	return oldest.queued + r.cfg.Linger - time.Since(r.began)
}

// gather takes the entries of a request: of the partition with the oldest entry,
// then of the next, as many as fit.
func (r *Reporter) gather() *request {
	req := &request{first: ^uint64(0)}
	bytes := 0
	for len(r.queue.ready) > 0 {
		p := r.queue.ready[0]
		if len(req.entries) > 0 && (len(req.entries) >= r.cfg.Batch ||
			bytes+len(p.first.payload) > r.cfg.BatchBytes) {
			break
		}
		r.queue.send(p)
		req.parts = append(req.parts, p)
		for p.first != nil && len(req.entries) < r.cfg.Batch {
			if len(req.entries) > 0 && bytes+len(p.first.payload) > r.cfg.BatchBytes {
				break
			}
			e := r.queue.take(p)
			if !r.fresh(e) {
				e.free()
				r.drop(Stale, 1)
				continue
			}
			req.entries = append(req.entries, e)
			req.first = min(req.first, e.seq)
			bytes += len(e.payload)
		}
	}
	return req
}

func (r *Reporter) staleAt(e *entry) time.Time {
	return time.UnixMilli(e.occurred).Add(r.cfg.MaxAge)
}

func (r *Reporter) fresh(e *entry) bool { return time.Now().Before(r.staleAt(e)) }

// expire drops the oldest entries that got stale while they waited.
func (r *Reporter) expire() {
	for r.queue.oldest != nil && !r.fresh(r.queue.oldest) {
		r.lose(r.queue.oldest.part, Stale)
	}
}

// release gives the partitions of a request back to the queue.
func (r *Reporter) release(req *request) {
	for _, p := range req.parts {
		r.queue.arrived(p)
	}
	r.announce()
}

// finish ends a request.
func (r *Reporter) finish(req *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inFlight, req)
	r.release(req)
	r.look()
}

// abandon drops what Close had no time for.
func (r *Reporter) abandon() {
	close(r.requests)
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.queue.oldest != nil {
		r.lose(r.queue.oldest.part, Shutdown)
	}
	r.announce()
}
