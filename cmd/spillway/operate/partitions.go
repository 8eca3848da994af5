package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// sortKeys are the values of the API for those of --sort.
var sortKeys = map[string]string{
	"age": "oldest_age", "depth": "depth", "fill": "fill", "in": "in", "out": "out", "evicted": "evicted", "expired": "expired", "name": "partition",
}

const (
	sweepWait  = 5 * time.Second // for a service that nobody watched; its sweep begins with the question
	sweepPoll  = 200 * time.Millisecond
	sweepStale = 3_000 // ms, of a sweep that takes no longer
)

type partitionQuery struct {
	sort   string // as in --sort
	limit  int
	filter string
	paused bool
}

func (q partitionQuery) values() url.Values {
	v := url.Values{"sort": {sortKeys[q.sort]}, "order": {"desc"}, "limit": {digits(q.limit)}}
	if q.sort == "name" {
		v.Set("order", "asc")
	}
	if q.filter != "" {
		v.Set("q", q.filter)
	}
	if q.paused {
		v.Set("paused", "1")
	}
	return v
}

func (q partitionQuery) compare(a, b partitionRow) int {
	age := func(r partitionRow) int64 {
		if r.OldestAgeMS == nil {
			return -1
		}
		return *r.OldestAgeMS
	}
	by := 0
	switch q.sort {
	case "age":
		by = cmp.Compare(age(b), age(a))
	case "depth":
		by = cmp.Compare(b.Depth, a.Depth)
	case "fill":
		by = cmp.Compare(b.Fill, a.Fill)
	case "in":
		by = cmp.Compare(b.InPerS, a.InPerS)
	case "out":
		by = cmp.Compare(b.OutPerS, a.OutPerS)
	case "evicted":
		by = cmp.Compare(b.EvictedPerS, a.EvictedPerS)
	case "expired":
		by = cmp.Compare(b.ExpiredPerS, a.ExpiredPerS)
	}
	return cmp.Or(by, cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Namespace, b.Namespace))
}

type partitions struct {
	rows     []partitionRow
	total    int  // that match, in every namespace
	complete bool // the sweep has seen all
}

func (p *partitions) json() any {
	rows := make([]json.RawMessage, len(p.rows))
	for i, r := range p.rows {
		rows[i] = append(fmt.Appendf(nil, `{"namespace":%q,`, r.Namespace), r.raw[1:]...)
	}
	return map[string]any{"total": p.total, "complete": p.complete, "partitions": rows}
}

// partitions merges the first rows of each namespace. If nobody watched the service
// lately it waits for the first sweep, at most the given time.
func (c *client) partitions(ctx context.Context, namespaces []string, q partitionQuery, wait time.Duration) (*partitions, error) {
	all := &partitions{complete: true}
	deadline := time.Now().Add(wait)
	for _, namespace := range namespaces {
		list, err := c.sweep(ctx, namespace, q, deadline)
		if err != nil {
			return nil, err
		}
		all.total += list.Total
		all.complete = all.complete && list.fresh()
		for _, raw := range list.Partitions {
			row := partitionRow{Namespace: namespace, raw: raw}
			if err := json.Unmarshal(raw, &row); err != nil || len(raw) < 3 {
				return nil, fmt.Errorf("%s: %s", c.base, notSpillway)
			}
			all.rows = append(all.rows, row)
		}
	}
	slices.SortStableFunc(all.rows, q.compare)
	all.rows = all.rows[:min(len(all.rows), q.limit)]
	return all, nil
}

// sweep reads one namespace, and again until the sweep is fresh or the time is over.
func (c *client) sweep(ctx context.Context, namespace string, q partitionQuery, deadline time.Time) (list partitionList, err error) {
	path, err := namespacePath(namespace)
	if err != nil {
		return list, err
	}
	for {
		list = partitionList{}
		if _, err := c.get(ctx, path+"/partitions", q.values(), &list); err != nil {
			return list, err
		}
		if list.fresh() || time.Until(deadline) < sweepPoll {
			return list, nil
		}
		select {
		case <-ctx.Done():
			return list, errors.New("interrupted")
		case <-time.After(sweepPoll):
		}
	}
}

// fresh: there was a whole sweep, not long ago.
func (l *partitionList) fresh() bool {
	at := l.Sweep.CompletedAtMS
	return at != nil && l.NowMS-*at < max(sweepStale, 3*l.Sweep.TookMS)
}
