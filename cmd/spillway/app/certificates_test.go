package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/transport"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca := &authority{t: t}
	ca.cert, ca.key = ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	})
	return ca
}

func (ca *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.NotBefore = time.Now().Add(-2 * time.Hour)
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key
}

// issue makes a certificate for 127.0.0.1, for servers and clients, that expires at
// the given time.
func (ca *authority) issue(name string, end time.Time) (certPEM, keyPEM []byte) {
	ca.t.Helper()
	cert, key := ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return pemOf("CERTIFICATE", cert.Raw), pemOf("PRIVATE KEY", der)
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (ca *authority) pem() []byte { return pemOf("CERTIFICATE", ca.cert.Raw) }

func soon() time.Time { return time.Now().Add(time.Hour) }

// keys are the TLS files of a server, in a temporary folder.
type keys struct {
	t                   *testing.T
	cert, key, clientCA string
}

func newKeys(t *testing.T, serverCA, clientCA *authority) *keys {
	t.Helper()
	dir := t.TempDir()
	k := &keys{t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}
	k.rotate(serverCA.issue("first", soon()))
	k.put(k.clientCA, clientCA.pem())
	return k
}

func (k *keys) put(path string, text []byte) {
	k.t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keys) rotate(cert, key []byte) {
	k.put(k.cert, cert)
	k.put(k.key, key)
}

// tlsClient trusts a CA, and sends the given certificate if there is one.
func tlsClient(t *testing.T, trusted *authority, certPEM, keyPEM []byte) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(trusted.cert)
	if certPEM != nil {
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		// Send it also to a server that names another CA, so that the server rejects it.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestBothPortsRequireTLSAndClientCertificates(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	k := newKeys(t, ca, ca)
	a := startApp(t, "--tls-cert="+k.cert, "--tls-key="+k.key, "--tls-client-ca="+k.clientCA,
		"--admin-tls-cert="+k.cert, "--admin-tls-key="+k.key, "--admin-tls-client-ca="+k.clientCA)

	certPEM, keyPEM := ca.issue("client", soon())
	good := tlsClient(t, ca, certPEM, keyPEM)
	for _, url := range []string{"https://" + a.Listen + "/livez", "https://" + a.AdminListen + "/api/v1/namespaces"} {
		res, err := good.Get(url)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 200 || res.TLS.Version < tls.VersionTLS12 {
			t.Errorf("%s: got %d over TLS %x", url, res.StatusCode, res.TLS.Version)
		}
		bad := func(what, want string, c *http.Client, url string) {
			t.Helper()
			if res, err := c.Get(url); err == nil {
				_ = res.Body.Close()
				t.Errorf("%s: %s: got %d", url, what, res.StatusCode)
			} else if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v", url, what, err)
			}
		}
		bad("no certificate", "certificate required", tlsClient(t, ca, nil, nil), url)
		expired, expiredKey := ca.issue("client", time.Now().Add(-time.Hour))
		bad("an expired certificate", "expired certificate", tlsClient(t, ca, expired, expiredKey), url)
		foreign, foreignKey := other.issue("client", soon())
		bad("a certificate of another CA", "unknown certificate authority", tlsClient(t, ca, foreign, foreignKey), url)
		bad("a client that trusts another CA", "unknown authority", tlsClient(t, other, certPEM, keyPEM), url)
		// A request over plain HTTP gets an answer over plain HTTP.
		res, err = http.Get(strings.Replace(url, "https", "http", 1))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 400 || !strings.Contains(strings.ToLower(string(text)), "https") {
			t.Errorf("%s, plain: got %d %s", url, res.StatusCode, text)
		}
	}
	if n := a.logs.FilterMessageSnippet("TLS handshake").FilterLevelExact(zap.WarnLevel).Len(); n > 0 {
		t.Errorf("failed handshakes of clients log %d warnings", n)
	}
}

