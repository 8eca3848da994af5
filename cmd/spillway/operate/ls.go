package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Ls lists partitions, or namespaces.
type Ls struct {
	command `embed:""`

	Namespace  string `arg:"" optional:"" help:"Namespace of the partitions; all without it."`
	Namespaces bool   `help:"List the namespaces instead."`
	Sort       string `enum:"trouble,age,depth,fill,in,out,evicted,expired,name" default:"trouble" help:"Order: trouble, what is evicted or expires and then the oldest; age, depth, fill, in, out, evicted or expired, the largest first; or name, from a to z."`
	Limit      int    `default:"20" help:"Partitions to list, at most 1000."`
	Filter     string `placeholder:"TEXT" help:"Only partitions whose name contains this."`
	Paused     bool   `help:"Only paused partitions, with those that have no entries, and paused queues."`
}

// Run prints the list.
func (c *Ls) Run(ctx context.Context, s Streams) error {
	if err := c.call("").within("limit", c.Limit, 1000).err; err != nil {
		return err
	}
	if c.Namespaces {
		return c.overview(ctx, s)
	}
	names, err := c.namespaces(ctx, c.Namespace)
	if err != nil {
		return err
	}
	query := partitionQuery{sort: c.Sort, limit: c.Limit, filter: c.Filter, paused: c.Paused}
	list, err := c.partitions(ctx, names, query, sweepWait)
	if c.Paused && c.Output != "json" && answered(err).code == string(wire.CodeNoSuchRoute) {
		return c.tellPaused(ctx, s, c.Namespace) // it has queues
	}
	if err != nil {
		return err
	}
	var pauses []admin.PausedPart
	if c.Paused {
		if pauses, err = c.pauses(ctx); err != nil {
			return err
		}
		if err := c.addPaused(ctx, pauses, names, query, list); err != nil {
			return err
		}
	}
	if c.Output == "json" {
		return printJSON(s.Out, list.json())
	}
	if len(list.rows) == 0 {
		_ = s.tell("%s", c.none())
	} else if err := partitionTable(list.rows, len(names) > 1).print(s.Out); err != nil {
		return err
	}
	if rest := list.total - len(list.rows); rest > 0 {
		_ = s.tell("%d more: see --limit, --filter and --sort", rest)
	}
	if !list.complete {
		_ = s.tell("the service has not looked at every partition yet; the list may lack some")
	}
	tellQueues(s, pauses, c.Namespace)
	return nil
}

// none says that no partition is listed.
func (c *Ls) none() string {
	if c.Paused {
		return "no partition is paused by itself; ls --namespaces says which namespaces are, spillway audit what was paused"
	}
	if c.Filter != "" {
		return "no such partition has entries"
	}
	return "no partition has entries"
}

func (c *Ls) overview(ctx context.Context, s Streams) error {
	var o admin.Overview
	raw, err := c.call("/api/v1/overview").of(c.Namespace).get(ctx, &o)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printParts(s.Out, raw, "namespaces", "queues")
	}
	_, err = fmt.Fprintln(s.Out, strings.Join(tablesOf(&o), "\n"))
	return err
}

// namespaces are those of the service, or the given one.
func (c *Connection) namespaces(ctx context.Context, given string) ([]string, error) {
	if given != "" {
		return []string{given}, validNamespace(given)
	}
	buffers, queues, err := c.kinds(ctx)
	if err == nil && len(buffers)+len(queues) == 0 {
		err = errors.New("the service has no namespaces")
	}
	return buffers, err
}

// kinds are the namespaces of the service, those of partitions and those of kind queue.
func (c *Connection) kinds(ctx context.Context) (buffers, queues []string, err error) {
	var info admin.Info
	_, err = c.call("/api/v1/info").get(ctx, &info)
	return info.Namespaces, info.Queues, err
}

// ofPartitions are the namespaces of partitions: the given one unless it is of kind queue, or all.
func (c *Connection) ofPartitions(ctx context.Context, given string) ([]string, error) {
	names, err := c.namespaces(ctx, given)
	if err != nil || given == "" {
		return names, err
	}
	if _, queues, err := c.kinds(ctx); err != nil || slices.Contains(queues, given) {
		return nil, err
	}
	return names, nil
}

