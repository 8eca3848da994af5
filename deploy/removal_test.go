package deploy

import (
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

// TestTheRemovalOfANamespaceLeavesTheOthers runs the command of OPERATING.md.
func TestTheRemovalOfANamespaceLeavesTheOthers(t *testing.T) {
	t.Parallel()
	host, port, err := net.SplitHostPort(redistest.Start(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	cli := "redis-cli -h " + host + " -p " + port
	run := func(command string) string {
		t.Helper()
		text, err := exec.Command("bash", "-c", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v %s", command, err, text)
		}
		return string(text)
	}
	removed := []string{"sw:{kart.0}:q:p", "sw:{kart.12}:ledger", "sw:{kart.0}:m:kart.eu", "sw:{kart}:drainers"}
	kept := []string{"sw:{control}:doc", "sw:{kart.1.0}:ledger", "sw:{kart.1x.0}:ledger", "sw:{kart.eu.0}:q:p", "sw:{karts.0}:ledger"}
	for _, key := range append(removed, kept...) {
		run(cli + " set '" + key + "' 1")
	}
	command := ""
	for line := range strings.SplitSeq(read(t, "deploy/OPERATING.md"), "\n") {
		if strings.Contains(line, "--pattern 'sw:{kart*") {
			command = line
		}
	}
	run(strings.ReplaceAll(command, "redis-cli", cli))
	left := strings.Fields(run(cli + " --scan"))
	slices.Sort(left)
	if !slices.Equal(left, kept) {
		t.Errorf("left are %q, want %q", left, kept)
	}
}
