package jobs

import (
	"fmt"
	"testing"
)

func TestWorkersAreBoundedThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	var w workers
	for i := range maxWorkers {
		w.note("shop", &Worker{Name: fmt.Sprint("w", i), SeenMS: 2_000})
	}
	for i := range 3 {
		w.note("shop", &Worker{Name: fmt.Sprint("late", i), SeenMS: 1_000})
	}
	if n := len(w.of["shop"]); n != maxWorkers || w.of["shop"]["late2"] == nil {
		t.Errorf("%d workers, want %d with the last", n, maxWorkers)
	}
}
