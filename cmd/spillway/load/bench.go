package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/partition"
)

// Bench sends load with package bench to a running service, or to one that it
// starts in this process.
type Bench struct {
	Mode        string        `arg:"" enum:"ingest,drain,e2e" help:"ingest measures requests. e2e measures requests and waits until all entries are drained. drain writes a backlog first and measures how it is drained; drain_rate excludes the last, partly filled batches."`
	Server      string        `name:"server" placeholder:"URL" help:"URL of the data port of a running service. Without it, bench starts a service in this process, with the sink null:."`
	Admin       string        `name:"admin" default:"http://127.0.0.1:8081" help:"URL of the admin port of the running service; http://any:TOKEN@host:port if it requires a token."`
	Redis       string        `name:"redis" default:"embedded:" help:"Without --server: URL of the store. The key prefix is swbench."`
	Namespace   string        `name:"namespace" default:"default" help:"Namespace of the running service."`
	Token       string        `name:"token" placeholder:"TOKEN" help:"Token of the namespace. The environment variable SPILLWAY_TOKEN hides it from the process list."`
	Rate        float64       `name:"rate" default:"10000" help:"Requests per second. Latencies count from when each request was due. 0 sends the next request with each answer."`
	Duration    time.Duration `name:"duration" default:"10s" help:"How long requests are sent."`
	Partitions  int           `name:"partitions" default:"100" help:"Number of partitions that get the requests."`
	Dist        string        `name:"dist" enum:"uniform,zipf" default:"uniform" help:"Distribution of the requests over the partitions: uniform or zipf."`
	Size        int           `name:"size" default:"200" help:"Bytes per entry."`
	Batch       int           `name:"batch" default:"1" help:"Entries per request."`
	Connections int           `name:"connections" default:"64" help:"Keep-alive connections, each with one request in flight."`
	Timeout     time.Duration `name:"timeout" default:"30s" help:"Timeout of a request, and of the drain after the last one."`
	Assert      string        `name:"assert" placeholder:"LIST" help:"Comparisons of the results that must hold, such as p99<5ms,residual=0."`
	Output      string        `name:"output" short:"o" enum:"text,json" default:"text" help:"Format of the results: text, or json with durations in seconds."`
}

func (c *Bench) validate() (asserts []bench.Assertion, err error) {
	u, err := url.Parse(c.Server)
	switch {
	case err != nil || c.Server != "" && (u.Scheme != "http" && u.Scheme != "https" || u.Port() == ""):
		return nil, errors.New("server: not a usable URL: write one such as http://127.0.0.1:8080 or https://127.0.0.1:8443")
	case !partition.ValidNamespace(c.Namespace):
		return nil, fmt.Errorf("namespace: %q is not a name", c.Namespace)
	case !(c.Rate >= 0 && c.Rate <= 1e7): // NaN fails too
		return nil, partition.Wrong("rate", c.Rate, "0 to 10000000 requests a second")
	case c.Duration < time.Millisecond || c.Duration > 24*time.Hour:
		return nil, partition.Wrong("duration", c.Duration, "1ms to 24h")
	case !validTimeout(c.Timeout):
		return nil, partition.Wrong("timeout", c.Timeout, wantTimeout)
	case c.Rate > 0 && c.Rate*c.Duration.Seconds() < 1:
		return nil, errors.New("rate × duration: want 1 request or more")
	case c.Mode == "drain" && c.Rate == 0:
		return nil, errors.New("rate: the mode drain needs one: its backlog is rate × duration × batch")
	case c.Partitions < 1 || c.Partitions > 10_000_000:
		return nil, partition.Wrong("partitions", c.Partitions, "1 to 10000000")
	case c.Batch < 1 || c.Batch > 1000:
		return nil, partition.Wrong("batch", c.Batch, "1 to 1000 entries")
	case c.Connections < 1 || c.Connections > 65_535:
		return nil, partition.Wrong("connections", c.Connections, "1 to 65535")
	case c.Size < bench.MinPayload || c.Size > 1<<20:
		return nil, partition.Wrong("size", c.Size, fmt.Sprintf("%d to 1048576 bytes", bench.MinPayload))
	}
	if asserts, err = bench.ParseAsserts(c.Assert); err != nil {
		return nil, err
	}
	for _, a := range asserts {
		if !slices.Contains(c.measured(), a.Key) {
			return nil, fmt.Errorf("assert: %s is not measured here; what is: %s", a.Key,
				strings.Join(c.measured(), ", "))
		}
	}
	return asserts, nil
}

