package drain

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// A deliveryPause tells the log and a metric while the delivery of a namespace is
// paused: from the first shard whose claims are answered so until the last one that is
// served again.
type deliveryPause struct {
	log   *zap.Logger // names the namespace and the sink
	gauge prometheus.Gauge

	mu     sync.Mutex
	shards int // that are paused
	since  time.Time
}

func (p *deliveryPause) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shards++; p.shards > 1 {
		return
	}
	p.since = time.Now()
	p.gauge.Set(1)
	p.log.Warn("delivery paused: entries wait, and expire at max_age, until the namespace is resumed")
}

func (p *deliveryPause) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shards--; p.shards > 0 {
		return
	}
	p.gauge.Set(0)
	p.log.Info("delivery resumed", zap.Duration("paused_for", time.Since(p.since)))
}

// paused is the pause after a claim that said that the namespace is paused. One claim a
// poll, of the partition that was answered so, finds out when that ends: every other
// claim would be answered alike.
func (c *claimer) paused(partition string) pause {
	if c.askPaused == "" {
		c.pausing.begin()
	}
	c.askPaused, c.ahead = partition, nil
	return pause{wait: c.poll}
}

func (c *claimer) resumed() {
	if c.askPaused != "" {
		c.askPaused = ""
		c.pausing.end()
	}
}
