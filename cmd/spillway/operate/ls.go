package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// Ls lists partitions, or namespaces.
type Ls struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace  string `arg:"" optional:"" help:"Namespace of the partitions; all without it."`
	Namespaces bool   `help:"List the namespaces instead."`
	Sort       string `enum:"age,depth,fill,in,out,evicted,expired,name" default:"age" help:"Order: age, depth, fill, in, out, evicted or expired, the largest first; or name, from a to z."`
	Limit      int    `default:"20" help:"Partitions to list, at most 1000."`
	Filter     string `placeholder:"TEXT" help:"Only partitions whose name contains this."`
	Paused     bool   `help:"Only paused partitions, with those that have no entries."`
}

// Run prints the list.
func (c *Ls) Run(ctx context.Context, s Streams) error {
	if err := within("limit", c.Limit, 1000); err != nil {
		return err
	}
	api, err := c.open()
	if err != nil {
		return err
	}
	if c.Namespaces {
		return c.namespaces(ctx, api, s)
	}
	names, err := api.namespaces(ctx, c.Namespace)
	if err != nil {
		return err
	}
	query := partitionQuery{sort: c.Sort, limit: c.Limit, filter: c.Filter, paused: c.Paused}
	list, err := api.partitions(ctx, names, query, sweepWait)
	if err != nil {
		return err
	}
	if c.Paused {
		if err := api.addPaused(ctx, names, query, list); err != nil {
			return err
		}
	}
	if c.Output == "json" {
		return printJSON(s.Out, list.json())
	}
	if len(list.rows) == 0 {
		fmt.Fprintln(s.Err, c.none())
	} else if err := partitionTable(list.rows, len(names) > 1).print(s.Out); err != nil {
		return err
	}
	if rest := list.total - len(list.rows); rest > 0 {
		fmt.Fprintf(s.Err, "%d more: see --limit, --filter and --sort\n", rest)
	}
	if !list.complete {
		fmt.Fprintln(s.Err, "the service has not looked at every partition yet; the list may lack some")
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

func (c *Ls) namespaces(ctx context.Context, api *client, s Streams) error {
	var o overview
	query, err := namespaceQuery(c.Namespace)
	if err != nil {
		return err
	}
	raw, err := api.get(ctx, "/api/v1/overview", query, &o)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		var all struct {
			Namespaces json.RawMessage `json:"namespaces"`
			Queues     json.RawMessage `json:"queues,omitempty"`
		}
		if err := json.Unmarshal(raw, &all); err != nil {
			return err
		}
		return printJSON(s.Out, all)
	}
	return o.printTables(s.Out)
}

// printTables prints a table of the namespaces of each kind that there are.
func (o *overview) printTables(w io.Writer) error {
	_, err := io.WriteString(w, strings.Join(o.tables(), "\n")+"\n")
	return err
}

func (o *overview) tables() (lines []string) {
	if len(o.Namespaces) > 0 || len(o.Queues) == 0 {
		lines = namespaceTable(o).lines()
	}
	if len(o.Queues) > 0 {
		if lines != nil {
			lines = append(lines, "")
		}
		lines = append(lines, jobsTable(o).lines()...)
	}
	return lines
}

// namespaces are those of the service, or the given one.
func (c *client) namespaces(ctx context.Context, given string) ([]string, error) {
	if given != "" {
		_, err := namespacePath(given)
		return []string{given}, err
	}
	buffers, queues, err := c.kinds(ctx)
	if err == nil && len(buffers)+len(queues) == 0 {
		err = errors.New("the service has no namespaces")
	}
	return buffers, err
}

// kinds are the namespaces of the service, those of partitions and those of kind queue.
func (c *client) kinds(ctx context.Context) (buffers, queues []string, err error) {
	var info admin.Info
	_, err = c.get(ctx, "/api/v1/info", nil, &info)
	return info.Namespaces, info.Queues, err
}

// ofPartitions are the namespaces of partitions: the given one unless it is of kind queue, or all.
func (c *client) ofPartitions(ctx context.Context, given string) ([]string, error) {
	if given == "" {
		return c.namespaces(ctx, "")
	}
	if _, err := namespacePath(given); err != nil {
		return nil, err
	}
	if _, queues, err := c.kinds(ctx); err != nil || slices.Contains(queues, given) {
		return nil, err
	}
	return []string{given}, nil
}

func partitionTable(rows []partitionRow, named bool) *table {
	titles := []string{"PARTITION", ">DEPTH", ">FILL", ">OLDEST", ">IN/s", ">OUT/s", ">EVICTED/s", ">EXPIRED/s", "STATE"}
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
		cells := []string{
			r.Partition, digits(r.Depth), fmt.Sprintf("%.0f%%", r.Fill*100), sinceOr(r.OldestAgeMS, "-"),
			rate(r.InPerS), rate(r.OutPerS), rate(r.EvictedPerS), rate(r.ExpiredPerS), state,
		}
		if named {
			cells = append([]string{r.Namespace}, cells...)
		}
		t.add(cells...)
	}
	return t
}

func namespaceTable(o *overview) *table {
	t := newTable("NAMESPACE", ">ACCEPTED/s", ">DELIVERED/s", ">DROPPED/s", ">DROPPED", ">REFUSED/s", ">BACKLOG", ">OLDEST", ">LIMIT", ">PARTITIONS", ">DEAD LETTERS", "SINK")
	for _, n := range o.Namespaces {
		figure := o.figure(n.ReadAtMS)
		t.add(n.Namespace, figure(n.Rates.Accepted), figure(n.Rates.Delivered), figure(n.Rates.dropped()),
			digits(n.Ledger.Evicted+n.Ledger.Expired+n.Ledger.Dead+n.Ledger.Lost), rate(n.Rates.Rejected),
			digits(n.Buffered), sinceOr(n.OldestAgeMS, "-"), since(n.MaxAgeMS), digits(n.Partitions),
			digits(n.DeadLetters), n.sinkText())
	}
	return t
}

// figure writes a rate of a namespace whose account was read then, and "?" where it is not known.
func (o *overview) figure(readAt int64) func(float64) string {
	if !o.Store.Ready || stale(readAt, o.NowMS) {
		return func(float64) string { return "?" }
	}
	return rate
}

// sinkText is the state of the worst sink, or of a pause.
func (n *namespaceState) sinkText() string {
	if n.Paused != nil {
		return "paused"
	}
	return worstState(n.Sinks)
}

// worstState is the state of a sink that fails, or else of any; "-" without sinks.
func worstState(sinks []admin.Sink) string {
	if len(sinks) == 0 {
		return "-"
	}
	for _, s := range sinks {
		if fails(&s) {
			return s.State
		}
	}
	return sinks[0].State
}
