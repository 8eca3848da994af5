package main

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/lua/proc"
)

// program is the path of a spillway. A test that plays faults on it is left out of a short run.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("chaos takes minutes")
	}
	path, err := proc.Build(t.TempDir(), "./cmd/spillway")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The short form of `make chaos`. Three runs have every kind of fault, the second
// alone clock steps: in the first partitions overflow, in the second entries go
// stale, in the third all entries must arrive. In the fourth Redis loses entries
// that it acknowledged, and Spillway must notice. The fifth has a cluster, whose masters are
// killed and whose slots move while a partition is paused.
func TestEveryCheckHoldsWhileEverythingBreaks(t *testing.T) {
	t.Parallel()
	binary := program(t)
	turns := make(chan struct{}, 2) // runs at once: more of them measure the machine
	for _, flags := range []string{"-seed 6", "-seed 7", "-seed 8", "-seed 6 -fsync none -only kill,lose-replies",
		"-seed 3 -only pause-partition,failover,move-slots,lose-replies,kill"} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			defer func() { <-turns }()
			var out, progress bytes.Buffer
			code := command(t.Context(), append(strings.Fields(flags), "-bin", binary, "-duration", "12s", "-v"), &out, &progress)
			if code != 0 {
				t.Errorf("exit %d\n%s\n%s", code, &out, &progress)
			}
			t.Log(out.String())
		})
	}
}

func TestTheSameSeedMakesTheSamePlan(t *testing.T) {
	t.Parallel()
	met := map[string]bool{}
	for seed := range uint64(30) {
		a, b := newPlan(seed, 30*time.Second), newPlan(seed, 30*time.Second)
		for _, p := range []*plan{a, b} {
			for i := range p.faults {
				p.faults[i].inject = nil // functions do not compare
			}
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d: got %v, then %v", seed, a, b)
		}
		met[fmt.Sprint(a.faults)] = true
	}
	if len(met) != 30 {
		t.Errorf("30 seeds make %d different plans", len(met))
	}
}

func TestAPlanLeavesTimeForEachFaultAndMeetsAllKinds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		p := newPlan(seed, 30*time.Second)
		busy, kinds := map[string]time.Duration{}, map[string]bool{}
		for _, f := range p.faults {
			if f.at < busy[f.target] || f.at+f.lasts > p.duration {
				t.Errorf("seed %d: %s of %s at %v is while another lasts, or after the end", seed, f.kind, f.target, f.at)
			}
			busy[f.target] = f.at + f.lasts
			kinds[f.kind] = true
		}
		if want := len(kindNames()) - len(clusterKinds) - int(1-seed%2); len(kinds) != want || p.steps() != (seed%2 == 1) {
			t.Errorf("seed %d: got %d kinds, want %d; clock steps: %v", seed, len(kinds), want, p.steps())
		}
	}
}

func TestWrongFlagsAreUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-seed", "one"}, {"-duration", "1s"}, {"-seeds", "0"}, {"-only", "kill,nothing"}, {"-fsync", "daily"}} {
		var progress bytes.Buffer
		if code := command(t.Context(), args, &bytes.Buffer{}, &progress); code != 2 || progress.Len() == 0 {
			t.Errorf("%v: got exit %d and %q, want 2 and a word about it", args, code, &progress)
		}
	}
}

func TestWithoutACompilerTheOtherFaultsArePlayed(t *testing.T) {
	t.Parallel()
	p, all := newPlan(1, 30*time.Second), newPlan(1, 30*time.Second)
	p.withoutSteps()
	steps := 0
	for _, f := range all.faults {
		if f.kind == check.KindClockStep {
			steps++
		}
	}
	if steps < 2 || p.steps() || len(p.faults)+steps != len(all.faults) {
		t.Errorf("%d clock steps, %d other faults of %d", steps, len(p.faults), len(all.faults))
	}
}

func TestOneServerLivesToNoticeThatRedisForgets(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		p := newPlan(seed, 30*time.Second)
		p.fsync = "none"
		p.withWitness()
		killed := map[string]int{}
		for _, f := range p.faults {
			if f.kind == "kill" {
				killed[f.target]++
			}
		}
		if last := p.server(len(p.roles) - 1); killed[last] > 0 || len(killed) < 2 {
			t.Errorf("seed %d: %v were killed, the last is %s", seed, killed, last)
		}
	}
}

func TestAServerThatDoesNotStartFailsTheRun(t *testing.T) {
	t.Parallel()
	var progress bytes.Buffer
	code := command(t.Context(), []string{"-bin", "/bin/false", "-duration", "3s"}, &bytes.Buffer{}, &progress)
	if code != 1 || !strings.Contains(progress.String(), "the process ended") {
		t.Errorf("got exit %d and %q", code, &progress)
	}
}
