package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestACostRoundAccountsForWhatItProducedClaimedAndCommitted(t *testing.T) {
	t.Parallel()
	cells, err := costRound(t.Context(), settings{redisServer: "redis-server", payload: 200}, partitionBatch)
	if err != nil || len(cells) != len(costPhases) {
		t.Fatalf("got %v, %v; want a cell for each of %v", cells, err, costPhases)
	}
	for i, c := range cells {
		if c.Commands <= 0 || c.CPU <= 0 {
			t.Errorf("%s: got %+v, want some of both", costPhases[i], c)
		}
	}
	if life := cells[3].Commands; life != cells[0].Commands+cells[1].Commands+cells[2].Commands {
		t.Errorf("a whole life is %v commands, which is not the sum of its phases: %+v", life, cells)
	}
}

func TestCostsAreAMarkdownTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := &costReport{Phases: []string{"produce", "claim"}, Rows: []costRow{{2, []costPhase{{3, 5.61}, {6, 12.44}}}}}
	if err := r.sheet(false).print(&out, false); err != nil {
		t.Fatal(err)
	}
	want := "| entries a partition | produce        | claim          |\n| ---                 | ---            | ---            |\n| 2                   | 3.00 · 5.61 µs | 6.00 · 12.4 µs |\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
