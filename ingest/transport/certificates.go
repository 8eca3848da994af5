package transport

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

// certificates are the certificate and key of one port, and the CA of its clients
// if there is one. A handshake reads the files again when they were last read a
// second ago or longer. So a rotation needs no signal, a replaced symbolic link is
// noticed, and an idle port reads nothing. Open connections keep their certificate.
// Files that do not match, as during a rotation, are not used.
type certificates struct {
	files   []namedFile // certificate, key and, when clients need one, their CA
	log     *zap.Logger
	current atomic.Pointer[loaded]
	checked atomic.Int64 // when the files were last read, in Unix ns
	failure atomic.Pointer[string]
}

// namedFile is a file and the setting that names it.
type namedFile struct{ setting, path string }

// CertificateFiles are the PEM files of a port: its certificate and key, and the CA that must have
// signed those of its clients, or none. An empty Cert is plain HTTP. Prefix is what the names of their
// settings begin with.
type CertificateFiles struct{ Port, Prefix, Cert, Key, ClientCA string }

// A FileError is why the file of a setting cannot be used.
type FileError struct {
	Setting string
	Cause   error
}

func (e *FileError) Error() string { return e.Setting + ": " + e.Cause.Error() }
func (e *FileError) Unwrap() error { return e.Cause }

type loaded struct {
	raw    [][]byte
	config *tls.Config
	expiry time.Time
}

const rereadAfter = time.Second

// Check is an error unless the port has both a certificate and a key, or no file.
func (f CertificateFiles) Check() error {
	switch {
	case f.Cert == "" && f.Key != "":
		return &FileError{f.Prefix + "tls_key",
			errors.New("key without a certificate: set " + f.Prefix + "tls_cert")}
	case f.Cert == "" && f.ClientCA != "":
		return &FileError{f.Prefix + "tls_client_ca",
			errors.New("client certificates need TLS: set " + f.Prefix + "tls_cert and " + f.Prefix + "tls_key")}
	case f.Cert != "" && f.Key == "":
		return &FileError{f.Prefix + "tls_cert",
			errors.New("certificate without a key: set " + f.Prefix + "tls_key")}
	}
	return nil
}

// TLS is the configuration of the port, nil without a certificate.
func (f CertificateFiles) TLS(reg prometheus.Registerer, log *zap.Logger) (*tls.Config, error) {
	if f.Cert == "" {
		return nil, nil
	}
	c := &certificates{log: log.Named(f.Port),
		files: []namedFile{{f.Prefix + "tls_cert", f.Cert}, {f.Prefix + "tls_key", f.Key}}}
	if f.ClientCA != "" {
		c.files = append(c.files, namedFile{f.Prefix + "tls_client_ca", f.ClientCA})
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	c.checked.Store(time.Now().UnixNano())
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_tls_expiry_timestamp_seconds", Help: "Expiry of the certificate in use, in Unix seconds.",
		ConstLabels: prometheus.Labels{"port": f.Port},
	}, func() float64 { return float64(c.current.Load().expiry.Unix()) }))
	return c.server(), nil
}

// server is the TLS configuration of a listener.
func (c *certificates) server() *tls.Config {
	config := c.current.Load().config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := time.Now().UnixNano()
		if last := c.checked.Load(); now-last >= int64(rereadAfter) &&
			c.checked.CompareAndSwap(last, now) {
			c.reload()
		}
		return c.current.Load().config, nil
	}
	return config
}

// reload reads the files again. It logs the same failure only once.
func (c *certificates) reload() {
	before := c.current.Load()
	err := c.load()
	switch {
	case err != nil:
		text := err.Error()
		if last := c.failure.Swap(&text); last == nil || *last != text {
			c.log.Error("certificates not reloaded, the previous ones stay in use", zap.Error(err))
		}
	case c.current.Load() != before:
		c.failure.Store(nil)
		c.log.Info("certificates reloaded", zap.Time("expiry", c.current.Load().expiry))
	case c.failure.Swap(nil) != nil:
		c.log.Info("certificates are those in use again", zap.Time("expiry", before.expiry))
	}
}

// load reads the files, and uses them if they changed and match.
func (c *certificates) load() error {
	var raw [][]byte
	for _, f := range c.files {
		text, err := os.ReadFile(f.path)
		if err != nil {
			return &FileError{f.setting, err}
		}
		raw = append(raw, text)
	}
	if used := c.current.Load(); used != nil {
		same := true
		for i := range raw {
			same = same && bytes.Equal(raw[i], used.raw[i])
		}
		if same {
			return nil
		}
	}
	pair, err := tls.X509KeyPair(raw[0], raw[1])
	if err != nil {
		return &FileError{c.files[0].setting, err}
	}
	// HTTP/2 is not supported: a handshake that offers only HTTP/2 fails.
	settings := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"http/1.1"}}
	if len(raw) == 3 {
		settings.ClientCAs = x509.NewCertPool()
		if !settings.ClientCAs.AppendCertsFromPEM(raw[2]) {
			return &FileError{c.files[2].setting, errors.New("the file holds no certificate in PEM form")}
		}
		settings.ClientAuth = tls.RequireAndVerifyClientCert
		// A resumed session skips the check of the client certificate, so it
		// would still be accepted after its CA was removed.
		settings.SessionTicketsDisabled = true
	}
	c.current.Store(&loaded{raw, settings, pair.Leaf.NotAfter})
	return nil
}
