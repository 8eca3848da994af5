package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ages are the two sides of a comparison for Prometheus: how old the oldest entry of a
// namespace is, and at which age it expires.
type ages struct {
	source Source
	sweep  *sweep
}

var (
	oldestEntry = accountMetric("oldest_age_seconds", "Age of the oldest entry when the sweep last read its partition: at most 400 partitions are read a second, all of them in turn.")
	maxAge      = prometheus.NewDesc("spillway_namespace_max_age_seconds", "Age at which an undelivered entry expires.", []string{"namespace"}, nil)
)

// Describe implements prometheus.Collector.
func (a ages) Describe(ch chan<- *prometheus.Desc) {
	ch <- oldestEntry
	ch <- maxAge
}

// Collect implements prometheus.Collector: it reads nothing.
func (a ages) Collect(ch chan<- prometheus.Metric) {
	store := a.source().Store
	if store == nil {
		return
	}
	for _, ns := range store.Namespaces() {
		ch <- prometheus.MustNewConstMetric(maxAge, prometheus.GaugeValue, ns.Policy.MaxAge.Seconds(), ns.Name)
		if age, known := a.sweep.oldestAge(ns.Name); known {
			ch <- prometheus.MustNewConstMetric(oldestEntry, prometheus.GaugeValue, age.Seconds(), ns.Name)
		}
	}
}

// oldestAge is not the age of now: an entry that was read a while ago may be delivered
// since, and grow no older. known is false before the first pass over all partitions.
func (s *sweep) oldestAge(namespace string) (age time.Duration, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[namespace]
	if sp == nil || sp.completed == 0 {
		return 0, false
	}
	return time.Duration(sp.oldestAge) * time.Millisecond, true
}
