package sink

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// linkLocalError rejects the addresses where clouds serve credentials to their
// machines (169.254.169.254). Private and loopback addresses are fine: the URL
// comes from a flag or a file of the operator.
type linkLocalError struct{ ip netip.Addr }

func (e *linkLocalError) Error() string {
	return fmt.Sprintf("link-local address %s is rejected", e.ip)
}

// rejectLinkLocal is a net.Dialer's Control: it sees the resolved address, so a
// name that points there, or begins to, is rejected as well.
func rejectLinkLocal(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if linkLocal(to.Addr()) {
		return &linkLocalError{to.Addr()}
	}
	return nil
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052: IPv4 behind a translator

func linkLocal(ip netip.Addr) bool {
	ip = ip.Unmap()
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip.IsLinkLocalUnicast()
}

// looksNumeric reports whether a host that is no literal address would be read
// as one by some resolvers: 2130706433, 0x7f000001, 127.1, 0177.0.0.1. No name
// ends in such a label. (WHATWG URL, "ends in a number")
func looksNumeric(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, found := strings.CutPrefix(strings.ToLower(last), "0x"); found {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
