package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/partition"
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

// checkPool asks a Redis what serve asks at its start: version, settings, rights, format.
func checkPool(ctx context.Context, c *config.Config, name string) (warnings []string, err error) {
	policies, queues, ofPHP := c.PoliciesIn(name), c.QueuesIn(name), c.PHPIn(name)
	if len(policies)+len(queues)+len(ofPHP) == 0 {
		return nil, nil
	}
	b, err := openPool(c, name, nil, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return nil, err
	}
	key, url := "redis", c.Redis
	if name != config.DefaultPool {
		key, url = "pools."+name, c.Pools[name].URL
	}
	if len(ofPHP) > 0 {
		var store *php.Store
		if store, err = php.Open(php.Config{Prefix: c.Prefix, Namespaces: ofPHP}, b,
			prometheus.NewRegistry(), zap.NewNop()); err != nil {
			return nil, errors.Join(c.Locate(err), b.Close())
		}
		warnings, err = store.Check(ctx)
	} else if len(policies) > 0 {
		var store *partition.Store
		if store, err = partition.Open(partition.Config{Backend: b, Prefix: c.Prefix,
			Namespaces: policies}, prometheus.NewRegistry(), zap.NewNop()); err != nil {
			return nil, errors.Join(c.Locate(err), b.Close())
		}
		warnings, err = store.Inspect(ctx)
	} else {
		warnings, err = b.CheckServers(ctx)
		err = b.Explain(ctx, err)
	}
	if err == nil && len(queues) > 0 && !c.Pools[name].Volatile {
		err = b.CheckPersistence(ctx)
	}
	if err != nil {
		err = c.FieldError(key, fmt.Errorf("%s: %s: %w", key, config.RedactStore(url), err))
	}
	return warnings, errors.Join(err, b.Close())
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
	u, err := url.Parse(raw)
	if err != nil {
		return nil // a placeholder in it: newSink took it
	}
	switch u.Scheme {
	case "file", "namespaces":
		return nil
	case "http", "https":
		return dial(ctx, u)
	}
	err = s.Open(ctx)
	if err != nil {
		err = fmt.Errorf("sink %s: %w", sink.Redact(raw), err)
	}
	return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
}

// dial connects to the host of a URL.
func dial(ctx context.Context, u *url.URL) error {
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return fmt.Errorf("sink %s: %w", sink.Redact(u.String()), err)
	}
	return conn.Close()
}
