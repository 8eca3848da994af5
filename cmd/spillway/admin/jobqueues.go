package admin

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// QueueList is a page of the queues of a namespace.
type QueueList struct {
	NowMS   int64      `json:"now_ms"`
	ReadMS  int64      `json:"read_at_ms"`
	Total   int        `json:"total"`    // queues that match
	LeftOut int        `json:"left_out"` // of them, beyond the first 1,024 by name
	Queues  []QueueRow `json:"queues"`
}

// QueueRow is the jobs of one queue. Where the shards hold too many jobs to tell those that
// are delayed from those that are leased, both are null and pending has their sum.
type QueueRow struct {
	Queue            string `json:"queue"`
	Ready            int64  `json:"ready"`
	Delayed          *int64 `json:"delayed"`
	Leased           *int64 `json:"leased"`
	Pending          int64  `json:"pending"` // delayed + leased
	Dead             int64  `json:"dead"`
	OldestReadyAgeMS *int64 `json:"oldest_ready_age_ms"` // since the publish of the first ready job; null: none is ready
}

func queueRow(name string, c job.Counts, now int64) QueueRow {
	row := QueueRow{Queue: name, Ready: c.Ready, Pending: c.Pending, Dead: c.Dead}
	if c.Delayed >= 0 {
		row.Delayed, row.Leased = &c.Delayed, &c.Leased
	}
	if c.OldestReady > 0 {
		age := max(0, now-c.OldestReady)
		row.OldestReadyAgeMS = &age
	}
	return row
}

const (
	maxListedQueues  = 1024
	maxSearch        = 255 // bytes
	maxForecastSteps = 288
)

func (s *Server) queueList(r *request) (any, error) {
	space, err := r.jobSpace()
	if err != nil {
		return nil, err
	}
	limit, err := r.number("limit", 100, 1, maxListedQueues)
	if err != nil {
		return nil, err
	}
	offset, err := r.number("offset", 0, 0, countedQueues)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	column, search := query.Get("sort"), query.Get("search")
	if column == "" {
		column = "queue"
	}
	if _, known := queueColumns[column]; !known {
		return nil, badRequest("sort: want queue, ready, delayed, leased, dead or oldest_ready_age")
	}
	descending := column != "queue"
	switch query.Get("order") {
	case "":
	case "asc":
		descending = false
	case "desc":
		descending = true
	default:
		return nil, badRequest("order: want asc or desc")
	}
	if len(search) > maxSearch {
		return nil, badRequest("search: want 255 bytes at most")
	}
	ctx, cancel := r.reading()
	defer cancel()
	t, err := s.jobBook.table(ctx, space, search)
	if err != nil {
		return nil, err
	}
	rows, now := t.sorted(column, descending), time.Now().UnixMilli()
	answer := QueueList{NowMS: now, ReadMS: t.at.UnixMilli(), Total: t.total, LeftOut: t.total - len(rows), Queues: []QueueRow{}}
	rows = rows[min(offset, len(rows)):]
	for _, row := range rows[:min(limit, len(rows))] {
		answer.Queues = append(answer.Queues, queueRow(row.name, row.Counts, now))
	}
	return answer, nil
}

// queueNow counts the jobs of one queue. A queue without jobs has none; it does not exist apart from them.
func (s *Server) queueNow(r *request) (any, error) {
	space, queue, err := r.queue()
	if err != nil {
		return nil, err
	}
	counts, err := s.count(r, space, queue)
	if err != nil {
		return nil, err
	}
	return queueRow(queue, counts, time.Now().UnixMilli()), nil
}

func (s *Server) count(r *request, space jobSpace, queue string) (counts job.Counts, err error) {
	ctx, cancel := r.reading()
	defer cancel()
	if waited := s.jobBook.counts.Do(ctx, func(context.Context) {
		var list []job.Counts
		if list, err = space.store.CountAll(ctx, space.ns, []string{queue}); err == nil {
			counts = list[0]
		}
	}); waited != nil {
		return counts, waited
	}
	return counts, err
}

// Forecast is how many delayed jobs come due when.
type Forecast struct {
	NowMS  int64   `json:"now_ms"`
	StepMS int64   `json:"step_ms"`
	Due    []int64 `json:"due"` // in each step from now on; the first has those that are due already, too
}

// forecast is that of a queue, or of the namespace where the path has none.
func (s *Server) forecast(r *request) (any, error) {
	space, err := r.jobSpace()
	queue := ""
	if err == nil && r.PathValue("queue") != "" {
		space, queue, err = r.queue()
	}
	if err != nil {
		return nil, err
	}
	step, err := r.number("step_ms", 600_000, 1000, int(365*24*time.Hour/time.Millisecond))
	if err != nil {
		return nil, err
	}
	steps, err := r.number("steps", 144, 1, maxForecastSteps)
	if err != nil {
		return nil, err
	}
	answer := Forecast{StepMS: int64(step)}
	ctx, cancel := r.reading()
	defer cancel()
	if waited := s.jobBook.counts.Do(ctx, func(context.Context) {
		answer.Due, err = space.store.Forecast(ctx, space.ns, queue, time.Duration(step)*time.Millisecond, steps)
	}); waited != nil {
		return nil, waited
	}
	answer.NowMS = time.Now().UnixMilli()
	return answer, err
}