func partitionTable(rows []partitionRow, named bool) *table {
	titles := []string{"PARTITION", ">DEPTH", ">FILL", ">OLDEST", ">IN/s", ">OUT/s", ">EVICTED/s",
		">EXPIRED/s", "STATE"}
	if named {
		titles = append([]string{"NAMESPACE"}, titles...)
	}
	t := newTable(titles...)
	for _, r := range rows {
		state := r.LastError
		switch {
		case r.empty:
			state = "paused, no entries"
		case r.Paused:
			state = "paused"
		case state != "" && r.Attempt > 0:
			state = fmt.Sprintf("attempt %d: %s", r.Attempt, state)
		}
		age := "-"
		if !r.empty {
			age = human.Since(r.OldestAgeMS)
		}
		cells := []string{
			r.Partition, digits(r.Depth), fmt.Sprintf("%.0f%%", r.Fill*100), age,
			rate(r.In), rate(r.Out), rate(r.EvictedRate), rate(r.ExpiredRate), state,
		}
		if named {
			cells = append([]string{r.Namespace}, cells...)
		}
		t.add(cells...)
	}
	return t
}

func (r *partitionRow) age() float64 {
	if r.empty {
		return -1
	}
	return float64(r.OldestAgeMS)
}

// orders are the values of --sort: the column of the API, and its figure, of which the largest is first;
// nil: names, from a to z.
var orders = []struct {
	name, column string
	figure       func(*partitionRow) float64
}{
	{"trouble", "trouble", func(r *partitionRow) float64 {
		if dropped := r.EvictedRate + r.ExpiredRate; dropped > 0 {
			return 1e15 + float64(dropped)
		}
		return r.age()
	}},
	{"age", "oldest_age", (*partitionRow).age},
	{"depth", "depth", func(r *partitionRow) float64 { return float64(r.Depth) }},
	{"fill", "fill", func(r *partitionRow) float64 { return r.Fill }},
	{"in", "in", func(r *partitionRow) float64 { return float64(r.In) }},
	{"out", "out", func(r *partitionRow) float64 { return float64(r.Out) }},
	{"evicted", "evicted", func(r *partitionRow) float64 { return float64(r.EvictedRate) }},
	{"expired", "expired", func(r *partitionRow) float64 { return float64(r.ExpiredRate) }},
	{"name", "partition", nil},
}

// orderOf is the index of an order, whose name is one of them.
func orderOf(name string) int {
	for i, o := range orders {
		if o.name == name {
			return i
		}
	}
	return len(orders) - 1
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

// of is the call of the table of a namespace.
func (q partitionQuery) of(c *Connection, namespace string) *call {
	by, order := orders[orderOf(q.sort)], "desc"
	if by.figure == nil {
		order = "asc"
	}
	call := c.namespace(namespace).at("/partitions").set("sort", by.column).set("order", order)
	return call.set("limit", digits(q.limit)).set("q", q.filter).on("paused", q.paused)
}

func (q partitionQuery) compare(a, b partitionRow) int {
	by := 0
	if figure := orders[orderOf(q.sort)].figure; figure != nil {
		by = cmp.Compare(figure(&b), figure(&a))
	}
	return cmp.Or(by, cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Namespace, b.Namespace))
}

type partitions struct {
	rows     []partitionRow
	total    int  // that match, in every namespace
	complete bool // the sweep has seen all
}

// json is complete where the sweep has seen all, and all are listed.
func (p *partitions) json() any {
	rows := make([]json.RawMessage, len(p.rows))
	for i, r := range p.rows {
		rows[i] = append(fmt.Appendf(nil, `{"namespace":%q,`, r.Namespace), r.raw[1:]...)
	}
	return map[string]any{"total": p.total, "complete": p.complete && len(rows) >= p.total, "partitions": rows}
}

// partitions merges the first rows of each namespace. If nobody watched the service
// lately it waits for the first sweep, at most the given time.
func (c *Connection) partitions(ctx context.Context, namespaces []string, q partitionQuery,
	wait time.Duration) (*partitions, error) {
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
				return nil, fmt.Errorf("%s: %s", c.Admin, notSpillway)
			}
			all.rows = append(all.rows, row)
		}
	}
	slices.SortStableFunc(all.rows, q.compare)
	all.rows = all.rows[:min(len(all.rows), q.limit)]
	return all, nil
}

// sweep reads one namespace, and again until the sweep is fresh or the time is over.
func (c *Connection) sweep(ctx context.Context, namespace string, q partitionQuery,
	deadline time.Time) (list partitionList, err error) {
	call := q.of(c, namespace)
	for {
		list = partitionList{}
		if _, err := call.get(ctx, &list); err != nil {
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
