//go:build sinks

package postgres

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
)

func TestTLSIsUsedAndCheckedAsTheModeSays(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, "localhost")
	server := startServer(t, map[string][]byte{"cert.pem": cert, "key.pem": key}, "ssl=on", "ssl_cert_file=../cert.pem", "ssl_key_file=../key.pem")
	d := server.create(t, "game")
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trusted, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	byName := "localhost:" + proc.Port(server.addr)
	for _, c := range []struct{ host, options, want string }{
		{server.addr, "", "t"},
		{server.addr, "&sslmode=disable", "f"},
		{server.addr, "&sslmode=require", "t"},
		{byName, "&sslmode=verify-full&sslrootcert=" + trusted, "t"},
		{server.addr, "&sslmode=verify-ca&sslrootcert=" + trusted, "t"},
		{server.addr, "&sslmode=verify-full&sslrootcert=" + trusted, "its certificate is not trusted"},
		{byName, "&sslmode=verify-full", "its certificate is not trusted"},
	} {
		s := newSink(t, "postgres://owner:s3cret@"+c.host+"/game?table=events"+c.options)
		got := fmt.Sprint(s.Open(t.Context()))
		if got == "<nil>" {
			got = d.query(t, "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'spillway' ORDER BY backend_start DESC LIMIT 1")[0][0]
		}
		if !strings.HasSuffix(got, c.want) {
			t.Errorf("%s%s: got %s, want %s", c.host, c.options, got, c.want)
		}
	}
}

// certificate is a self-signed one for a name, and its key.
func certificate(t *testing.T, name string) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err1 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	private, err2 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}
