package config

import (
	"net"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
)

// ports checks the addresses, their authentication and their TLS files.
func (f *findings) ports() {
	missing := ""
	if open := f.openNamespaces(); len(open) > 0 {
		missing = "tokens for every namespace (missing for " + strings.Join(open, ", ") + ")"
	}
	f.listener("listen", f.Listen, missing)
	missing = "an admin_token or admin_tokens"
	tokens, err := f.AdminAccess()
	if len(tokens) > 0 || err != nil {
		missing = ""
	}
	f.listener("admin_listen", f.AdminListen, missing)
	if f.Role != "drain" && sameAddress(f.Listen, f.AdminListen) {
		f.wrong("admin_listen", f.AdminListen, "a port other than that of listen, "+f.Listen)
	}
	f.add(err, f.Locate(f.Certificates().Check()), f.Locate(f.AdminCertificates().Check()))
}

// openNamespaces are the namespaces without authentication.
func (c *Config) openNamespaces() (names []string) {
	closed := c.closed()
	for _, name := range c.AllNames() {
		tokens := len(c.Namespaces[name].Tokens) + len(c.QueueNamespaces[name].Tokens) + len(c.PHPNamespaces[name].Tokens)
		if tokens == 0 && !slices.Contains(closed, name) {
			names = append(names, name)
		}
	}
	return names
}

// listener finds an address other than loopback while authentication is missing, unless
// InsecureNoAuth allows it.
func (f *findings) listener(key, address, missing string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		f.wrong(key, address, "host:port, such as 127.0.0.1:8080")
		return
	}
	switch _, err := net.LookupPort("tcp", port); {
	case err != nil:
		f.wrong(key, address, "a port from 0 to 65535, such as 127.0.0.1:8080; 0 chooses a free one")
	case missing != "" && !wire.IsLoopback(host) && !f.InsecureNoAuth:
		f.wrong(key, address, "a loopback address such as 127.0.0.1:8080, or "+missing+", or --insecure-no-auth to listen without authentication")
	}
}

// sameAddress reports whether the second of two listeners would fail because the
// first has its port. It resolves names only if the ports are the same. A name that
// does not resolve is an error of Start.
func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil {
		return false // which listener reports
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
	// Go listens on IPv6 too for 0.0.0.0.
	wild := func(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }
	return wild(addrA.IP) || wild(addrB.IP) || addrA.IP.Equal(addrB.IP) && addrA.Zone == addrB.Zone
}

// OtherThanLoopback reports whether an address in use is not loopback. An empty one
// is not in use.
func OtherThanLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !wire.IsLoopback(host)
}

// Certificates are the PEM files of the data port.
func (c *Config) Certificates() transport.CertificateFiles {
	return transport.CertificateFiles{Port: "data", Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA}
}

// AdminCertificates are the PEM files of the admin port.
func (c *Config) AdminCertificates() transport.CertificateFiles {
	return transport.CertificateFiles{Port: "admin", Prefix: "admin_", Cert: c.AdminTLSCert,
		Key: c.AdminTLSKey, ClientCA: c.AdminTLSClientCA}
}

// lmstfy checks what the API needs of other settings.
func (f *findings) lmstfy() {
	if f.LmstfyMetrics && !f.Lmstfy {
		f.wrong("lmstfy_metrics", f.LmstfyMetrics, "lmstfy: true beside it, because only that API is counted")
	}
}
