package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// certificates are what one port proves itself with and, given a CA, judges its
// clients by. They follow their files: at most once a second a handshake reads
// them again. That needs no signal from whoever rotates them, misses no swap of
// a link as watching one file would, and costs nothing where nobody connects.
// Open connections keep what they began with. Files that do not fit together,
// as in the middle of a rotation, change nothing.
type certificates struct {
	files   []keyFile // certificate, key and, when clients need one, their CA
	log     *zap.Logger
	current atomic.Pointer[loaded]
	checked atomic.Int64 // Unix ns of the last look at the files
	failure atomic.Pointer[string]
}

// keyFile is a file under the key of the setting that names it.
type keyFile struct{ key, path string }

type loaded struct {
	raw    [][]byte
	config *tls.Config
	expiry time.Time
}

const recheck = time.Second

// newCertificates reads the files of a port, whose settings begin with prefix.
// It returns nil when there are none: the port then speaks plain HTTP.
func newCertificates(port, prefix, cert, key, clientCA string, reg prometheus.Registerer, log *zap.Logger) (*certificates, error) {
	if cert == "" {
		return nil, nil
	}
	c := &certificates{files: []keyFile{{prefix + "tls_cert", cert}, {prefix + "tls_key", key}}, log: log}
	if clientCA != "" {
		c.files = append(c.files, keyFile{prefix + "tls_client_ca", clientCA})
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	c.checked.Store(time.Now().UnixNano())
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_tls_expiry_timestamp_seconds", Help: "When the certificate in use expires, in Unix seconds.",
		ConstLabels: prometheus.Labels{"port": port},
	}, func() float64 { return float64(c.current.Load().expiry.Unix()) }))
	return c, nil
}

// server is the configuration of a listener.
func (c *certificates) server() *tls.Config {
	config := c.current.Load().config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := time.Now().UnixNano()
		if last := c.checked.Load(); now-last >= int64(recheck) && c.checked.CompareAndSwap(last, now) {
			c.reload()
		}
		return c.current.Load().config, nil
	}
	return config
}

// reload logs a failure once, not at every look.
func (c *certificates) reload() {
	before := c.current.Load()
	err := c.load()
	switch {
	case err != nil:
		text := err.Error()
		if last := c.failure.Swap(&text); last == nil || *last != text {
			c.log.Error("certificates cannot be reloaded; those in use stay", zap.Error(err))
		}
	case c.current.Load() != before:
		c.failure.Store(nil)
		c.log.Info("certificates reloaded", zap.Time("expiry", c.current.Load().expiry))
	}
}

// load takes the files when they changed and make a whole.
func (c *certificates) load() error {
	var raw [][]byte
	for _, f := range c.files {
		text, err := os.ReadFile(f.path)
		if err != nil {
			return &settingError{f.key, err}
		}
		raw = append(raw, text)
	}
	if in := c.current.Load(); in != nil {
		same := true
		for i := range raw {
			same = same && bytes.Equal(raw[i], in.raw[i])
		}
		if same {
			return nil
		}
	}
	pair, err := tls.X509KeyPair(raw[0], raw[1])
	if err != nil {
		return &settingError{c.files[0].key, err}
	}
	// HTTP/2 is not spoken: a client that insists learns so in the handshake.
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if len(raw) == 3 {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(raw[2]) {
			return &settingError{c.files[2].key, errors.New("it holds no certificate in PEM form")}
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		// A resumed session is not judged anew: a CA that was taken away must
		// not let anybody in.
		config.SessionTicketsDisabled = true
	}
	c.current.Store(&loaded{raw, config, pair.Leaf.NotAfter})
	return nil
}

// secured is the TLS of a port, nil without certificates.
func (a *App) secured(port, prefix, cert, key, clientCA string, reg prometheus.Registerer) (*tls.Config, error) {
	c, err := newCertificates(port, prefix, cert, key, clientCA, reg, a.log.Named(port))
	if err != nil || c == nil {
		return nil, err
	}
	return c.server(), nil
}
