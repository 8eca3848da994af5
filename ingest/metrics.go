package ingest

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/metric"
)

// metrics are the server's own. Counters with a closed set of labels are looked up
// once, not per request. Labels never hold what a client chose.
type metrics struct {
	drops        *drops.Log // nil: none are kept
	requests     map[*route]map[int]prometheus.Counter
	mounted      *prometheus.CounterVec // the same, for rows that are made when they are first counted
	rejections   map[wire.Code]prometheus.Counter
	entries      *prometheus.CounterVec
	unskewed     *prometheus.CounterVec
	mistakes     *prometheus.CounterVec
	discards     *prometheus.CounterVec
	opaque       *prometheus.CounterVec
	limited      *prometheus.CounterVec
	namespaces   sync.Map // *partition.Namespace → *namespaceMetrics
	latency      prometheus.Histogram
	laneWait     prometheus.Histogram
	flushSeconds prometheus.Histogram
	flushEntries prometheus.Histogram
	panics       prometheus.Counter
	acceptErrors prometheus.Counter
	evictedConns prometheus.Counter
	handshakes   prometheus.Counter

	preflightsRejected prometheus.Counter
}

// namespaceMetrics are the counters of one namespace.
type namespaceMetrics struct {
	drops              *drops.Namespace // nil: none are kept
	accepted, repeated prometheus.Counter
	opaque             prometheus.Counter
	warned, rejected   map[wire.Reason]prometheus.Counter
}

// rejectionReasons are the results of an entry beside accepted and repeated.
var rejectionReasons = [...]wire.Reason{
	wire.ReasonTooLarge, wire.ReasonStale, wire.ReasonBadTS, wire.ReasonBadID, wire.ReasonBadPartition, wire.ReasonBadItem,
	wire.ReasonFiltered, wire.ReasonSampled, wire.ReasonEmptied, wire.ReasonUnreadable,
	wire.ReasonTooManyPartitions, wire.ReasonTooManyKeys, wire.ReasonStoreUnavailable, wire.ReasonStoreFull, wire.ReasonUnknown,
}

func newMetrics(reg prometheus.Registerer, log *drops.Log,
	inflight, conns, waiting func() int64) (*metrics, error) {
	r := metric.New(reg, "spillway_ingest_")
	requests := r.Counters(
		"requests_total",
		"Requests answered, by route and HTTP status. Route none: the request matched no route.",
		"route",
		"code",
	)
	rejections := r.Counters("rejections_total",
		"Requests rejected as a whole, by error code of the answer.", "error")
	m := &metrics{
		drops:      log,
		requests:   make(map[*route]map[int]prometheus.Counter),
		mounted:    requests,
		rejections: make(map[wire.Code]prometheus.Counter),
		entries: r.Counters(
			"entries_total",
			"Entries received, by result: accepted, repeated (an earlier request with the same idempotency key stored them), or the reason of the rejection.",
			"namespace",
			"result",
		),
		unskewed: r.Counters(
			"unskewed_total",
			"Entries stored with their time of arrival because the clock of their device is wrong.",
			"namespace",
		),
		mistakes: r.Counters("suspected_mistakes_total",
			"Requests stored as they are that were probably meant otherwise, by reason: "+
				"looks_compressed (no Content-Encoding) or looks_batched (NDJSON as one entry).", "namespace", "reason"),
		opaque: r.Counters("untransformed_entries_total",
			"Entries of a namespace with a transform that are no JSON object, and were stored as they are.", "namespace"),
		discards: r.Counters(
			"client_discards_total",
			"Entries that clients report as discarded before sending, by reason.",
			"namespace",
			"reason",
		),
		limited: r.Counters("token_limited_total",
			"Requests, or partitions of mixed requests, rejected by a limit of their token or write key, "+
				"by error code.", "namespace", "token", "error"),
		latency: r.Histogram(
			"request_seconds",
			"Time from the headers of a request that brings entries to its answer, of one request in 8. It "+
				"covers the arrival of the body and the flush.",
			prometheus.ExponentialBuckets(0.0001, 2, 17),
		),
		laneWait: r.Histogram("lane_wait_seconds",
			"Time that the oldest request of a flush waited for the flush to begin.",
			prometheus.ExponentialBuckets(0.0001, 2, 17)),
		flushSeconds: r.Histogram(
			"flush_seconds",
			"Duration of a flush, which is one round trip to the store.",
			prometheus.ExponentialBuckets(0.0001, 2, 17),
		),
		flushEntries: r.Histogram("flush_entries", "Number of entries in a flush.",
			prometheus.ExponentialBuckets(1, 2, 13)),
		panics: r.Counter("panics_total",
			"Panics recovered by the server. Each is a bug."),
		acceptErrors: r.Counter(
			"accept_errors_total",
			"Failed attempts to accept a connection, usually because no file descriptors are left.",
		),
		evictedConns: r.Counter("connections_evicted_total",
			"Connections on which no request was admitted, closed for a new one while max_conns were open."),
		handshakes: r.Counter("tls_handshake_errors_total",
			"Connections that ended before the TLS handshake was complete."),

		preflightsRejected: r.Counter("preflights_rejected_total",
			"CORS preflights of browsers for a page whose origin the namespace does not list "+
				"(on the routes of SDKs: no namespace that a key opens)."),
	}
	gauge := func(name, help string, value func() int64) {
		r.Read(name, help, func() float64 { return float64(value()) })
	}
	gauge("inflight_bytes", "Bytes of memory reserved by requests, from the first bytes of a body to the answer.", inflight)
	gauge("connections", "Connections that are open now.", conns)
	gauge("waiting_connections", "Those of claims, and of waits for the end of a job.", waiting)

	statuses := map[int]bool{fasthttp.StatusOK: true, fasthttp.StatusNoContent: true}
	for code, how := range wire.Responses {
		m.rejections[code] = rejections.WithLabelValues(string(code))
		statuses[how.Status] = true
	}
	count := func(row *route) {
		m.requests[row] = make(map[int]prometheus.Counter)
		for status := range statuses {
			m.requests[row][status] = requests.WithLabelValues(row.name, strconv.Itoa(status))
		}
	}
	count(&noRoute)
	for i := range routes {
		count(&routes[i])
	}
	return m, r.Err()
}

