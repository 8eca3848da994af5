package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAShortRunKeepsEveryPromise runs both scenarios on the real binary and a
// real Redis. At this rate it says nothing about speed.
func TestAShortRunKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "spillway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/spillway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var out, progress bytes.Buffer
	args := []string{"-bin", bin, "-rate", "200", "-duration", "1s", "-partitions", "10", "-json"}
	code := command(t.Context(), args, &out, &progress)
	acked := map[string]int64{}
	for dec := json.NewDecoder(&out); dec.More(); {
		var rep report
		if err := dec.Decode(&rep); err != nil {
			t.Fatal(err)
		}
		acked[rep.Scenario] = rep.Load.Acked
		for _, c := range rep.Checks {
			if !c.Held && c.Promise != promiseRate { // other tests share the machine
				t.Errorf("%s: %s: %s", rep.Scenario, c.Promise, c.Got)
			}
		}
	}
	if acked["throughput"] != 200 || acked["memory"] != memoryPartitions*memoryEntries {
		t.Errorf("got %v acknowledged, exit %d; want 200 and %d\n%s", acked, code, memoryPartitions*memoryEntries, progress.String())
	}
}
