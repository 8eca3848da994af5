package operate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/ingest/wire"
)

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
