package wire

import (
	"net"
	"net/netip"
	"strings"
)

// What the two ports know of a web page that sends a request. Programs that are not browsers
// send neither Origin nor Sec-Fetch-Site, and name the port as they reach it.

// CrossSite reports whether a page of another origin sends a request. host is the Host header.
// Browsers that know Sec-Fetch-Site send it to loopback and over TLS; it counts before Origin.
func CrossSite(host, origin, fetchSite string) bool {
	switch fetchSite {
	case "":
		_, from, _ := strings.Cut(origin, "://")
		return origin != "" && !strings.EqualFold(from, host)
	case "same-origin", "none": // none: a person typed the address
		return false
	}
	return true
}

// IsLoopback reports whether a host is localhost or a loopback IP address. Other names do not
// count, because what they resolve to can change.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return strings.EqualFold(host, "localhost")
	}
	return ip.Unmap().IsLoopback()
}

// HostName is a Host header without its port and without brackets.
func HostName(header string) string {
	if strings.IndexByte(header, ':') >= 0 { // an error of SplitHostPort allocates
		if host, _, err := net.SplitHostPort(header); err == nil {
			header = host
		}
	}
	return strings.Trim(header, "[]")
}

// Rebindable reports whether a Host header has a name that somebody outside may point at this
// address ("DNS rebinding"): a browser then takes his page for one of this server, and only the
// Host header shows it. Addresses, names below localhost, and names without a dot, as in
// /etc/hosts and networks of containers, are nobody's outside.
func Rebindable(header string) bool {
	if strings.IndexByte(header, '.') < 0 {
		return false
	}
	host := strings.TrimSuffix(HostName(header), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	return strings.Contains(host, ".") && !strings.HasSuffix(strings.ToLower(host), ".localhost")
}
