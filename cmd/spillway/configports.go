package main

import (
	"errors"
	"net"
	"net/netip"
	"strings"
)

// validatePorts judges who can reach the ports, and what keeps them out.
func (c *Config) validatePorts(wrong func(key string, value any, want string)) (errs []error) {
	lacking := ""
	if open := c.openNamespaces(); len(open) > 0 {
		lacking = "tokens for every namespace (" + strings.Join(open, ", ") + " has none)"
	}
	c.validateListener("listen", c.Listen, lacking, wrong)
	lacking = "an admin_token"
	if c.AdminToken != "" {
		lacking = ""
		if _, err := parseHash(c.AdminToken); err != nil {
			errs = append(errs, c.locate(&settingError{"admin_token", err}))
		}
	}
	c.validateListener("admin_listen", c.AdminListen, lacking, wrong)
	if c.Role != "drain" && sameAddress(c.Listen, c.AdminListen) {
		wrong("admin_listen", c.AdminListen, "another port than listen, which is "+c.Listen)
	}
	return append(errs,
		c.validateTLS("", c.TLSCert, c.TLSKey, c.TLSClientCA),
		c.validateTLS("admin_", c.AdminTLSCert, c.AdminTLSKey, c.AdminTLSClientCA))
}

// openNamespaces are those that anybody may send to.
func (c *Config) openNamespaces() (names []string) {
	for _, name := range c.names() {
		if len(c.Namespaces[name].Tokens) == 0 {
			names = append(names, name)
		}
	}
	return names
}

// validateListener refuses an address that strangers can reach while something
// is lacking that would keep them out, unless they were invited.
func (c *Config) validateListener(key, address, lacking string, wrong func(key string, value any, want string)) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		wrong(key, address, "host:port, such as 127.0.0.1:8080")
		return
	}
	switch _, err := net.LookupPort("tcp", port); {
	case err != nil:
		wrong(key, address, "a port from 0 to 65535, such as 127.0.0.1:8080; 0 takes a free one")
	case lacking != "" && !isLoopback(host) && !c.InsecureNoAuth:
		wrong(key, address, "a loopback address such as 127.0.0.1:8080, or "+lacking+", or --insecure-no-auth where everybody who can reach the port may use it")
	}
}

// sameAddress reports whether the second of two listeners would find its port
// taken by the first. Only names on one port are looked up, as listening does;
// of one that is not found, the start tells.
func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil {
		return false // and said so
	}
	numberA, errA := net.LookupPort("tcp", portA)
	numberB, errB := net.LookupPort("tcp", portB)
	if errA != nil || errB != nil || numberA != numberB || numberA == 0 {
		return false
	}
	if strings.EqualFold(hostA, hostB) {
		return true
	}
	addrA, errA := net.ResolveTCPAddr("tcp", a)
	addrB, errB := net.ResolveTCPAddr("tcp", b)
	if errA != nil || errB != nil {
		return false
	}
	// Go opens 0.0.0.0 for IPv6 as well.
	wild := func(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }
	return wild(addrA.IP) || wild(addrB.IP) || addrA.IP.Equal(addrB.IP) && addrA.Zone == addrB.Zone
}

// beyondLoopback judges an address in use; "" is none.
func beyondLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !isLoopback(host)
}

// isLoopback judges the host of an address by its spelling: names but
// localhost may point anywhere tomorrow.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return strings.EqualFold(host, "localhost")
	}
	return ip.Unmap().IsLoopback()
}

// validateTLS wants certificate and key of a port together.
func (c *Config) validateTLS(prefix, cert, key, clientCA string) error {
	switch {
	case cert == "" && key != "":
		return c.locate(&settingError{prefix + "tls_key", errors.New("a key without a certificate: name its file as " + prefix + "tls_cert")})
	case cert == "" && clientCA != "":
		return c.locate(&settingError{prefix + "tls_client_ca", errors.New("clients cannot be asked for certificates without TLS: give " + prefix + "tls_cert and " + prefix + "tls_key")})
	case cert != "" && key == "":
		return c.locate(&settingError{prefix + "tls_cert", errors.New("a certificate without a key: name its file as " + prefix + "tls_key")})
	}
	return nil
}
