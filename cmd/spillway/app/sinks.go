package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/process"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/branches"
	"github.com/spillway-io/spillway/drain/sink/clickhouse"
	"github.com/spillway-io/spillway/drain/sink/command"
	"github.com/spillway-io/spillway/drain/sink/elasticsearch"
	"github.com/spillway-io/spillway/drain/sink/fallback"
	"github.com/spillway-io/spillway/drain/sink/file"
	"github.com/spillway-io/spillway/drain/sink/kafka"
	"github.com/spillway-io/spillway/drain/sink/nats"
	"github.com/spillway-io/spillway/drain/sink/null"
	"github.com/spillway-io/spillway/drain/sink/postgres"
	"github.com/spillway-io/spillway/drain/sink/redisstream"
	"github.com/spillway-io/spillway/drain/sink/s3"
	"github.com/spillway-io/spillway/drain/sink/stdout"
	"github.com/spillway-io/spillway/drain/sink/webhook"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/metric"
)

// A SinkType is a kind of sink that URLs of the configuration can name.
type SinkType struct {
	Form    string      // of its URL, as the example configuration shows it, such as "null:"
	Schemes []string    // of its URL, 1 or more, none of them another type's
	Open    sink.Opener // makes a sink of the URL
}

// sinkTypes lists every sink of this binary.
var sinkTypes = []SinkType{
	{"stdout:", []string{"stdout"}, stdout.New},
	{"null:", []string{"null"}, null.New},
	{"file:///path.ndjson[?max_size=100MB&rotate_every=1h&compress=gzip&keep=10]",
		[]string{"file"}, file.New},
	{"http(s)://host/path[?gzip=1&signing_secret=SECRET&header.NAME=VALUE]",
		[]string{"http", "https"}, webhook.New},
	{"exec:", []string{"exec"}, command.New(nil, nil)}, // newSinks gives it the namespace's command
	{"redis-stream://host:port[/db][?stream=NAME&max_len=100000]", []string{"redis-stream"},
		redisstream.New},
	{"clickhouse://host:8123/database?table=NAME", []string{"clickhouse"}, clickhouse.New},
	{"postgres://user@host/database?table=NAME", []string{"postgres"}, postgres.New},
	{"kafka://host:port/topic[?compression=NAME&sasl=NAME&tls=1]", []string{"kafka"}, kafka.New},
	{"nats://host:port/subject[?stream=NAME&tls=1]", []string{"nats"}, nats.New},
	{"s3://KEY:SECRET@host/bucket/prefix[?region=NAME&linger=10s]", []string{"s3"}, s3.New},
	{"elasticsearch://host:9200/index[?tls=1]", []string{"elasticsearch"}, elasticsearch.New},
	{"namespaces://a,b", []string{"namespaces"}, branches.New},
}

// addSinks adds the sinks of another module to those of this binary.
func addSinks(more []SinkType) error {
	known := sinkRegistry()
	for _, t := range more {
		if t.Form == "" || len(t.Schemes) == 0 || t.Open == nil {
			return fmt.Errorf("sink type %q lacks its form, its schemes or its opener", t.Form)
		}
		for _, scheme := range t.Schemes {
			if known[scheme] != nil {
				return fmt.Errorf("sink type %q: another one has the scheme %s: already", t.Form, scheme)
			}
			known[scheme] = t.Open
		}
	}
	sinkTypes = append(sinkTypes, more...)
	return nil
}

// sinkSchemes are the schemes of all sink URLs, for people.
func sinkSchemes() string {
	var schemes []string
	for _, t := range sinkTypes {
		for _, scheme := range t.Schemes {
			schemes = append(schemes, scheme+":")
		}
	}
	return strings.Join(schemes, " ")
}

// sinkRegistry maps the scheme of a URL to its sink.
func sinkRegistry() sink.Registry {
	registry := sink.Registry{}
	for _, t := range sinkTypes {
		for _, scheme := range t.Schemes {
			registry[scheme] = t.Open
		}
	}
	return registry
}

