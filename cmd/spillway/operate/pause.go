package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Pause stops the delivery of a namespace or partition.
type Pause struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Partition string `arg:"" optional:"" help:"Only this partition, which need not have entries yet."`
	Reason    string `placeholder:"TEXT" help:"Why, for those who see the pause later."`
}

// Resume ends a pause.
type Resume struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Partition string `arg:"" optional:"" help:"The partition, if only that is paused."`
}

// Run pauses.
func (c *Pause) Run(ctx context.Context, s Streams) error {
	return setPause(ctx, s, &c.Connection, c.Output, c.Namespace, c.Partition, "/pause", map[string]string{"reason": c.Reason})
}

// Run resumes.
func (c *Resume) Run(ctx context.Context, s Streams) error {
	return setPause(ctx, s, &c.Connection, c.Output, c.Namespace, c.Partition, "/resume", map[string]string{})
}

func setPause(ctx context.Context, s Streams, c *Connection, form, namespace, partition, act string, body any) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	path, err := partitionPath(namespace, partition)
	if err != nil {
		return err
	}
	var answer struct {
		Paused *admin.Pause `json:"paused"`
	}
	raw, err := api.post(ctx, path+act, body, &answer)
	if err != nil {
		return err
	}
	if form == "json" {
		return printJSON(s.Out, json.RawMessage(raw))
	}
	what := scope(namespace, partition)
	if answer.Paused == nil {
		_, err = fmt.Fprintf(s.Out, "%s: delivery is not paused\n", what)
		return err
	}
	if _, err = fmt.Fprintf(s.Out, "%s: delivery is %s\n", what, pauseText(answer.Paused, time.Now().UnixMilli())); err != nil || partition == "" {
		return err
	}
	// It may be a misspelt name. The pause is done, so no other failure is one of it.
	var now struct{}
	_, err = api.get(ctx, path, nil, &now)
	if failed := new(apiError); errors.As(err, &failed) && failed.code == noSuchPartition {
		_, err = fmt.Fprintln(s.Out, "it has no entries now; a pause waits for its first one")
		return err
	}
	return nil
}

// scope names a namespace, or a partition of it.
func scope(namespace, partition string) string {
	if partition == "" {
		return namespace
	}
	return namespace + "/" + partition
}

const noSuchPartition = string(wire.CodeNoSuchPartition) // of a partition without entries

// addPaused adds the paused partitions that the sweep does not know as such: those without
// entries, and those paused a moment ago. A list that is cut already is left as it is.
func (c *client) addPaused(ctx context.Context, namespaces []string, q partitionQuery, list *partitions) error {
	if list.total > len(list.rows) {
		return nil
	}
	var answer struct {
		Pauses []admin.PausedPart `json:"pauses"`
	}
	if _, err := c.get(ctx, "/api/v1/pauses", nil, &answer); err != nil {
		return err
	}
	for _, p := range answer.Pauses {
		listed := slices.ContainsFunc(list.rows, func(r partitionRow) bool { return r.Namespace == p.Namespace && r.Partition == p.Partition })
		if listed || p.Partition == "" || !slices.Contains(namespaces, p.Namespace) || !strings.Contains(p.Partition, q.filter) {
			continue
		}
		list.total++
		if len(list.rows) == q.limit {
			continue
		}
		row, err := c.partitionNow(ctx, p.Namespace, p.Partition)
		if err != nil {
			return err
		}
		list.rows = append(list.rows, row)
	}
	slices.SortStableFunc(list.rows, q.compare)
	return nil
}

// partitionNow is the row of a paused partition, which may have no entries.
func (c *client) partitionNow(ctx context.Context, namespace, name string) (partitionRow, error) {
	row := partitionRow{Namespace: namespace}
	row.Partition = name
	path, err := partitionPath(namespace, name)
	if err != nil {
		return row, err
	}
	row.raw, err = c.get(ctx, path, nil, &row)
	if failed := new(apiError); errors.As(err, &failed) && failed.code == noSuchPartition {
		row.empty = true
		row.raw, err = json.Marshal(map[string]any{"partition": name, "depth": 0, "paused": true})
	}
	row.Paused = true
	return row, err
}