func TestRotatedCertificatesAreUsedWithoutDroppingConnections(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	k := newKeys(t, ca, ca)
	a := startApp(t, "--tls-cert="+k.cert, "--tls-key="+k.key)
	kept := tlsClient(t, ca, nil, nil)
	// name sends a request and returns the name in the server's certificate.
	name := func(c *http.Client) string {
		t.Helper()
		res, err := c.Get("https://" + a.Listen + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return res.TLS.PeerCertificates[0].Subject.CommonName
	}
	reconnect := func() string { return name(tlsClient(t, ca, nil, nil)) }
	if got := name(kept); got != "first" {
		t.Fatalf("got %s", got)
	}

	second, secondKey := ca.issue("second", soon())
	k.put(k.cert, second) // half of a rotation: the key is still that of the first certificate
	failed := func() bool { return a.logs.FilterMessageSnippet("certificates not reloaded").Len() > 0 }
	eventually(t, "the mismatch is logged", func() bool { return reconnect() == "first" && failed() })
	k.put(k.key, secondKey)
	eventually(t, "the new certificate is used", func() bool { return reconnect() == "second" })
	if got := name(kept); got != "first" {
		t.Errorf("the open connection was not kept: its certificate is now %s", got)
	}
	k.put(k.cert, []byte("not PEM"))
	eventually(t, "the invalid file is logged", func() bool {
		return reconnect() == "second" && a.logs.FilterMessageSnippet("certificates not reloaded").Len() == 2
	})
	_ = os.Remove(k.cert)
	eventually(t, "the missing file is logged", func() bool {
		return reconnect() == "second" && a.logs.FilterMessageSnippet("certificates not reloaded").Len() == 3
	})
	k.put(k.cert, second)
	eventually(t, "the file that is back is logged", func() bool {
		return reconnect() == "second" && a.logs.FilterMessageSnippet("certificates are those in use again").Len() == 1
	})
	k.rotate(ca.issue("third", soon()))
	eventually(t, "the third certificate is used", func() bool { return reconnect() == "third" })
	for _, line := range a.logs.All() {
		if strings.Contains(line.Message, "PRIVATE") {
			t.Error("a key is logged")
		}
	}
}

func TestCertificatesOfARemovedClientCAAreRejected(t *testing.T) {
	t.Parallel()
	ca, next := newAuthority(t), newAuthority(t)
	k := newKeys(t, ca, ca)
	a := startApp(t, "--tls-cert="+k.cert, "--tls-key="+k.key, "--tls-client-ca="+k.clientCA)
	certPEM, keyPEM := ca.issue("client", soon())
	c := tlsClient(t, ca, certPEM, keyPEM)
	// With a session cache: a resumed session must not skip the check of the CA.
	transport := c.Transport.(*http.Transport)
	transport.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(10)
	transport.DisableKeepAlives = true
	get := func() error {
		res, err := c.Get("https://" + a.Listen + "/livez")
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		return err
	}
	for range 2 {
		if err := get(); err != nil {
			t.Fatal(err)
		}
	}
	k.put(k.clientCA, next.pem())
	eventually(t, "clients of the old CA are rejected", func() bool {
		err := get()
		return err != nil && strings.Contains(err.Error(), "unknown certificate authority")
	})
}

func TestTLSFilesThatDoNotMatchAreUsageErrors(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	k := newKeys(t, ca, ca)
	wrong := newKeys(t, ca, ca)
	for _, tt := range []struct{ args, want string }{
		{"--tls-key=" + k.key, "--tls-key: tls_key: key without a certificate"},
		{"--tls-cert=" + k.cert, "--tls-cert: tls_cert: certificate without a key"},
		{"--tls-client-ca=" + k.clientCA, "--tls-client-ca: tls_client_ca: client certificates need TLS"},
		{"--admin-tls-cert=" + k.cert, "--admin-tls-cert: admin_tls_cert: certificate without a key"},
		{"--tls-cert=/nowhere --tls-key=" + k.key, "--tls-cert: tls_cert: open /nowhere: no such file"},
		{"--tls-cert=" + k.cert + " --tls-key=/nowhere", "--tls-key: tls_key: open /nowhere: no such file"},
		{"--tls-cert=" + k.cert + " --tls-key=" + wrong.key, "--tls-cert: tls_cert: tls: private key does not match public key"},
		{"--tls-cert=" + k.cert + " --tls-key=" + k.key + " --tls-client-ca=" + k.key, "--tls-client-ca: tls_client_ca: the file holds no certificate"},
		{"--admin-tls-cert=" + k.key + " --admin-tls-key=" + k.key, "--admin-tls-cert: admin_tls_cert: tls: failed to find"},
	} {
		_, stderr, code := runCommand(t, nil, "", append([]string{"config", "check"}, strings.Fields(tt.args)...)...)
		if code != exitUsage || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit %d, %s, want %s", tt.args, code, stderr, tt.want)
		}
	}
	if _, stderr, code := runCommand(t, nil, "", "config", "check", "--tls-cert="+k.cert, "--tls-key="+k.key, "--tls-client-ca="+k.clientCA); code != exitOK {
		t.Error(stderr)
	}
}

func TestCertificateExpiryIsAMetric(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	k := newKeys(t, ca, ca)
	reg := prometheus.NewRegistry()
	files := transport.CertificateFiles{Port: "data", Cert: k.cert, Key: k.key}
	if _, err := files.TLS(reg, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	m := families[0].GetMetric()[0]
	pair, err := tls.LoadX509KeyPair(k.cert, k.key)
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(m.GetGauge().GetValue()); got != pair.Leaf.NotAfter.Unix() || got < time.Now().Unix() || m.GetLabel()[0].GetValue() != "data" {
		t.Errorf("got %v", m)
	}
}
