package proc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// FreeAddr is a loopback address that nothing listens on, and that no other
// process of ours is given while this one runs. Its port is below the range the
// kernel hands out, so no outgoing connection takes it either.
func FreeAddr() (string, error) {
	for range 12000 {
		port := nextPort()
		if !reserve(port) {
			continue
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if Free(addr) {
			return addr, nil
		}
	}
	return "", errors.New("no free loopback port found")
}

// FreeAddrs is n of them.
func FreeAddrs(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		var err error
		if addrs[i], err = FreeAddr(); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// Free is whether nothing listens there. It dials: a listener of its own could outlive its Close, see
// Listen.
func Free(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Listen waits for up to a second while the address is in use. Who starts a process between another's
// Listen and Close lends it the socket until its exec.
func Listen(addr string) (net.Listener, error) {
	give := time.Now().Add(time.Second)
	for {
		l, err := net.Listen("tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(give) {
			return l, err
		}
		time.Sleep(time.Millisecond)
	}
}

// Port is the port of a host:port.
func Port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

var ports struct {
	sync.Mutex
	next     int
	reserved map[int]*os.File // open for as long as the process lives
}

// nextPort walks 10000..22000. Cluster buses use port+10000.
func nextPort() int {
	ports.Lock()
	defer ports.Unlock()
	if ports.next == 0 {
		ports.next = 10000 + (os.Getpid()*37)%12000
	}
	ports.next++
	if ports.next >= 22000 {
		ports.next = 10000
	}
	return ports.next
}

// reserve takes a port for this process by a lock that the kernel frees at its
// end. Between finding a port free and a server listening on it there is a gap,
// in which another test binary would find it free as well.
func reserve(port int) bool {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("spillway-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return false
	}
	ports.Lock()
	defer ports.Unlock()
	if ports.reserved == nil {
		ports.reserved = map[int]*os.File{}
	}
	ports.reserved[port] = f
	return true
}
