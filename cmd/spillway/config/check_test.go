package config

import (
	"strings"
	"testing"
)

func TestABranchWithoutTokensNeedsNoneForOtherAddressesThanLoopback(t *testing.T) {
	t.Parallel()
	args := []string{"--listen=0.0.0.0:0"}
	if _, err := loadConfig(t, args, nil, threeNamespaces); err != nil {
		t.Error(err)
	}
	_, err := loadConfig(t, args, nil, strings.ReplaceAll(threeNamespaces, "hot,cold", "cold"))
	if err == nil || !strings.Contains(err.Error(), "missing for hot") {
		t.Errorf("got %v, want an error about hot, which is no branch", err)
	}
}

func TestDataAndAdminPortMustDiffer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		listen, adminListen string
		same                bool
	}{
		{"127.0.0.1:7001", "127.0.0.1:7001", true},
		{"127.0.0.1:7001", "localhost:7001", true},
		{"LOCALHOST:7001", "localhost:7001", true},
		{"127.0.0.1:7001", "[::ffff:127.0.0.1]:7001", true},
		{"[::1]:7001", "[0:0::1]:7001", true},
		{":7001", "127.0.0.1:7001", true},
		{"127.0.0.1:7001", "0.0.0.0:7001", true},
		{"[::]:7001", "[::1]:7001", true},
		{"[::1]:7001", "0.0.0.0:7001", true}, // Go listens on IPv6 too for 0.0.0.0
		{"127.0.0.1:80", "127.0.0.1:http", true},
		{"no-such-host.invalid:7001", "no-such-host.invalid:7001", true},
		{"127.0.0.1:7001", "127.0.0.1:7002", false},
		{"127.0.0.1:7001", "127.0.0.2:7001", false},
		{"127.0.0.1:7001", "[::1]:7001", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{":0", "localhost:0", false},
	} {
		args := []string{"--listen=" + tt.listen, "--admin-listen=" + tt.adminListen, "--insecure-no-auth"}
		_, err := loadConfig(t, args, nil, "")
		if got := err != nil && strings.Contains(err.Error(), "--admin-listen: admin_listen: "+tt.adminListen+" is not usable: want a port other than"); got != tt.same || err != nil != tt.same {
			t.Errorf("%s and %s: got %v, want the same: %t", tt.listen, tt.adminListen, err, tt.same)
		}
		if _, err := loadConfig(t, append(args, "--role=drain", "--redis=redis://h"), nil, ""); err != nil {
			t.Errorf("%s and %s: the drain has no data port: %v", tt.listen, tt.adminListen, err)
		}
	}
}

const threeNamespaces = `namespaces:
  all: {sink: "namespaces://hot,cold", tokens: ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]}
  hot: {sink: "stdout:"}
  cold: {sink: "null:", tokens: ["sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"]}
`
