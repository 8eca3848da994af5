package admin

import (
	"slices"
	"strings"

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

// Deliveries is the answer about what was delivered, the newest first.
type Deliveries struct {
	Deliveries []Drop `json:"deliveries"`
	DropTotal
}

// sampled says which samples.
type sampled struct {
	Namespace string `arg:"" optional:"" help:"The namespace; all without it."`
	ID        string `placeholder:"ID" help:"Where is my event? Its id, as the client sent it."`
	Partition string `placeholder:"NAME" help:"Only those of this partition."`
	Limit     int    `default:"100" bounds:"1..1000" help:"Samples to list, at most 1000."`
}

type dropsQuery struct {
	sampled
	Reason string `placeholder:"REASON" help:"Only those with this reason, such as evicted."`
}

func (s *Server) drops(r *request, q *dropsQuery) (Drops, error) {
	reason := drops.Reason(q.Reason)
	if reason != "" && !slices.Contains(drops.Reasons(), reason) {
		r.bad("reason: want one of %s", joinReasons())
	}
	list, totals := q.samples(r, reason)
	delete(totals, string(drops.Delivered))
	return Drops{list, totals}, r.err
}

func (s *Server) deliveries(r *request, q *sampled) (Deliveries, error) {
	list, totals := q.samples(r, drops.Delivered)
	return Deliveries{list, totals[string(drops.Delivered)]}, r.err
}

// samples are those that are selected, and the totals by reason.
func (q *sampled) samples(r *request, reason drops.Reason) ([]Drop, map[string]DropTotal) {
	if q.Namespace != "" {
		r.buffer(q.Namespace)
	}
	query := drops.Query{Namespace: q.Namespace, Reason: reason, Partition: q.Partition, ID: q.ID, Limit: q.Limit}
	list, totals := []Drop{}, map[string]DropTotal{}
	for _, d := range r.view.Drops.Recent(query) {
		list = append(list, Drop{
			d.At.UnixMilli(),
			d.Namespace,
			d.Partition,
			d.ID,
			string(d.Reason),
			d.Age.Milliseconds(),
			d.Entries,
			d.Detail,
		})
	}
	for reason, t := range r.view.Drops.Totals(query.Namespace) {
		totals[string(reason)] = DropTotal{t.Entries, t.Sampled}
	}
	return list, totals
}

func joinReasons() string {
	var list []string
	for _, reason := range drops.Reasons() {
		list = append(list, string(reason))
	}
	return strings.Join(list, ", ")
}
