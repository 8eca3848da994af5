package admin

import (
	"slices"

	"github.com/spillway-io/spillway/partition/drops"
)

// Drop is a sample of entries that were not stored or not delivered.
type Drop struct {
	AtMS      int64  `json:"at_ms"`
	Namespace string `json:"namespace"`
	Partition string `json:"partition"`
	ID        string `json:"id,omitempty"`
	Reason    string `json:"reason"`
	AgeMS     int64  `json:"age_ms,omitempty"`
	Entries   int    `json:"entries"`
	Detail    string `json:"detail,omitempty"`
}

// DropTotal is the entries of one reason since this process started, and how many samples
// of them are kept.
type DropTotal struct {
	Total   int64 `json:"total"`
	Sampled int   `json:"sampled"`
}

// Drops is the answer about what was dropped, the newest first.
type Drops struct {
	Drops   []Drop               `json:"drops"`
	Reasons map[string]DropTotal `json:"reasons"`
}

func (s *Server) drops(r *request) (any, error) {
	q := r.URL.Query()
	query := drops.Query{Namespace: q.Get("namespace"), Reason: drops.Reason(q.Get("reason")), Partition: q.Get("partition"), ID: q.Get("id")}
	if query.Namespace != "" && r.view.Store.Namespace(query.Namespace) == nil {
		return nil, noNamespace(query.Namespace)
	}
	if query.Reason != "" && !slices.Contains(drops.Reasons(), query.Reason) {
		return nil, badRequest("reason: want one of " + joinReasons())
	}
	var err error
	if query.Limit, err = r.number("limit", 100, 1, 1000); err != nil {
		return nil, err
	}
	answer := Drops{Drops: []Drop{}, Reasons: map[string]DropTotal{}}
	for _, d := range r.view.Drops.Recent(query) {
		answer.Drops = append(answer.Drops, Drop{
			d.At.UnixMilli(), d.Namespace, d.Partition, d.ID, string(d.Reason), d.Age.Milliseconds(), d.Entries, d.Detail,
		})
	}
	for reason, t := range r.view.Drops.Totals(query.Namespace) {
		answer.Reasons[string(reason)] = DropTotal{t.Entries, t.Sampled}
	}
	return answer, nil
}

func joinReasons() (list string) {
	for i, reason := range drops.Reasons() {
		if i > 0 {
			list += ", "
		}
		list += string(reason)
	}
	return list
}
