package operate

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/ingest/wire"
)

// scope names a namespace, or a partition of it.
func scope(namespace, partition string) string {
	if partition == "" {
		return namespace
	}
	return namespace + "/" + partition
}

const noSuchPartition = string(wire.CodeNoSuchPartition) // of a partition without entries

// pauses are those of all namespaces, partitions and queues.
func (c *Connection) pauses(ctx context.Context) ([]admin.PausedPart, error) {
	var answer struct {
		Pauses []admin.PausedPart `json:"pauses"`
	}
	_, err := c.call("/api/v1/pauses").get(ctx, &answer)
	return answer.Pauses, err
}

// tellPaused says which queues are paused, of one namespace or of all.
func (c *Connection) tellPaused(ctx context.Context, s Streams, namespace string) error {
	pauses, err := c.pauses(ctx)
	tellQueues(s, pauses, namespace)
	return err
}

func tellQueues(s Streams, pauses []admin.PausedPart, namespace string) {
	for i := range pauses {
		if p := &pauses[i]; p.Queue != "" && (namespace == "" || namespace == p.Namespace) {
			_ = s.tell("queue %s is %s", scope(p.Namespace, p.Queue), escape(p.Text(time.Now().UnixMilli())))
		}
	}
}

// addPaused adds the paused partitions that the sweep does not know as such: those without
// entries, and those paused a moment ago. A list that is cut already is left as it is.
func (c *Connection) addPaused(ctx context.Context, pauses []admin.PausedPart, namespaces []string, q partitionQuery,
	list *partitions) error {
	if list.total > len(list.rows) {
		return nil
	}
	for _, p := range pauses {
		listed := slices.ContainsFunc(list.rows,
			func(r partitionRow) bool {
				return r.Namespace == p.Namespace &&
					r.Partition == p.Partition
			})
		if listed || p.Partition == "" || !slices.Contains(namespaces, p.Namespace) ||
			!strings.Contains(p.Partition, q.filter) {
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
func (c *Connection) partitionNow(ctx context.Context, namespace,
	name string) (row partitionRow, err error) {
	row.Namespace, row.Partition = namespace, name
	row.raw, err = c.partition(namespace, name).get(ctx, &row)
	if answered(err).code == noSuchPartition {
		row.empty = true
		row.raw, err = json.Marshal(map[string]any{"partition": name, "depth": 0, "paused": true})
	}
	row.Paused = true
	return row, err
}
