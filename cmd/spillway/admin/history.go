package admin

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/history"
)

// History is the answer about a range of time.
type History struct {
	StepMS int64                 `json:"step_ms"`
	FromMS int64                 `json:"from_ms"` // time of the first point
	Points int                   `json:"points"`
	Series map[string][]*float32 `json:"series"`
}

func (s *Server) historyOf(r *request) (any, error) {
	span, name := r.param("range"), r.param("namespace")
	if span != "" && span != "15m" && span != "24h" {
		r.fail(badRequest("range: want 15m or 24h"))
	}
	if name != "" {
		r.buffer(name)
	}
	if r.err != nil {
		return nil, r.err
	}
	s.sweep.watch()
	from, step, series := s.history.Series(name, s.sweep.now(), span == "24h")
	return History{step.Milliseconds(), from.UnixMilli(), len(series["accepted"]), series}, nil
}

// A recorder writes the history every second, from what the accounts read anyway.
type recorder struct {
	source  Source
	sweep   *sweep
	history *history.History

	accounts *Accounts          // those that readings come from
	before   map[string]reading // by namespace, the last that is in the history
	at       time.Time          // of rejected

	mu       sync.Mutex
	rejected map[string]map[drops.Reason]int64 // totals by namespace
	rates    map[string]map[string]float64     // of the last second, by namespace
}

// A reading is the account of a namespace at a time.
type reading struct {
	partition.Overview
	at      time.Time
	changed time.Time // when it was another last
}

func newRecorder(source Source, s *sweep, h *history.History) *recorder {
	return &recorder{source: source, sweep: s, history: h, before: map[string]reading{}}
}

func (r *recorder) run(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			r.tick(r.sweep.now())
		}
	}
}

func (r *recorder) tick(now time.Time) {
	v := r.source()
	if v.Accounts == nil {
		return
	}
	if r.accounts != v.Accounts { // a reload: perhaps of another store
		clear(r.before)
		r.rejected = nil
		r.accounts = v.Accounts
	}
	latest, p99 := v.Accounts.latest(), v.sinkP99()
	rejections, known := r.reject(v, now)
	points := map[string]history.Point{}
	for _, ns := range v.Store.Namespaces() {
		name, p := ns.Name, history.NoPoint()
		o, read := latest[name]
		if read {
			p[history.Buffered] = float32(o.Ledger.Buffered)
			if before, known := r.before[name]; known && o.at.After(before.at) {
				rate(&p, before, o)
			}
			r.before[name] = o
		}
		if known {
			p[history.Rejected] = 0
			for _, rate := range rejections[name] {
				p[history.Rejected] += float32(rate)
			}
		}
		if oldest := r.sweep.oldest(name); oldest > 0 && o.Ledger.Buffered > 0 {
			p[history.OldestAge] = float32(max(0, now.UnixMilli()-oldest))
		} else if read && o.Ledger.Buffered == 0 {
			p[history.OldestAge] = 0
		}
		if d, known := p99[name]; known && d > 0 {
			p[history.SinkP99] = float32(float64(d) / float64(time.Millisecond))
		}
		points[name] = p
	}
	r.history.Add(now, points)
}

// rate sets the rates between two readings. A total that fell is that of another store.
func rate(p *history.Point, before, now reading) {
	seconds := now.at.Sub(before.at).Seconds()
	old, latest := endings(before.Overview), endings(now.Overview)
	for series, name := range history.Names[:history.Buffered] {
		if total, known := latest[name]; known {
			p[series] = float32(float64(total-old[name]) / seconds)
			if total < old[name] {
				p[series] = float32(math.NaN())
			}
		}
	}
}

// reject returns what ingest rejects a second, by namespace and reason. known is false the
// first time.
func (r *recorder) reject(v View, now time.Time) (rates map[string]map[string]float64, known bool) {
	totals := map[string]map[drops.Reason]int64{}
	rates = map[string]map[string]float64{}
	seconds := max(now.Sub(r.at).Seconds(), 0.1)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ns := range v.Store.Namespaces() {
		totals[ns.Name], rates[ns.Name] = map[drops.Reason]int64{}, map[string]float64{}
		for reason, t := range v.Drops.Totals(ns.Name) {
			if !reason.Rejection() {
				continue
			}
			totals[ns.Name][reason] = t.Entries
			if n := t.Entries - r.rejected[ns.Name][reason]; n > 0 && r.rejected != nil {
				rates[ns.Name][string(reason)] = float64(n) / seconds
			}
		}
	}
	known = r.rejected != nil
	r.rejected = totals
	r.rates = rates
	r.at = now
	return rates, known
}

// rejectedRates are what ingest rejects of a namespace, entries a second by reason.
func (r *recorder) rejectedRates(namespace string) map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rates := r.rates[namespace]; rates != nil {
		return rates // which nobody writes any more
	}
	return map[string]float64{}
}
