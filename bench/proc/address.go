package proc

import (
	"net"
	"strings"
)

// FreeAddrs returns n different loopback addresses nobody listens on. Another
// program may take one before we do; the start then fails, and says so.
func FreeAddrs(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = ln.Close() }()
		addrs[i] = ln.Addr().String()
	}
	return addrs, nil
}

// Port is the port of a host:port.
func Port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