// newSinks makes a sink for each namespace. Two namespaces with the same target have
// a sink each, so that errors of one do not delay the other.
func newSinks(cfg *config.Config, registry sink.Registry, store *partition.Stores,
	reg prometheus.Registerer, log *zap.Logger) (map[string]sink.Sink, error) {
	taken := newTierMetrics(reg)
	sinks := map[string]sink.Sink{}
	for _, name := range cfg.Names() {
		tiers, err := namespaceChain(cfg, name).tiers(registry, store, func(label, text string) {
			log.Warn(text, zap.String("namespace", name), zap.String("sink", label))
		})
		if err != nil {
			return nil, err
		}
		sinks[name] = withFallbacks(cfg, name, tiers, taken, log)
	}
	return sinks, nil
}

// A chain is what a namespace, or a name of sinks for push, delivers to: the URLs of the first
// choice and of its fallbacks.
type chain struct {
	c         *config.Config
	namespace string // empty for push
	name      string
	urls      []string
}

func namespaceChain(c *config.Config, name string) chain {
	return chain{c, name, name, c.Namespaces[name].Sinks()}
}

func pushChain(c *config.Config, name string) chain {
	return chain{c, "", name, strings.Fields(c.PushSinks[name])}
}

// chains are all that a process delivers to.
func chains(c *config.Config) (list []chain) {
	if c.Role == "ingest" { // which has no sinks, and perhaps no folders for them
		return nil
	}
	for _, name := range c.Names() {
		list = append(list, namespaceChain(c, name))
	}
	for _, name := range slices.Sorted(maps.Keys(c.PushSinks)) {
		list = append(list, pushChain(c, name))
	}
	return list
}

// each calls f for every URL, and says of its errors which sink they are about.
func (ch chain) each(f func(raw string) error) (errs []error) {
	if len(ch.urls) == 0 {
		return []error{ch.wrong(0, errors.New("there is no URL"))}
	}
	for i, raw := range ch.urls {
		if err := f(raw); err != nil {
			errs = append(errs, ch.wrong(i, err))
		}
	}
	return errs
}

// tiers makes the sinks of a chain. It finds all that are wrong. warn gets what a namespace's
// sink finds when it is opened.
func (ch chain) tiers(registry sink.Registry, store branches.Store,
	warn func(label, text string)) (tiers []fallback.Tier, err error) {
	errs := ch.each(func(raw string) error {
		label := sink.Redact(raw)
		s, err := newSink(ch.c, ch.namespace, raw, registry, func(text string) { warn(label, text) })
		if err == nil {
			tiers = append(tiers, fallback.Tier{Sink: s, Label: label})
		}
		return err
	})
	for _, t := range tiers {
		if b, ok := t.Sink.(*branches.Sink); ok {
			errs = append(errs, b.Use(store))
		}
	}
	return tiers, errors.Join(errs...)
}

// wrong says which sink an error is about, and where its URL is.
func (ch chain) wrong(i int, err error) error {
	if ch.namespace == "" {
		return ch.c.FieldError("sinks."+ch.name, fmt.Errorf("sinks.%s: %w", ch.name, err))
	}
	return ch.c.FieldError("namespaces."+ch.name+"."+config.KeyOfTier(i),
		fmt.Errorf("namespace %s: %w", ch.name, err))
}

// newSink makes one sink of a namespace, or of push where there is none. exec: runs the
// namespace's command. warn logs what the sink of a namespace finds when it is opened.
func newSink(c *config.Config, name, raw string, registry sink.Registry,
	warn func(text string)) (sink.Sink, error) {
	if _, known := registry["exec"]; known {
		registry = maps.Clone(registry)
		registry["exec"] = command.New(c.Namespaces[name].SinkCommand, commandEnviron(c.Secrets.Env))
	}
	s, err := registry.NewWithSecrets(raw, c.Secrets)
	if w, ok := s.(sink.Warner); ok && name != "" {
		w.WarnTo(warn, c.Namespaces[name].MaxAge)
	}
	return s, err
}

// commandEnviron is the environment of programs of the sink exec:.
func commandEnviron(lookupEnv func(string) (string, bool)) (environ []string) {
	for _, name := range process.Variables {
		if value, ok := lookupEnv(name); ok {
			environ = append(environ, name+"="+value)
		}
	}
	return environ
}

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
