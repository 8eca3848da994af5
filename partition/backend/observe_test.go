package backend_test

import (
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

func TestObserveHearsCommandsAndFiguresAddUpINFO(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--maxmemory", "64mb")
	b := backendtest.Open(t, backend.Config{URL: redis.URL()})
	var mu sync.Mutex
	heard := map[string][2]int{} // command → done, failed
	b.Observe(func(command string, took time.Duration, failed bool) {
		mu.Lock()
		defer mu.Unlock()
		n := heard[command]
		if failed {
			n[1]++
		} else {
			n[0]++
		}
		heard[command] = n
		if took <= 0 {
			t.Errorf("%s took %v", command, took)
		}
	})
	ctx := t.Context()
	b.In.Set(ctx, "a", "text", time.Hour)
	b.Out.Incr(ctx, "a") // fails
	b.Background.Get(ctx, "none")
	pipe := b.In.Pipeline()
	pipe.Set(ctx, "b", 1, 0)
	pipe.Set(ctx, "c", 1, 0)
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	figures, err := b.Figures(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if figures["keys"] != 3 || figures["expires"] != 1 || figures["maxmemory"] != 64<<20 || figures["used_memory"] <= 0 {
		t.Errorf("figures: keys %v, expires %v, maxmemory %v, used_memory %v", figures["keys"], figures["expires"], figures["maxmemory"], figures["used_memory"])
	}
	mu.Lock()
	defer mu.Unlock()
	for command, want := range map[string][2]int{"set": {1, 0}, "incr": {0, 1}, "get": {1, 0}, "pipeline": {1, 0}, "info": {1, 0}} {
		if heard[command] != want {
			t.Errorf("%s: heard %v, want %v", command, heard[command], want)
		}
	}
}
