package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// targetErrors are the URLs and files that cannot work, as far as that shows without a
// connection. A Config that load rejected has them, too.
func (c *Config) targetErrors(registry sink.Registry) (errs []error) {
	if c.Role != "ingest" { // which has no sinks, and perhaps no folders for them
		for _, name := range c.names() {
			for i, raw := range c.Namespaces[name].sinks() {
				s, err := c.newSink(name, raw, registry)
				if checker, ok := s.(sink.Checker); ok && err == nil {
					err = checker.Check()
				}
				if err != nil {
					errs = append(errs, c.tierError(name, i, err))
				}
			}
		}
	}
	errs = append(errs, c.storeURLError())
	for _, port := range []tlsFiles{c.dataTLS(), c.adminTLS()} {
		if port.key == "" {
			continue // which validate reports
		}
		if _, err := newCertificates(port, prometheus.NewRegistry(), zap.NewNop()); err != nil {
			errs = append(errs, c.locate(err))
		}
	}
	return errs
}

// storeURLError is what is wrong with the URL of the store, its prefix or its durability.
func (c *Config) storeURLError() error {
	replicas, _ := replicasOf(c.Durability) // validate reports a wrong one; the URL may be wrong, too
	policies := map[string]partition.Policy{"default": partition.DefaultPolicy()}
	store, err := partition.Open(partition.Config{URL: c.Redis, Prefix: c.Prefix, Replicas: replicas, Namespaces: policies}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return c.locate(err)
	}
	return store.Close()
}

// onlineTimeout bounds each part of an online check; all run at once.
const onlineTimeout = 5 * time.Second

// checkOnline connects to the store and to every sink, as serve would, and writes nothing.
func (c *Config) checkOnline(ctx context.Context, registry sink.Registry) (warnings []string, err error) {
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
	running.Go(func() {
		texts, err := c.checkStore(ctx)
		report(err, texts...)
	})
	for _, name := range c.names() {
		for i, raw := range c.Namespaces[name].sinks() {
			if c.Role == "ingest" {
				continue
			}
			running.Go(func() {
				if err := c.checkSink(ctx, name, raw, registry); err != nil {
					report(c.tierError(name, i, err))
				}
			})
		}
	}
	running.Wait()
	return warnings, errors.Join(errs...)
}

// checkStore asks Redis what serve asks at its start: version, settings, rights, format.
func (c *Config) checkStore(ctx context.Context) (warnings []string, err error) {
	replicas, err := replicasOf(c.Durability)
	if err != nil {
		return nil, err
	}
	policies := map[string]partition.Policy{}
	for name, ns := range c.Namespaces {
		policies[name] = ns.Policy()
	}
	store, err := partition.Open(partition.Config{URL: c.Redis, Prefix: c.Prefix, Replicas: replicas, Namespaces: policies}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return nil, c.locate(err)
	}
	warnings, err = store.Inspect(ctx)
	if err != nil {
		err = c.fieldError("redis", fmt.Errorf("redis: %s: %w", redactStore(c.Redis), err))
	}
	return warnings, errors.Join(err, store.Close())
}

// checkSink opens a sink, which writes nothing to its target. A file would be created and
// locked, and namespaces: is the store, so those are left out. A webhook gets no request:
// the connection shows whether its host is there.
func (c *Config) checkSink(ctx context.Context, name, raw string, registry sink.Registry) error {
	s, err := c.newSink(name, raw, registry)
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