// Run prints the figures.
func (c *Bench) Run(ctx context.Context, p config.Process, newService NewService) error {
	if _, err := config.FromEnv(config.SettingsOf(c), p); err != nil {
		return err
	}
	asserts, err := c.validate()
	if err != nil {
		return config.Usage(err)
	}
	figures, rejected, err := c.measure(ctx, p, newService)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if err := c.print(p.Stdout, figures, rejected); err != nil {
		return fmt.Errorf("bench: print: %w", err)
	}
	var failed []error
	for _, a := range asserts {
		failed = append(failed, a.Check(figures))
	}
	return errors.Join(failed...)
}

// measured are the figures of this run.
func (c *Bench) measured() []string { return bench.Measured(c.Mode, c.Server == "") }

// print prints what was measured, and the rejected entries by code.
func (c *Bench) print(w io.Writer, figures map[string]float64, rejected map[string]int64) error {
	if c.Output != "json" {
		return bench.PrintFigures(w, c.measured(), figures, rejected)
	}
	all := map[string]any{"mode": c.Mode}
	for _, key := range c.measured() {
		all[key] = figures[key]
	}
	if _, ok := all["rejected"]; ok {
		all["rejected_by_code"] = rejected
	}
	return json.NewEncoder(w).Encode(all)
}

// measure sends load to the service of the flags and reads its ledger before and
// after. It returns the figures, and the rejected entries by code.
func (c *Bench) measure(ctx context.Context, p config.Process,
	newService NewService) (_ map[string]float64, rejected map[string]int64, err error) {
	data := c.Server
	admin := c.Admin
	namespace := c.Namespace
	var own Service
	var before partition.Ledger
	began := time.Now()
	line := newProgressLine(p.Stderr)
	defer line.end()
	if c.Server == "" {
		if own, err = c.build(newService, p); err != nil {
			return nil, nil, err
		}
		namespace = "default"
		defer func() { err = errors.Join(err, own.StopInTime(ctx)) }()
		// The backlog of the mode drain is written before the drain starts.
		if c.Mode == "drain" {
			if before, err = c.fill(ctx, line, own.Store()); err != nil {
				return nil, nil, err
			}
			began = time.Now()
		}
		if err := own.Start(ctx); err != nil {
			return nil, nil, err
		}
		data, admin = own.Addresses()
		data, admin = "http://"+data, "http://"+admin
	}
	ledger := func(ctx context.Context) (partition.Ledger, error) {
		a, err := bench.ReadAccount(ctx, admin, namespace, false)
		return a.Ledger, err
	}
	drain := &bench.DrainCurve{}
	var load bench.Result
	if c.Mode != "drain" || own == nil {
		if before, err = ledger(ctx); err != nil {
			return nil, nil, err
		}
		began = time.Now()
		drain.Start(began, before)
		if load, err = c.send(ctx, line, data, namespace, func() {
			if l, err := ledger(ctx); err == nil { // one sample less
				drain.Add(time.Now(), l)
			}
		}); err != nil {
			return nil, nil, err
		}
	} else {
		drain.Start(began, before)
	}
	answered := time.Now()
	waiting, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	// A service that is not drained in time is no error: the figure buffered shows it.
	empty, drained := bench.AwaitDrained(waiting, func(ctx context.Context) (partition.Ledger, error) {
		l, err := ledger(ctx)
		if err == nil {
			drain.Add(time.Now(), l)
			line.show("draining: %d delivered, %d left", l.Delivered-before.Delivered, l.Buffered)
		}
		return l, err
	})
	if drained != nil {
		empty = time.Now()
	}
	after, err := bench.ReadAccount(ctx, admin, namespace, true)
	if err != nil {
		return nil, nil, err
	}
	b, a := before, after.Ledger
	return map[string]float64{
		"requests":      float64(load.Requests),
		"acked":         float64(load.Acked),
		"errors":        float64(load.Errors()),
		"unknown":       float64(load.Unknown),
		"rejected":      float64(load.Errors() - load.Unknown),
		"rate":          load.Rate(),
		"delivered":     float64(a.Delivered - b.Delivered),
		"drain_rate":    drain.Rate(),
		"drained_after": empty.Sub(answered).Seconds(),
		"evicted":       float64(a.Evicted - b.Evicted),
		"expired":       float64(a.Expired - b.Expired),
		"dead":          float64(a.Dead - b.Dead),
		"lost":          float64(a.Lost - b.Lost),
		"buffered":      float64(a.Buffered),
		"residual":      float64(*after.Residual),
		"p50":           load.Latency.P50.Seconds(),
		"p99":           load.Latency.P99.Seconds(),
		"p99.9":         load.Latency.P999.Seconds(),
		"max":           load.Latency.Max.Seconds(),
	}, load.Rejected, nil
}

