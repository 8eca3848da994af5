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

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
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
	if c.Paused {
		return c.tellPaused(ctx, s, c.Namespace)
	}
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
	_, err = fmt.Fprintln(s.Out, strings.Join(tablesOf(raw), "\n"))
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

func partitionTable(rows []gjson.Result, named bool) *table {
	columns := "PARTITION ${partition}|>DEPTH ${depth}|>FILL ${fill_percent}|>OLDEST ${oldest_age_ms or -}|>IN/s ${in_per_s}|>OUT/s ${out_per_s}|" +
		">EVICTED/s ${evicted_per_s}|>EXPIRED/s ${expired_per_s}|STATE ${delivery_state or }"
	if named {
		columns = "NAMESPACE ${namespace}|" + columns
	}
	return names(nil).table(columns, rows)
}

// deliveryState is what holds up a partition.
func deliveryState(row gjson.Result) string {
	state := row.Get("last_error").String()
	switch attempt := row.Get("attempt").Int(); {
	case row.Get("paused").Bool() && row.Get("depth").Int() == 0: // a pause that waits for the first entry
		return "paused, no entries"
	case row.Get("paused").Bool():
		return "paused"
	case state != "" && attempt > 0:
		return fmt.Sprintf("attempt %d: %s", attempt, state)
	}
	return state
}

// orders are the values of --sort: the column of the API, and its figure, of which the largest is first;
// without one, names from a to z.
var orders = []struct{ name, column, figure string }{
	{"trouble", "trouble", "oldest_age_ms"},
	{"age", "oldest_age", "oldest_age_ms"},
	{"depth", "depth", "depth"},
	{"fill", "fill", "fill"},
	{"in", "in", "in_per_s"},
	{"out", "out", "out_per_s"},
	{"evicted", "evicted", "evicted_per_s"},
	{"expired", "expired", "expired_per_s"},
	{"name", "partition", ""},
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
	if by.figure == "" {
		order = "asc"
	}
	call := c.namespace(namespace).at("/partitions").set("sort", by.column).set("order", order)
	return call.set("limit", digits(q.limit)).set("q", q.filter).on("paused", q.paused)
}

func (q partitionQuery) compare(a, b gjson.Result) int {
	by := cmp.Compare(q.figure(b), q.figure(a))
	return cmp.Or(
		by,
		cmp.Compare(a.Get("partition").String(), b.Get("partition").String()),
		cmp.Compare(a.Get("namespace").String(), b.Get("namespace").String()),
	)
}

func (q partitionQuery) figure(row gjson.Result) float64 {
	if dropped := row.Get("evicted_per_s").Float() + row.Get("expired_per_s").Float(); q.sort == "trouble" && dropped > 0 {
		return 1e15 + dropped
	}
	return row.Get(orders[orderOf(q.sort)].figure).Float()
}

type partitions struct {
	rows     []gjson.Result // with their namespaces
	total    int            // that match, in every namespace
	complete bool           // the sweep has seen all
}

// json is complete where the sweep has seen all, and all are listed.
func (p *partitions) json() any {
	rows := make([]json.RawMessage, len(p.rows))
	for i, r := range p.rows {
		rows[i] = json.RawMessage(r.Raw)
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
		raw, fresh, err := c.sweep(ctx, namespace, q, deadline)
		if err != nil {
			return nil, err
		}
		list := gjson.ParseBytes(raw)
		all.total += int(list.Get("total").Int())
		all.complete = all.complete && fresh
		for _, row := range list.Get("partitions").Array() {
			all.rows = append(all.rows, gjson.Parse(fmt.Sprintf(`{"namespace":%q,%s`, namespace, row.Raw[1:])))
		}
	}
	slices.SortStableFunc(all.rows, q.compare)
	all.rows = all.rows[:min(len(all.rows), q.limit)]
	return all, nil
}

// sweep reads one namespace, and again until the sweep is fresh, that is of late, or the time is over.
func (c *Connection) sweep(ctx context.Context, namespace string, q partitionQuery,
	deadline time.Time) (raw json.RawMessage, fresh bool, err error) {
	call := q.of(c, namespace)
	for {
		var list admin.PartitionList
		if raw, err = call.get(ctx, &list); err != nil {
			return nil, false, err
		}
		at := list.Sweep.CompletedAtMS
		fresh = at != nil && list.NowMS-*at < max(sweepStale, 3*list.Sweep.TookMS)
		if fresh || time.Until(deadline) < sweepPoll {
			return raw, fresh, nil
		}
		select {
		case <-ctx.Done():
			return nil, false, errors.New("interrupted")
		case <-time.After(sweepPoll):
		}
	}
}

// scope names a namespace, or a partition of it.
func scope(namespace, partition string) string {
	if partition == "" {
		return namespace
	}
	return namespace + "/" + partition
}

// tellPaused says which queues are paused, of one namespace or of all.
func (c *Connection) tellPaused(ctx context.Context, s Streams, namespace string) error {
	var of admin.PausedParts
	_, err := c.call("/api/v1/pauses").get(ctx, &of)
	for _, p := range of.Pauses {
		if p.Queue != "" && (namespace == "" || namespace == p.Namespace) {
			_ = s.tell("queue %s is %s", scope(p.Namespace, p.Queue), escape(p.Text(time.Now().UnixMilli())))
		}
	}
	return err
}
