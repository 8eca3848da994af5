package operate

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

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
