package admin

import (
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// QueueOverview is one namespace of kind queue in the overview. All of it is the store's, but
// the sinks are of this process.
type QueueOverview struct {
	Namespace        string             `json:"namespace"`
	Ledger           job.Ledger         `json:"ledger"`
	Jobs             int64              `json:"jobs"` // ready, delayed, leased and dead
	MaxJobs          int64              `json:"max_jobs"`
	Queues           *int64             `json:"queues"`              // null: not counted yet
	OldestReadyAgeMS *int64             `json:"oldest_ready_age_ms"` // null: no job is ready, or not counted yet
	ReadAtMS         int64              `json:"read_at_ms"`          // 0: not read yet
	Rates            map[string]float32 `json:"rates"`               // a second, by outcome; empty where not known
	Sinks            []Sink             `json:"sinks"`               // that its jobs are pushed to
}

// overview is what is known of the namespaces of kind queue, of all or of one.
func (b *jobBook) overview(v View, only string, now time.Time) []QueueOverview {
	list, sinks := []QueueOverview{}, v.pushSinks()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, store := range v.Jobs {
		for _, ns := range store.Namespaces() {
			if only != "" && ns.Name != only {
				continue
			}
			q := QueueOverview{Namespace: ns.Name, MaxJobs: ns.Policy.MaxJobs, Rates: map[string]float32{}, Sinks: append([]Sink{}, sinks[ns.Name]...)}
			if f := b.spaces[ns.Name]; f != nil {
				f.fill(&q, now)
			}
			list = append(list, q)
		}
	}
	return list
}

func (f *jobFigures) fill(q *QueueOverview, now time.Time) {
	if f.queues >= 0 {
		queues := int64(f.queues)
		q.Queues = &queues
	}
	if len(f.recent) == 0 {
		return
	}
	first, last := f.recent[0], f.recent[len(f.recent)-1]
	q.Ledger, q.ReadAtMS = last.Ledger, last.at.UnixMilli()
	q.Jobs = last.Ready + last.Delayed + last.Leased + last.Dead
	if f.oldest > 0 && last.Ready > 0 {
		age := max(0, now.UnixMilli()-f.oldest)
		q.OldestReadyAgeMS = &age
	}
	if seconds := last.at.Sub(first.at).Seconds(); seconds > 0 && now.Sub(last.at) < recentFor {
		before := jobOutcomes(first.Ledger)
		for outcome, n := range jobOutcomes(last.Ledger) {
			q.Rates[outcome] = float32(float64(max(0, n-before[outcome])) / seconds)
		}
	}
}
