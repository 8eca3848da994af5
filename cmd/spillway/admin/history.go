package admin

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition/space"
)

// History is the answer about a range of time.
type History struct {
	StepMS int64             `json:"step_ms"`
	FromMS int64             `json:"from_ms" help:"Time of the first point."`
	Points int               `json:"points"`
	Series map[string]series `json:"series"`
}

// A series is the values of a day by the minute, nil where there is none.
type series []*float32

const perMinute = 60

// notKnown is the time of the oldest in a record that lacks it.
const notKnown = -1

// historyOf is that of a namespace, or of all buffers.
func (s *Server) historyOf(r *request, q *only) (History, error) {
	name, wanted := q.Namespace, []observed{}
	for i, pool := range s.observer.observed(r.view) {
		for _, ns := range pool {
			if ns.name == name || name == "" && i == 0 {
				wanted = append(wanted, ns)
			}
		}
	}
	if len(wanted) == 0 && name != "" {
		return History{}, noNamespace(name)
	}
	return paced(r.ctx, s.observer.counts, func() (History, error) { return readHistory(r.ctx, wanted, s.observer.now()) })
}

// readHistory reads that of several namespaces as one: sums, and the greatest of ages.
func readHistory(ctx context.Context, of []observed, now time.Time) (History, error) {
	last := now.Unix() / perMinute
	h := History{StepMS: time.Minute.Milliseconds(), Points: space.HistoryKept, Series: map[string]series{}}
	for i, ns := range of {
		for _, name := range slices.Concat(ns.rates, ns.gauges, []string{ns.oldest}) {
			if h.Series[name] == nil {
				h.Series[name] = make(series, h.Points)
			}
		}
		if ns.home == nil || ns.home.History == nil {
			continue
		}
		if minute, known := ns.home.History.Minute(); known && i == 0 {
			last = minute
		}
		records, err := ns.home.History.Read(ctx)
		if err != nil {
			return h, err
		}
		ns.points(records, last, func(name string, at int, value float32) {
			switch old := h.Series[name][at]; {
			case old == nil:
				h.Series[name][at] = &value
			case name == ns.oldest:
				*old = max(*old, value)
			default:
				*old += value
			}
		})
	}
	h.FromMS = (last - int64(h.Points) + 1) * h.StepMS
	return h, nil
}

// points sets the figures of each minute until last: rates are those of the minute before. In a minute without a record
// nothing changed since the one before it.
func (k *kind) points(records []space.Record, last int64, set func(name string, at int, value float32)) {
	width := len(k.rates) + len(k.gauges) + 1
	records = slices.DeleteFunc(records, func(r space.Record) bool { return len(r.Figures) != width }) // of another version
	for i := len(records) - 2; i >= 0; i-- {                                                           // a clock that went back recorded them again
		if records[i].Minute >= records[i+1].Minute {
			records = slices.Delete(records, i, i+1)
		}
	}
	for i, r := range records {
		until := last
		if i+1 < len(records) {
			until = min(last, records[i+1].Minute-1)
		}
		for minute := max(r.Minute, last-space.HistoryKept+1); minute <= until; minute++ {
			at := int(minute - last + space.HistoryKept - 1)
			for column, name := range k.rates {
				rise := r.Figures[column] - records[max(0, i-1)].Figures[column]
				switch {
				case minute > r.Minute:
					set(name, at, 0)
				case i > 0 && rise >= 0: // else the account of another store
					set(name, at, float32(rise)/perMinute)
				}
			}
			for column, name := range k.gauges {
				set(name, at, float32(r.Figures[len(k.rates)+column]))
			}
			switch oldest := r.Figures[width-1]; oldest {
			case notKnown:
			case 0:
				set(k.oldest, at, 0)
			default:
				set(k.oldest, at, float32(max(0, minute*perMinute*1000-oldest)))
			}
		}
	}
}
