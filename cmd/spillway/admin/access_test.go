package admin

import (
	"strings"
	"testing"
)

// FuzzAdminHost checks that a listener on loopback rejects every Host header with
// the name of another host.
func FuzzAdminHost(f *testing.F) {
	for _, form := range []string{"%s", "%s:8081", "[%s]", "127.0.0.1.%s", "127.0.0.1:%s", "%s%%127.0.0.1", "[127.0.0.1]%s", "127.0.0.1%s", "::1%%%s", "%s[::1]", "%s\t127.0.0.1", "%s@127.0.0.1"} {
		f.Add(form, "/metrics")
	}
	f.Add("%s.localhost", "/livez")
	f.Fuzz(func(t *testing.T, form, path string) {
		host := strings.ReplaceAll(form, "%s", "evil.example")
		if !strings.Contains(host, "evil.example") {
			return
		}
		// The part after a colon is a port, and the part after a percent sign is
		// the zone of an IP address: neither is resolved.
		name, _, _ := strings.Cut(host, ":")
		if strings.Contains(name, "evil.example") && hostAllowed(host, path, "127.0.0.1") {
			t.Fatalf("%q is accepted", host)
		}
	})
}
