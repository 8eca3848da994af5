package lmstfy

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/metric"
)

// Metrics are those of lmstfy, by its names, for dashboards and alerts made for it. They
// count what comes through this API. A nil Metrics keeps none.
type Metrics struct {
	latency                    *prometheus.HistogramVec // of answers 200, 201, 204
	codes, rateLimit           *prometheus.CounterVec
	jobs                       map[string]*prometheus.CounterVec // by what is done with them
	publishQueue, consumeQueue *prometheus.CounterVec
	elapsed, ackElapsed        *prometheus.HistogramVec
	commands                   *prometheus.CounterVec
	commandLatency             *prometheus.HistogramVec

	mu     sync.Mutex
	queues map[queueKey]bool // that have labels of their own
}

type queueKey struct{ namespace, queue string }

// maxQueueLabels bounds how many queues have metrics of their own. A client names queues.
const maxQueueLabels = 1000

// What labels say of queues beyond that, and of queues of replies, each of which has one job.
const (
	otherQueues = "other"
	replyQueues = "reply"
)

// jobCounters are the counters {pool} of jobs. full_batches has no counterpart: it stays 0.
var jobCounters = map[string]string{
	"publish_jobs":            "Jobs published.",
	"consume_jobs":            "Jobs claimed by requests for one queue.",
	"consume_multi_jobs":      "Jobs claimed by requests for several queues.",
	"pool_add_jobs":           "Jobs stored.",
	"pool_get_jobs":           "Jobs read, by claims and by id.",
	"pool_delete_jobs":        "Jobs acked.",
	"timer_add_jobs":          "Jobs published with a delay, and claimed.",
	"queue_direct_push_jobs":  "Jobs published without a delay.",
	"queue_pop_jobs":          "Jobs claimed.",
	"deadletter_respawn_jobs": "Dead letters made ready again.",
	"timer_full_batches":      "Always 0: due jobs are not moved in batches of a fixed size.",
}

// NewMetrics makes the metrics. gauges may be nil.
func NewMetrics(reg prometheus.Registerer, gauges *Gauges) *Metrics {
	m := &Metrics{jobs: map[string]*prometheus.CounterVec{}, queues: map[queueKey]bool{}}
	r := metric.New(reg, "infra_lmstfy_")
	// The buckets are lmstfy's, in milliseconds.
	requestBuckets, jobBuckets := prometheus.ExponentialBuckets(15, 2.5, 9),
		prometheus.ExponentialBuckets(15, 3.5, 7)
	m.latency = r.Histograms("http_latency_milliseconds",
		"Time to the answer of requests answered 200, 201 or 204.", requestBuckets, "pool",
		"namespace", "api", "method")
	m.codes = r.Counters("http_http_codes", "Requests answered, by status.", "pool", "namespace", "api",
		"method", "code")
	m.rateLimit = r.Counters("http_rate_limit", "Requests rejected by a limit of their token.", "pool",
		"namespace", "token", "action")
	for name, help := range jobCounters {
		m.jobs[name] = r.Counters("redis_"+name, help, "pool")
	}
	m.publishQueue = r.Counters("redis_publish_queue_jobs", "Jobs published.", "pool", "namespace", "queue")
	m.consumeQueue = r.Counters("redis_consume_queue_jobs", "Jobs claimed.", "pool", "namespace", "queue")
	m.elapsed = r.Histograms("redis_job_elapsed_ms", "Age of jobs when they are claimed.", jobBuckets, "pool",
		"namespace", "queue")
	m.ackElapsed = r.Histograms("redis_job_ack_elapsed_ms", "Age of jobs when they are acked.", jobBuckets,
		"pool", "namespace", "queue")
	m.commands = r.Counters("redis_qps", "Commands to Redis, pipelines as one.", "node", "command", "status")
	m.commandLatency = r.Histograms(
		"redis_latency",
		"Time of commands to Redis in milliseconds, pipelines as one.",
		jobBuckets,
		"node",
		"command",
		"status",
	)
	r.Must()
	if gauges != nil {
		reg.MustRegister(gauges)
	}
	return m
}

