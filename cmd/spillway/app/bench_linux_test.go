package app

import (
	"os"
	"os/exec"
	"testing"
)

// On Linux, SSL_CERT_FILE names the authorities of the system.
func TestBenchLoadsAServiceOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	k := newKeys(t, ca, ca)
	s := startServe(t, "--sink=null:", "--tls-cert="+k.cert, "--tls-key="+k.key, "--admin-tls-cert="+k.cert, "--admin-tls-key="+k.key)
	bench := exec.CommandContext(t.Context(), os.Args[0], "bench", "e2e", "--server=https://"+s.listen, "--admin=https://"+s.adminListen,
		"--rate=100", "--duration=200ms", "-o", "json", "--assert=acked=20,errors=0,delivered=20,residual=0")
	bench.Env = []string{"TEST_AS_SPILLWAY=1", "SSL_CERT_FILE=" + k.clientCA} // the authority's certificate
	if out, err := bench.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
