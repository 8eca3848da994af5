package app

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/fallback"
	"github.com/spillway-io/spillway/partition"
)

// keyOfTier is the setting that has the URL of a namespace's sink number i.
func keyOfTier(i int) string {
	if i == 0 {
		return "sink"
	}
	return "fallback"
}

func newFallbackCounter(reg prometheus.Registerer) *prometheus.CounterVec {
	taken := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "spillway", Subsystem: "drain", Name: "fallback_entries_total",
		Help: "Entries that a fallback sink took. Fallback 1 is the first in the list.",
	}, []string{"namespace", "fallback"})
	reg.MustRegister(taken)
	return taken
}

// withFallbacks makes one sink of the tiers of a namespace.
func (c *Config) withFallbacks(name string, tiers []fallback.Tier, taken *prometheus.CounterVec, log *zap.Logger) sink.Sink {
	taken.WithLabelValues(name, "1") // it shows as 0 where there is none
	if len(tiers) == 1 {
		return tiers[0].Sink
	}
	for i := range tiers[1:] {
		tiers[i+1].Accepted = taken.WithLabelValues(name, strconv.Itoa(i+1))
	}
	settings := c.Namespaces[name]
	return fallback.New(fallback.Config{
		MaxAge: settings.MaxAge, BackoffBase: settings.BackoffBase, BackoffMax: settings.BackoffMax,
		AtMostOnce: settings.Policy().Delivery == partition.AtMostOnce,
	}, tiers, log.With(zap.String("namespace", name)))
}

// redactSinks returns sink URLs, separated by spaces, fit for logs.
func redactSinks(urls string) string {
	list := strings.Fields(urls)
	for i := range list {
		list[i] = sink.Redact(list[i])
	}
	return strings.Join(list, " ")
}