// request counts an answer. A name that is no namespace is no label: clients choose it.
func (m *Metrics) request(c *call, status int, took time.Duration) {
	if m == nil {
		return
	}
	namespace, api := "", ""
	if c.namespace != nil {
		namespace = c.namespace.Name
	}
	if c.route != nil {
		api = Prefix + ":namespace/:queue" + c.route.pattern
	}
	method := methodOf(c.Ctx)
	m.codes.WithLabelValues(c.pool, namespace, api, method, strconv.Itoa(status)).Inc()
	switch status {
	case fasthttp.StatusOK, fasthttp.StatusCreated, fasthttp.StatusNoContent:
		m.latency.WithLabelValues(c.pool, namespace, api, method).Observe(float64(took.Microseconds()) / 1000)
	}
}

// methodOf is the method of a request as a label: one that HTTP does not have is no label.
func methodOf(ctx *fasthttp.RequestCtx) string {
	method := string(ctx.Method())
	switch method {
	case "GET", "PUT", "DELETE", "HEAD", "POST", "OPTIONS", "PATCH":
		return method
	}
	return "OTHER"
}

// limited counts a request that a limit rejected, under the name of its token: the token
// itself is a secret.
func (m *Metrics) limited(c *call, action string) {
	if m != nil {
		m.rateLimit.WithLabelValues(c.pool, c.namespace.Name, c.key.Name(), action).Inc()
	}
}

func (m *Metrics) published(c *call, p *job.Publish) {
	if m == nil {
		return
	}
	n := float64(len(p.Messages))
	m.add(c, n, "publish_jobs", "pool_add_jobs")
	if p.Delay > 0 {
		m.add(c, n, "timer_add_jobs")
	} else {
		m.add(c, n, "queue_direct_push_jobs")
	}
	m.publishQueue.WithLabelValues(c.pool, c.namespace.Name, m.queueLabel(c, p.Queue)).Add(n)
}

func (m *Metrics) consumed(c *call, claimed []job.Job, queues int) {
	if m == nil {
		return
	}
	n := float64(len(claimed))
	m.add(c, n, "pool_get_jobs", "queue_pop_jobs", "timer_add_jobs")
	if queues > 1 {
		m.add(c, n, "consume_multi_jobs")
	} else {
		m.add(c, n, "consume_jobs")
	}
	for i := range claimed {
		j := &claimed[i]
		queue := m.queueLabel(c, j.Queue)
		m.consumeQueue.WithLabelValues(c.pool, c.namespace.Name, queue).Inc()
		m.elapsed.WithLabelValues(c.pool, c.namespace.Name, queue).Observe(float64(max(0, j.Now-j.Published)))
	}
}

func (m *Metrics) acked(c *call, a *job.Ack) {
	if m == nil || !a.Acked && !a.Deleted {
		return
	}
	m.add(c, 1, "pool_delete_jobs")
	age := time.Now().UnixMilli() - a.Ref.Seq/1000 // the sequence is the time of the publish, in µs
	m.ackElapsed.WithLabelValues(c.pool, c.namespace.Name,
		m.queueLabel(c, a.Queue)).Observe(float64(max(0, age)))
}

func (m *Metrics) add(c *call, n float64, names ...string) {
	if m == nil {
		return
	}
	for _, name := range names {
		m.jobs[name].WithLabelValues(c.pool).Add(n)
	}
}

// queueLabel is the label of a queue: its name, for the first thousand queues.
func (m *Metrics) queueLabel(c *call, queue string) string {
	if job.IsReplyQueue(queue) {
		return replyQueues
	}
	key := queueKey{c.namespace.Name, queue}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.queues[key] {
		if len(m.queues) >= maxQueueLabels {
			return otherQueues
		}
		m.queues[key] = true
	}
	return queue
}

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