// latencyEvery is how many requests there are for each whose latency is observed: the
// clock and the histogram take 200 ns, a twentieth of a small request. The numbers of
// the connection and of the request on it choose it, so that neither long nor short
// connections are left out.
const latencyEvery = 8

// request counts an answered request.
func (m *metrics) request(ctx *fasthttp.RequestCtx, r *route) {
	answered := m.requests[r][ctx.Response.StatusCode()]
	if answered == nil { // of a mount, or a status that an adapter makes out of another
		name, chosen := ctx.UserValue(routeKey{}).(string)
		if !chosen {
			name = r.name
		}
		answered = m.mounted.WithLabelValues(name, strconv.Itoa(ctx.Response.StatusCode()))
	}
	answered.Inc()
	if r.method == fasthttp.MethodPost &&
		(ctx.ConnID()+ctx.ConnRequestNum())%latencyEvery == 0 {
		m.latency.Observe(time.Since(ctx.Time()).Seconds())
	}
}

func (m *metrics) namespace(ns *partition.Namespace) *namespaceMetrics {
	if n, ok := m.namespaces.Load(ns); ok {
		return n.(*namespaceMetrics)
	}
	n := &namespaceMetrics{
		drops:    m.drops.Of(ns.Name),
		accepted: m.entries.WithLabelValues(ns.Name, "accepted"),
		repeated: m.entries.WithLabelValues(ns.Name, "repeated"),
		warned: map[wire.Reason]prometheus.Counter{
			wire.ReasonUnskewed: m.unskewed.WithLabelValues(ns.Name),
			wire.ReasonLooksCompressed: m.mistakes.WithLabelValues(ns.Name,
				string(wire.ReasonLooksCompressed)),
			wire.ReasonLooksBatched: m.mistakes.WithLabelValues(ns.Name,
				string(wire.ReasonLooksBatched)),
		},
		opaque:   m.opaque.WithLabelValues(ns.Name),
		rejected: make(map[wire.Reason]prometheus.Counter),
	}
	for _, reason := range rejectionReasons {
		n.rejected[reason] = m.entries.WithLabelValues(ns.Name, string(reason))
	}
	m.namespaces.Store(ns, n)
	return n
}

// count counts every entry of a request that has all its results.
func (s *Server) count(r *request) {
	m := s.metrics.namespace(r.namespace)
	r.recordDrops(m.drops)
	for _, e := range r.answer.Results {
		if e.Disposition == wire.Warning {
			m.warned[e.Reason].Inc()
		} else {
			m.rejected[e.Reason].Inc()
		}
	}
	m.opaque.Add(float64(r.opaque))
	for i := range r.parts {
		m.countPart(&r.parts[i])
	}
}

// countPart counts the entries of a part that has its result.
func (m *namespaceMetrics) countPart(p *part) {
	switch {
	case p.count == 0:
	case p.err != nil:
		_, reason := codesFor(p.err)
		m.rejected[reason].Add(float64(p.count))
		p.recordDrop(m.drops)
	case p.repeated:
		m.repeated.Add(float64(p.count))
	default:
		m.accepted.Add(float64(p.count))
	}
}

// countDiscards counts what a client reports, unless its request is rejected: the
// client repeats the report with the request.
func (s *Server) countDiscards(r *request) {
	for _, d := range r.discards {
		s.metrics.discards.WithLabelValues(r.namespace.Name, string(d.Reason)).Add(float64(d.Count))
		r.recordDiscard(s.metrics.namespace(r.namespace).drops, d)
	}
}
