package ingest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// metrics are the server's own; counters of closed sets are looked up once, not
// per request. Labels never hold what a client chose.
type metrics struct {
	requests     map[*route]map[int]prometheus.Counter
	rejections   map[wire.Code]prometheus.Counter
	entries      *prometheus.CounterVec
	losses       *prometheus.CounterVec
	unskewed     *prometheus.CounterVec
	discards     *prometheus.CounterVec
	limited      *prometheus.CounterVec
	namespaces   sync.Map // *partition.Namespace → *namespaceMetrics
	laneWait     prometheus.Histogram
	flushSeconds prometheus.Histogram
	flushEntries prometheus.Histogram
	panics       prometheus.Counter
	acceptErrors prometheus.Counter
	handshakes   prometheus.Counter
}

// namespaceMetrics are the counters of one namespace.
type namespaceMetrics struct {
	accepted, repeated, unskewed prometheus.Counter
	rejected, lost               map[wire.Reason]prometheus.Counter
}

// What an entry can end as, beside accepted and repeated.
var rejectionReasons = []wire.Reason{
	wire.ReasonTooLarge, wire.ReasonStale, wire.ReasonBadTS, wire.ReasonBadID, wire.ReasonBadPartition, wire.ReasonBadItem,
	wire.ReasonTooManyPartitions, wire.ReasonStoreUnavailable, wire.ReasonStoreFull, wire.ReasonUnknown,
}

func newMetrics(reg prometheus.Registerer, inflight, conns *atomic.Int64) (*metrics, error) {
	var failed error
	register := func(c prometheus.Collector) {
		if err := reg.Register(c); err != nil {
			failed = errors.Join(failed, fmt.Errorf("register metric: %w", err))
		}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_ingest_" + name, Help: help}, labels)
		register(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "spillway_ingest_" + name, Help: help, Buckets: buckets})
		register(h)
		return h
	}
	gauge := func(name, help string, value *atomic.Int64) {
		register(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "spillway_ingest_" + name, Help: help},
			func() float64 { return float64(value.Load()) }))
	}
	requests := counter("requests_total", "Requests by route and status; route none could not be routed.", "route", "code")
	rejections := counter("refusals_total", "Requests rejected as a whole, by public error code.", "error")
	m := &metrics{
		requests:   make(map[*route]map[int]prometheus.Counter),
		rejections: make(map[wire.Code]prometheus.Counter),
		entries: counter("entries_total",
			"Entries by what became of them: accepted, repeated (stored by an earlier request under the same idempotency key), or the reason of their rejection.",
			"namespace", "result"),
		losses:       counter("unacked_losses_total", "Entries answered 202 with ack=none and not stored after all, or not known to be.", "namespace", "reason"),
		unskewed:     counter("unskewed_total", "Entries stamped on arrival, because the device's clock could not be believed.", "namespace"),
		discards:     counter("client_discards_total", "Entries that clients threw away before sending, as they report it.", "namespace", "reason"),
		limited:      counter("token_limited_total", "Requests, or partitions of mixed ones, rejected by a limit of their token, by public error code.", "namespace", "token", "error"),
		laneWait:     histogram("lane_wait_seconds", "How long the oldest request of a flush waited for it.", prometheus.ExponentialBuckets(0.0001, 2, 17)),
		flushSeconds: histogram("flush_seconds", "Round trip of a flush to the store.", prometheus.ExponentialBuckets(0.0001, 2, 17)),
		flushEntries: histogram("flush_entries", "Entries in a flush.", prometheus.ExponentialBuckets(1, 2, 13)),
		panics:       counter("panics_total", "Panics caught: bugs.").WithLabelValues(),
		acceptErrors: counter("accept_errors_total", "Connections that could not be accepted, usually for want of file descriptors.").WithLabelValues(),
		handshakes:   counter("tls_handshake_errors_total", "Connections that ended before a TLS session was agreed on.").WithLabelValues(),
	}
	gauge("inflight_bytes", "Memory reserved by requests, from the first bytes of a body to the answer.", inflight)
	gauge("connections", "Open connections.", conns)

	statuses := map[int]bool{fasthttp.StatusOK: true, fasthttp.StatusAccepted: true, fasthttp.StatusNoContent: true}
	for code, f := range failures {
		m.rejections[code] = rejections.WithLabelValues(string(code))
		statuses[f.status] = true
	}
	count := func(r *route, name string) {
		m.requests[r] = make(map[int]prometheus.Counter)
		for status := range statuses {
			m.requests[r][status] = requests.WithLabelValues(name, strconv.Itoa(status))
		}
	}
	count(nil, "none")
	for i := range routes {
		count(&routes[i], routes[i].name)
	}
	return m, failed
}

// request counts an answered request; r is nil when no route was found.
func (m *metrics) request(r *route, status int) { m.requests[r][status].Inc() }

func (m *metrics) namespace(ns *partition.Namespace) *namespaceMetrics {
	if n, ok := m.namespaces.Load(ns); ok {
		return n.(*namespaceMetrics)
	}
	n := &namespaceMetrics{
		accepted: m.entries.WithLabelValues(ns.Name, "accepted"),
		repeated: m.entries.WithLabelValues(ns.Name, "repeated"),
		unskewed: m.unskewed.WithLabelValues(ns.Name),
		rejected: make(map[wire.Reason]prometheus.Counter),
		lost:     make(map[wire.Reason]prometheus.Counter),
	}
	for _, reason := range rejectionReasons {
		n.rejected[reason] = m.entries.WithLabelValues(ns.Name, string(reason))
		n.lost[reason] = m.losses.WithLabelValues(ns.Name, string(reason))
	}
	n.lost[reasonShuttingDown] = m.losses.WithLabelValues(ns.Name, string(reasonShuttingDown))
	m.namespaces.Store(ns, n)
	return n
}

// count accounts for every entry of a request that the lanes are done with.
func (s *Server) count(r *request) {
	m := s.metrics.namespace(r.namespace)
	for _, e := range r.answer.Results {
		switch {
		case e.Disposition == wire.Warning:
			m.unskewed.Inc()
			continue
		case r.noAck:
			m.lost[e.Reason].Inc()
		}
		m.rejected[e.Reason].Inc()
	}
	for i := range r.parts {
		switch p := &r.parts[i]; {
		case p.count == 0:
		case p.err != nil:
			_, reason := codesFor(p.err)
			m.rejected[reason].Add(float64(p.count))
			if r.noAck {
				m.lost[lossReason(p.err)].Add(float64(p.count))
			}
		case p.repeated:
			m.repeated.Add(float64(p.count))
		default:
			m.accepted.Add(float64(p.count))
		}
	}
}

// countDiscards counts what a client reports, once its request is in: it
// repeats the report with a request that was rejected.
func (s *Server) countDiscards(r *request) {
	for _, d := range r.discards {
		s.metrics.discards.WithLabelValues(r.namespace.Name, string(d.Reason)).Add(float64(d.Count))
	}
}
