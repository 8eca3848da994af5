package app

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/fallback"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/metric"
)

// tierMetrics are those of sinks with fallbacks.
type tierMetrics struct {
	taken *prometheus.CounterVec
	down  *prometheus.GaugeVec
}

func newTierMetrics(reg prometheus.Registerer) tierMetrics {
	r := metric.New(reg, "spillway_drain_fallback_", "namespace")
	m := tierMetrics{
		taken: r.Counters("entries_total",
			"Entries that a fallback sink took. Fallback 1 is the first in the list.", "fallback"),
		down: r.Gauges("sink_down",
			"1 while a sink with fallbacks is down and a later one takes its entries. Sink 0 is the first choice, 1 the first fallback.", "sink"),
	}
	r.Must()
	return m
}

// withFallbacks makes one sink of the tiers of a namespace.
func withFallbacks(c *config.Config, name string, tiers []fallback.Tier, m tierMetrics,
	log *zap.Logger) sink.Sink {
	m.taken.WithLabelValues(name, "1") // they show as 0 where there is none
	m.down.WithLabelValues(name, "0")
	if len(tiers) == 1 {
		return tiers[0].Sink
	}
	for i := range tiers {
		tiers[i].Down = m.down.WithLabelValues(name, strconv.Itoa(i))
		if i > 0 {
			tiers[i].Accepted = m.taken.WithLabelValues(name, strconv.Itoa(i))
		}
	}
	settings := c.Namespaces[name]
	return fallback.New(fallback.Config{
		MaxAge:      settings.MaxAge,
		BackoffBase: settings.BackoffBase,
		BackoffMax:  settings.BackoffMax,
		AtMostOnce:  settings.Policy().Delivery == partition.AtMostOnce,
	}, tiers, log.With(zap.String("namespace", name)))
}