// send sends the load; each second it shows how far it is and calls sample.
func (c *Bench) send(ctx context.Context, line *progressLine, data, namespace string,
	sample func()) (bench.Result, error) {
	l := bench.Load{
		URL:          data,
		Namespace:    namespace,
		Token:        c.Token,
		Rate:         c.Rate,
		Duration:     c.Duration,
		Timeout:      c.Timeout,
		Partitions:   c.Partitions,
		Zipf:         c.Dist == "zipf",
		Entries:      c.Batch,
		PayloadBytes: c.Size,
		Connections:  c.Connections,
	}
	began := time.Now()
	l.Progress = func(r bench.Result) {
		sample()
		line.show("sending for %.0f of %.0f s: %d requests, %d entries acked, %d failed, p99 %s",
			time.Since(began).Seconds(), c.Duration.Seconds(), r.Requests, r.Acked, r.Errors(),
			bench.FigureText("p99", r.Latency.P99.Seconds()))
	}
	if c.Mode == "drain" { // the backlog of a running service: as fast as it accepts it
		l.Requests = int64(c.Rate * c.Duration.Seconds())
		l.Rate = 0
		l.Duration = time.Hour
		l.Progress = func(r bench.Result) {
			sample()
			line.show("filling: %d of %d requests", r.Requests, l.Requests)
		}
	}
	return bench.Run(ctx, l)
}

// build makes a service in this process. Its partitions hold the whole load, so
// nothing is evicted.
func (c *Bench) build(newService NewService, p config.Process) (Service, error) {
	cfg, err := config.Default()
	if err != nil {
		return nil, err
	}
	ns := cfg.Namespaces["default"]
	ns.Sink = "null:"
	ns.Capacity = 1_000_000
	ns.MaxPartitions = max(ns.MaxPartitions, c.Partitions)
	cfg.Namespaces["default"] = ns
	cfg.Redis, cfg.Prefix = c.Redis, "swbench"
	cfg.Secrets.Env = p.LookupEnv // of the URL
	cfg.Listen, cfg.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	where := "in this process, on the same CPUs as the load generator; its store is " +
		config.RedactStore(c.Redis)
	if c.Redis == "embedded:" {
		where += " miniredis, which is far slower than Redis: set --redis to measure with Redis"
	}
	_, _ = fmt.Fprintf(p.Stderr, "The service runs %s.\n", where)
	service, err := newService(cfg, nil, p.Stderr, "error")
	if err != nil {
		return nil, config.Usage(err)
	}
	return service, nil
}

// fill writes the entries of rate × duration requests to the store and returns the
// ledger from before.
func (c *Bench) fill(ctx context.Context, line *progressLine,
	store *partition.Store) (before partition.Ledger, err error) {
	if _, err := store.Check(ctx); err != nil {
		return before, err
	}
	o, err := store.Overview(ctx, store.Namespace("default"))
	if err != nil {
		return before, err
	}
	payload := []byte(`"` + strings.Repeat("x", c.Size-2) + `"`)
	for left, at := int(c.Rate*c.Duration.Seconds())*c.Batch, 0; left > 0; at++ {
		now, _ := store.Now()
		g := &partition.Group{Namespace: store.Namespace("default"),
			Partition: fmt.Sprint("bench-", at%c.Partitions)}
		for range min(left, partition.MaxBatch) {
			g.Entries = append(g.Entries, partition.AppendEntry(nil, now, nil, payload))
		}
		store.Produce(ctx, []*partition.Group{g})
		if g.Err != nil {
			return before, fmt.Errorf("fill: %w", g.Err)
		}
		left -= len(g.Entries)
		line.show("filling: %d entries left to write", left)
	}
	return o.Ledger, nil
}
