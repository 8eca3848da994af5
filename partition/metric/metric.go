// Package metric makes the metrics of a component: their names begin alike, and they are registered
// as they are made.
package metric

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// A Maker makes metrics.
type Maker struct {
	reg    prometheus.Registerer
	prefix string
	labels []string
	err    error
}

// New makes a Maker of metrics whose names begin with a prefix. Those that come in sets have the
// labels, and their own behind them.
func New(reg prometheus.Registerer, prefix string, labels ...string) *Maker {
	return &Maker{reg: reg, prefix: prefix, labels: labels}
}

// Err is why some are not registered: their names are taken.
func (m *Maker) Err() error { return m.err }

// Must panics where there is an Err.
func (m *Maker) Must() {
	if m.err != nil {
		panic(m.err)
	}
}

func register[C prometheus.Collector](m *Maker, c C) C {
	if err := m.reg.Register(c); err != nil {
		m.err = errors.Join(m.err, fmt.Errorf("register metric: %w", err))
	}
	return c
}

func (m *Maker) opts(name, help string) prometheus.Opts {
	return prometheus.Opts{Name: m.prefix + name, Help: help}
}

func (m *Maker) all(labels []string) []string { return slices.Concat(m.labels, labels) }

// Counter makes a counter.
func (m *Maker) Counter(name, help string) prometheus.Counter {
	return register(m, prometheus.NewCounter(prometheus.CounterOpts(m.opts(name, help))))
}

// Counters makes a set of counters.
func (m *Maker) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(m, prometheus.NewCounterVec(prometheus.CounterOpts(m.opts(name, help)), m.all(labels)))
}

// Gauge makes a gauge.
func (m *Maker) Gauge(name, help string) prometheus.Gauge {
	return register(m, prometheus.NewGauge(prometheus.GaugeOpts(m.opts(name, help))))
}

// Gauges makes a set of gauges.
func (m *Maker) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(m, prometheus.NewGaugeVec(prometheus.GaugeOpts(m.opts(name, help)), m.all(labels)))
}

// Read makes a gauge that is read at each scrape.
func (m *Maker) Read(name, help string, value func() float64) {
	register(m, prometheus.NewGaugeFunc(prometheus.GaugeOpts(m.opts(name, help)), value))
}

// Histogram makes a histogram.
func (m *Maker) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(m, prometheus.NewHistogram(m.histogram(name, help, buckets)))
}

// Histograms makes a set of histograms.
func (m *Maker) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(m, prometheus.NewHistogramVec(m.histogram(name, help, buckets), m.all(labels)))
}

func (m *Maker) histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: m.prefix + name, Help: help, Buckets: buckets}
}

// A Figure is a metric whose values somebody keeps who is asked for them at each scrape.
type Figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// GaugeOf makes the figure of a gauge.
func GaugeOf(name, help string, labels ...string) Figure {
	return Figure{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// CounterOf makes the figure of a counter.
func CounterOf(name, help string, labels ...string) Figure {
	return Figure{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// A Send takes a value of a figure.
type Send func(f Figure, value float64, labels ...string)

// Figures are those that one function sends.
type Figures struct {
	All  []Figure
	Read func(Send)
}

// Describe implements prometheus.Collector.
func (f Figures) Describe(ch chan<- *prometheus.Desc) {
	for _, x := range f.All {
		ch <- x.desc
	}
}

// Collect implements prometheus.Collector.
func (f Figures) Collect(ch chan<- prometheus.Metric) {
	f.Read(func(x Figure, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(x.desc, x.kind, value, labels...)
	})
}
