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
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		wrong(key, address, "host:port, such as 127.0.0.1:8080")
	case lacking != "" && !isLoopback(host) && !c.InsecureNoAuth:
		wrong(key, address, "a loopback address such as 127.0.0.1:8080, or "+lacking+", or --insecure-no-auth where everybody who can reach the port may use it")
	}
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
