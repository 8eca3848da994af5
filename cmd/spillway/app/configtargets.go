package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/php"
)

// loadAndTry is load, and makes what the settings describe once, to find all errors.
func loadAndTry(c *config.Config, p config.Process, registry sink.Registry) error {
	err := c.Load(p)
	if err = errors.Join(append([]error{err}, targetErrors(c, registry)...)...); err != nil {
		return config.Usage(err)
	}
	c.SumSecrets()
	return nil
}

// targetErrors are the URLs and files that cannot work, as far as that shows without a
// connection. A Config that load rejected has them, too.
func targetErrors(c *config.Config, registry sink.Registry) (errs []error) {
	for _, ch := range chains(c) {
		errs = append(errs, ch.each(func(raw string) error {
			s, err := newSink(c, ch.namespace, raw, registry, nil) // it is not opened
			if checker, ok := s.(sink.Checker); ok && err == nil {
				err = checker.Check()
			}
			return err
		})...)
	}
	errs = append(errs, storeURLErrors(c)...)
	for _, port := range []transport.CertificateFiles{c.Certificates(), c.AdminCertificates()} {
		if port.Key == "" {
			continue // which validate reports
		}
		if _, err := port.TLS(prometheus.NewRegistry(), zap.NewNop()); err != nil {
			errs = append(errs, c.Locate(err))
		}
	}
	return errs
}

// storeURLErrors are what is wrong with the URLs of the pools, the prefix or the durability.
func storeURLErrors(c *config.Config) (errs []error) {
	tried := *c
	if _, err := config.ReplicasOf(c.Durability); err != nil {
		tried.Durability = "async" // validate reports a wrong one; the URL may be wrong, too
	}
	for _, name := range c.PoolNames() {
		if p := c.Pools[name]; name != config.DefaultPool &&
			(p.URL == "" || strings.HasPrefix(p.URL, "embedded:")) {
			continue // which validate reports
		}
		errs = append(errs, tryPool(&tried, name))
	}
	return errs
}

// tryPool opens a pool, which connects to nothing, and closes it.
func tryPool(c *config.Config, name string) error {
	b, err := openPool(c, name, nil, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return err
	}
	policies := map[string]partition.Policy{"default": partition.DefaultPolicy()}
	store, err := partition.Open(partition.Config{Backend: b, Prefix: c.Prefix, Namespaces: policies},
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return errors.Join(c.Locate(err), b.Close())
	}
	return errors.Join(store.Close(), b.Close())
}

// onlineTimeout bounds each part of an online check; all run at once.
const onlineTimeout = 5 * time.Second

// checkOnline connects to the store and to every sink, as serve would, and writes nothing.
func checkOnline(ctx context.Context, c *config.Config,
	registry sink.Registry) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, onlineTimeout)
	defer cancel()
	var (
		mu      sync.Mutex
		errs    []error
		running sync.WaitGroup
	)
	report := func(err error, texts ...string) {
		mu.Lock()
		defer mu.Unlock()
		errs, warnings = append(errs, err), append(warnings, texts...)
	}
	for _, name := range c.PoolNames() {
		running.Go(func() {
			texts, err := checkPool(ctx, c, name)
			report(err, texts...)
		})
	}
	for _, ch := range chains(c) {
		for i, raw := range ch.urls {
			running.Go(func() {
				warn := func(text string) { report(nil, "namespace "+ch.name+": "+text) }
				if err := checkSink(ctx, c, ch.namespace, raw, registry, warn); err != nil {
					report(ch.wrong(i, err))
				}
			})
		}
	}
	running.Wait()
	return warnings, errors.Join(errs...)
}

// checkPool asks a Redis what serve asks at its start: version, settings, rights of each kind, format.
func checkPool(ctx context.Context, c *config.Config, name string) (warnings []string, err error) {
	b, err := openPool(c, name, nil, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return nil, err
	}
	inspect, err := inspectors(c, name, b)
	if err != nil {
		return nil, errors.Join(c.Locate(err), b.Close())
	}
	key, url := c.PoolSetting(name)
	var errs []error
	for _, of := range inspect {
		texts, err := of(ctx)
		warnings = append(warnings, texts...)
		if err != nil {
			errs = append(errs, c.FieldError(key, fmt.Errorf("%s: %s: %w", key, config.RedactStore(url), err)))
		}
	}
	// Kinds ask the same server.
	slices.Sort(warnings)
	errs = slices.CompactFunc(errs, func(a, b error) bool { return a.Error() == b.Error() })
	return slices.Compact(warnings), errors.Join(append(errs, b.Close())...)
}

// inspectors are the questions of each kind that the file has in a pool.
func inspectors(c *config.Config, name string, b *backend.Backend) (list []func(context.Context) ([]string, error), err error) {
	reg, log := prometheus.NewRegistry(), zap.NewNop()
	if ofPHP := c.PHPIn(name); len(ofPHP) > 0 {
		store, err := php.Open(php.Config{Prefix: c.Prefix, Namespaces: ofPHP}, b, reg, log)
		if err != nil {
			return nil, err
		}
		list = append(list, store.Check)
	}
	if policies := c.PoliciesIn(name); len(policies) > 0 {
		store, err := partition.Open(partition.Config{Backend: b, Prefix: c.Prefix, Namespaces: policies}, reg, log)
		if err != nil {
			return nil, err
		}
		list = append(list, store.Inspect)
	}
	if queues := c.QueuesIn(name); len(queues) > 0 {
		policies := map[string]job.Policy{}
		for _, of := range queues {
			policies[of] = c.QueueNamespaces[of].Policy()
		}
		store, err := job.Open(job.Config{Prefix: c.Prefix, Volatile: c.Pools[name].Volatile, Namespaces: policies,
			Required: queues}, b, reg, log)
		if err != nil {
			return nil, err
		}
		list = append(list, store.Inspect)
	}
	return list, nil
}

// checkSink opens a sink, which writes nothing to its target. A file would be created and
// locked, and namespaces: is the store, so those are left out. A webhook gets no request:
// the connection shows whether its host is there.
func checkSink(ctx context.Context, c *config.Config, name, raw string, registry sink.Registry,
	warn func(text string)) error {
	s, err := newSink(c, name, raw, registry, warn)
	if err != nil {
		return err
	}
	switch scheme, _, _ := strings.Cut(raw, ":"); scheme {
	case "file", "namespaces":
		return nil
	case "http", "https":
		err = dial(ctx, c.Secrets, raw)
	default:
		err = errors.Join(s.Open(ctx), s.Close(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return fmt.Errorf("sink %s: %w", sink.Redact(raw), err)
	}
	return nil
}

// dial connects to the host of a URL, which may have placeholders elsewhere.
func dial(ctx context.Context, secrets sink.Secrets, raw string) error {
	filled, err := secrets.Fill(raw)
	if err != nil {
		return err
	}
	u, err := url.Parse(filled)
	if err != nil {
		return errors.New("the URL cannot be read") // its error would show a value
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), u.Scheme)))
	if err != nil {
		return err
	}
	return conn.Close()
}
