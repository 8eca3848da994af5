package drain

import "github.com/prometheus/client_golang/prometheus"

// ranks shows how the shards of each namespace are shared out among the processes that drain it:
// see partition.Namespace.Rank.
type ranks []*namespaceDrain

var (
	drainShards = prometheus.NewDesc("spillway_drain_shards",
		"Shards by the place of this process among those that drain them: first, which works alone while it keeps up, second, or later.",
		[]string{"namespace", "place"}, nil)
	drainProcesses = prometheus.NewDesc("spillway_drain_processes",
		"Live processes that drain the namespace, as this one read them last; 0 while it cannot.", []string{"namespace"}, nil)
)

// places are the values of the label place.
var places = [...]string{"first", "second", "later"}

// Describe implements prometheus.Collector.
func (ranks) Describe(ch chan<- *prometheus.Desc) {
	ch <- drainShards
	ch <- drainProcesses
}

// Collect implements prometheus.Collector: it reads nothing.
func (r ranks) Collect(ch chan<- prometheus.Metric) {
	for _, n := range r {
		var shards [len(places)]int
		for shard := range n.claimers {
			shards[min(n.ns.Rank(shard), len(places)-1)]++
		}
		for i, place := range places {
			ch <- prometheus.MustNewConstMetric(drainShards, prometheus.GaugeValue, float64(shards[i]), n.name, place)
		}
		ch <- prometheus.MustNewConstMetric(drainProcesses, prometheus.GaugeValue, float64(n.ns.Drainers()), n.name)
	}
}
