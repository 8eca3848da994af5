package lmstfy

import (
	"time"

	"github.com/spillway-io/spillway/partition/backend"
)

// Watch counts the commands that a back-end sends from now on.
func (m *Metrics) Watch(b *backend.Backend) {
	node := "embedded"
	if addrs := b.Addrs(); len(addrs) > 0 {
		node = addrs[0] // the first that is configured
	}
	b.Observe(func(command string, took time.Duration, failed bool) {
		status := "ok"
		if failed {
			status = "error"
		}
		m.commands.WithLabelValues(node, command, status).Inc()
		m.commandLatency.WithLabelValues(node, command, status).Observe(float64(took.Microseconds()) / 1000)
	})
}
