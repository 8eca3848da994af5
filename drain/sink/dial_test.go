package sink

import "testing"

func TestLinkLocalAddressesAreRefusedInEverySpelling(t *testing.T) {
	t.Parallel()
	for address, refused := range map[string]bool{
		"169.254.169.254:80": true, "[fe80::1%eth0]:80": true, "[::ffff:169.254.0.1]:80": true, "[64:ff9b::a9fe:a9fe]:80": true,
		"127.0.0.1:80": false, "10.1.2.3:80": false, "[fd00::1]:80": false, "[::1]:80": false, "8.8.8.8:443": false,
	} {
		if got := refuseLinkLocal("tcp", address, nil) != nil; got != refused {
			t.Errorf("%s: refused is %t, want %t", address, got, refused)
		}
	}
}
