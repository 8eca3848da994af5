package lmstfy

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

const (
	// gaugesAge is how old the figures of a scrape may be: more scrapes cost Redis no more.
	gaugesAge = 15 * time.Second
	// gaugesTimeout bounds the reading; what is not read by then is missing.
	gaugesTimeout = 5 * time.Second
	countPage     = 64 // queues a call of the store
)

// A GaugedPool is what Gauges read of a pool.
type GaugedPool struct {
	Name    string
	Store   *job.Store
	Backend *backend.Backend
}

// Gauges are the sizes that lmstfy's metrics show. They are read when they are collected.
type Gauges struct {
	pools []GaugedPool
	log   *zap.Logger

	mu   sync.Mutex
	read time.Time
	last []prometheus.Metric
}

// NewGauges makes the gauges of pools.
func NewGauges(pools []GaugedPool, log *zap.Logger) *Gauges {
	return &Gauges{pools: pools, log: log}
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("infra_lmstfy_redis_"+name, help, labels, nil)
}

var (
	queueSizes = gauge("queue_sizes", "Ready jobs of a queue. At most 1000 queues have figures.",
		"pool", "namespace", "queue")
	deadletterSizes = gauge("deadletter_sizes", "Dead letters of a queue. At most 1000 queues have figures.",
		"pool", "namespace", "queue")
	timerSizes = gauge("timer_sizes", "Delayed and leased jobs.", "pool")
	timerDue   = prometheus.NewDesc("infra_lmstfy_redis_timer_due_jobs",
		"Delayed jobs that came due and leases that lapsed, as this process met them.", []string{"pool"}, nil)
)

// infoGauges are fields of Redis' INFO.
var infoGauges = map[string]*prometheus.Desc{
	"keys":              gauge("total_keys", "Keys in Redis.", "pool"),
	"expires":           gauge("total_ttl_keys", "Keys in Redis that expire.", "pool"),
	"maxmemory":         gauge("max_mem_bytes", "Memory that Redis may use; 0: no limit.", "pool"),
	"used_memory":       gauge("used_mem_bytes", "Memory that Redis uses.", "pool"),
	"connected_clients": gauge("connections", "Connections of Redis.", "pool"),
	"blocked_clients": gauge("blocking_connections",
		"Connections of Redis that wait in a blocking command. Spillway's never do.", "pool"),
}

// Describe sends the descriptions.
func (g *Gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queueSizes, deadletterSizes, timerSizes, timerDue} {
		ch <- d
	}
	for _, d := range infoGauges {
		ch <- d
	}
}

// Collect sends the figures, at most gaugesAge old.
func (g *Gauges) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.read.IsZero() || time.Since(g.read) >= gaugesAge {
		ctx, cancel := context.WithTimeout(context.Background(), gaugesTimeout)
		defer cancel()
		g.last = nil
		for _, p := range g.pools {
			g.readPool(ctx, p)
		}
		g.read = time.Now()
	}
	for _, m := range g.last {
		ch <- m
	}
}

func (g *Gauges) set(d *prometheus.Desc, kind prometheus.ValueType, value float64,
	labels ...string) {
	g.last = append(g.last, prometheus.MustNewConstMetric(d, kind, value, labels...))
}

func (g *Gauges) readPool(ctx context.Context, p GaugedPool) {
	g.set(timerDue, prometheus.CounterValue, float64(p.Store.Promoted()), p.Name)
	err := g.readInfo(ctx, p)
	if failed := g.readSizes(ctx, p); failed != nil {
		err = failed
	}
	if err != nil {
		g.log.Debug("metrics of lmstfy are incomplete", zap.String("pool", p.Name), zap.Error(err))
	}
}

// readSizes reads the sizes of the queues of a pool.
func (g *Gauges) readSizes(ctx context.Context, p GaugedPool) error {
	var pending int64
	left := maxQueueLabels
	for _, ns := range p.Store.Namespaces() {
		ledger, err := p.Store.Ledger(ctx, ns)
		if err != nil {
			return err
		}
		pending += ledger.Prepared + ledger.Delayed + ledger.Leased
		if err := g.readQueues(ctx, p, ns, &left); err != nil {
			return err
		}
	}
	g.set(timerSizes, prometheus.GaugeValue, float64(pending), p.Name)
	return nil
}

// readQueues reads the sizes of the queues of a namespace, as long as there are some left.
func (g *Gauges) readQueues(ctx context.Context, p GaugedPool, ns *job.Namespace, left *int) error {
	names, err := p.Store.Queues(ctx, ns)
	if err != nil {
		return err
	}
	for len(names) > 0 && *left > 0 {
		page := names[:min(len(names), countPage)]
		names = names[len(page):]
		counts, err := p.Store.CountAll(ctx, ns, page)
		if err != nil {
			return err
		}
		for i, queue := range page {
			if *left == 0 || job.IsReplyQueue(queue) {
				continue
			}
			*left--
			g.set(queueSizes, prometheus.GaugeValue, float64(counts[i].Ready), p.Name, ns.Name, queue)
			g.set(deadletterSizes, prometheus.GaugeValue, float64(counts[i].Dead), p.Name, ns.Name, queue)
		}
	}
	return nil
}

// readInfo reads the figures of a pool's Redis.
func (g *Gauges) readInfo(ctx context.Context, p GaugedPool) error {
	figures, err := p.Backend.Figures(ctx)
	if err != nil {
		return err
	}
	for field, d := range infoGauges {
		g.set(d, prometheus.GaugeValue, figures[field], p.Name)
	}
	return nil
}
