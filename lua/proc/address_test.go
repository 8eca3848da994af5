package proc_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/spillway-io/spillway/lua/proc"
)

// A port of the kernel's own range may be the source of an outgoing connection by
// the time a server listens on it.
func TestFreeAddressesAreOutsideTheRangeOfOutgoingConnectionsAndNeverTheSame(t *testing.T) {
	t.Parallel()
	lowest := 32768
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if _, err := fmt.Sscan(string(text), &lowest); err != nil {
			t.Fatal(err)
		}
	}
	addrs, err := proc.FreeAddrs(200)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range addrs {
		if port, err := strconv.Atoi(proc.Port(a)); err != nil || port >= lowest {
			t.Errorf("%s: the kernel hands out ports from %d on", a, lowest)
		}
		if seen[a] {
			t.Errorf("%s is given twice", a)
		}
		seen[a] = true
	}
}

// Parallel tests start servers all the time. 1 listener in 100 found its address in use.
func TestAFreeAddressIsFreeWhileProcessesAreStarted(t *testing.T) {
	t.Parallel()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				_ = exec.Command("true").Run()
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	for range 1000 {
		addr, err := proc.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if l, err = proc.Listen(addr); err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
