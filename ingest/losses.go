package ingest

import (
	"errors"
	"maps"
	"sync"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
)

// reasonShuttingDown counts entries of ?ack=none that were still in the lanes when
// Stop ran out of time. Clients never see it: they were answered 202.
const reasonShuttingDown wire.Reason = "shutting_down"

// lossReason is the label of entries of ?ack=none that failed with err.
func lossReason(err error) wire.Reason {
	if errors.Is(err, errShuttingDown) {
		return reasonShuttingDown
	}
	_, reason := codesFor(err)
	return reason
}

// losses counts what requests with ?ack=none lose once Stop is called. Stop logs
// it, because metrics are rarely read after that.
type losses struct {
	mu       sync.Mutex
	requests int
	entries  map[wire.Reason]int
}

// add counts what a request lost.
func (l *losses) add(r *request) {
	lost := map[wire.Reason]int{}
	for i := range r.parts {
		if p := &r.parts[i]; p.err != nil && p.count > 0 {
			lost[lossReason(p.err)] += p.count
		}
	}
	if len(lost) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = map[wire.Reason]int{}
	}
	l.requests++
	for reason, n := range lost {
		l.entries[reason] += n
	}
}

// report logs what was lost since the last report, if anything was lost.
func (l *losses) report(log *zap.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests == 0 {
		return
	}
	entries := 0
	for n := range maps.Values(l.entries) {
		entries += n
	}
	log.Warn("entries lost at shutdown after their requests were answered 202",
		zap.Int("entries", entries), zap.Int("requests", l.requests), zap.Any("by_reason", l.entries))
	l.requests, l.entries = 0, nil
}
