package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// A tlsRow is a client of a port that speaks TLS and asks for certificates. It
// gets its one entry in, or an answer, or is rejected before it can send anything.
type tlsRow struct {
	name   string
	client func(a, other *authority) *tls.Config // nil: no TLS at all
	want   string
}

// with is a client of a's server that shows a certificate.
func with(a *authority, cert tls.Certificate, edit func(*tls.Config)) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	c := &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "127.0.0.1"}
	if edit != nil {
		edit(c)
	}
	return c
}

var sealed = []tlsRow{
	{"a certificate of ours", func(a, _ *authority) *tls.Config { return with(a, a.issue(time.Hour, x509.ExtKeyUsageClientAuth), nil) }, ok},
	{"plain HTTP", nil, badRequest},
	{"no certificate", func(a, _ *authority) *tls.Config {
		return with(a, tls.Certificate{}, func(c *tls.Config) { c.Certificates = nil })
	}, "rejected"},
	{"a certificate of another CA", func(a, o *authority) *tls.Config { return with(a, o.issue(time.Hour, x509.ExtKeyUsageClientAuth), nil) }, "rejected"},
	{"an expired certificate", func(a, _ *authority) *tls.Config {
		return with(a, a.issue(-time.Minute, x509.ExtKeyUsageClientAuth), nil)
	}, "rejected"},
	{"a server's certificate", func(a, _ *authority) *tls.Config { return with(a, a.issue(time.Hour, x509.ExtKeyUsageServerAuth), nil) }, "rejected"},
	{"the CA's name on one's own", func(a, _ *authority) *tls.Config {
		return with(a, newAuthority(a.cert.Subject.CommonName).issue(time.Hour, x509.ExtKeyUsageClientAuth), nil)
	}, "rejected"},
	{"TLS 1.0", func(a, _ *authority) *tls.Config {
		return with(a, a.issue(time.Hour, x509.ExtKeyUsageClientAuth), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS10 })
	}, "rejected"},
	{"TLS 1.1", func(a, _ *authority) *tls.Config {
		return with(a, a.issue(time.Hour, x509.ExtKeyUsageClientAuth), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 })
	}, "rejected"},
	{"only ciphers without forward secrecy", func(a, _ *authority) *tls.Config {
		return with(a, a.issue(time.Hour, x509.ExtKeyUsageClientAuth), func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_RC4_128_SHA, tls.TLS_RSA_WITH_AES_128_CBC_SHA}
		})
	}, "rejected"},
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) *authority {
	a := &authority{key: newKey()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, _ := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key) // a valid template
	a.cert, _ = x509.ParseCertificate(der)
	return a
}

func newKey() *ecdsa.PrivateKey {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // without randomness the process ends
	return key
}

// issue makes a certificate that is good for so long.
func (a *authority) issue(valid time.Duration, usage x509.ExtKeyUsage) tls.Certificate {
	key := newKey()
	der, _ := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "x"}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.cert, &key.PublicKey, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// sealedSettings writes the files of a server whose data port asks for
// certificates, and returns the settings that name them.
func (r *setup) sealedSettings() (string, error) {
	r.ours, r.other = newAuthority("ours"), newAuthority("another")
	cert := r.ours.issue(time.Hour, x509.ExtKeyUsageServerAuth)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return "", err
	}
	path := func(name string) string { return filepath.Join(r.dir, name+".pem") }
	for name, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, "key": {Type: "PRIVATE KEY", Bytes: key}, "ca": {Type: "CERTIFICATE", Bytes: r.ours.cert.Raw},
	} {
		if err := os.WriteFile(path(name), pem.EncodeToMemory(block), 0o600); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("log_format: json\ntls_cert: %s\ntls_key: %s\ntls_client_ca: %s", path("cert"), path("key"), path("ca")), nil
}

func runSealed(_ context.Context, r *setup, report func(difference)) error {
	for _, row := range sealed {
		got := r.knock(row)
		if got != row.want {
			report(difference{row.name, aim(one), got, row.want})
		}
		if got == ok {
			r.sealed.acked++
		}
	}
	return nil
}

// knock is what a client gets for one entry: its answer, or "rejected".
func (r *setup) knock(row tlsRow) string {
	c, err := net.DialTimeout("tcp", r.sealed.data, patience)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience)) // reading tells what a closed socket would
	if row.client != nil {
		c = tls.Client(c, row.client(r.ours, r.other))
	}
	if _, err := io.WriteString(c, aim(one)); err != nil {
		return "rejected"
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if ne, timed := err.(net.Error); timed && ne.Timeout() {
		return "left waiting"
	} else if err != nil {
		return "rejected"
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	text, _ := render(resp, body)
	return text
}
