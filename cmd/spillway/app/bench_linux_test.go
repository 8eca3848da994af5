package app

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"
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

func TestServeOnATerminalPrintsTheAddressOfTheConsole(t *testing.T) {
	t.Parallel()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer keyboard.Close()
	var number, locked int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	serve := exec.CommandContext(t.Context(), os.Args[0], "serve", "--sink=null:", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--log-format=json")
	serve.Env, serve.Stderr = []string{"TEST_AS_SPILLWAY=1"}, terminal
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = serve.Process.Kill(); _ = serve.Wait() }()
	lines := bufio.NewScanner(keyboard)
	for said := ""; lines.Scan(); said += lines.Text() + "\n" {
		if url, is := strings.CutPrefix(lines.Text(), "Console: http://127.0.0.1:"); is {
			if !strings.Contains(said, `"admin_listen":"127.0.0.1:`+strings.TrimSuffix(url, "/")+`"`) {
				t.Errorf("%q after\n%s", lines.Text(), said)
			}
			return
		}
	}
	t.Errorf("no address: %v", lines.Err())
}
