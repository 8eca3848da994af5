//go:build seededbugs

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
)

func TestEverySeededBugBreaksItsCheck(t *testing.T) {
	t.Parallel()
	for name, bug := range seededBugs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := buildBroken(t, bug.edits)
			turn(t)
			res := runPlan(t, bin, bug.plan)
			for _, v := range res.violations {
				if v.Check == bug.check {
					t.Log(v)
					return
				}
			}
			t.Errorf("got %v, want a violation of %s", res.violations, bug.check)
			var text strings.Builder
			res.print(&text)
			t.Log(text.String())
		})
	}
}

func TestEverySeededBugOfATestFailsIt(t *testing.T) {
	t.Parallel()
	for name, bug := range testedBugs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn(t)
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay(t, bug.edits), "-timeout", "2m", "-run", "^"+bug.test+"$", "../../"+bug.pkg)
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("%s passes:\n%s", bug.test, out)
			case !strings.Contains(string(out), "--- FAIL: "+bug.test) && !strings.Contains(string(out), "deadlock"):
				t.Errorf("%s did not run: %v\n%s", bug.test, err, out)
			}
		})
	}
}

func TestThePlansOfTheSeededBugsHaveNoViolationWithoutThem(t *testing.T) {
	t.Parallel()
	binary := program(t)
	for name, p := range map[string]*plan{"overflow": overflow, "stale": stale, "roomy": roomy, "outage": outage, "operated": operated, "stepped": stepped} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn(t)
			for _, v := range runPlan(t, binary, p).violations {
				t.Error(v)
			}
		})
	}
}

// turns bounds how many runs there are at once: they measure time.
var turns = make(chan struct{}, 3)

func turn(t *testing.T) {
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

func runPlan(t *testing.T, bin string, p *plan) *result {
	t.Helper()
	// Idle workers of fasthttp and of the drain end after 10 to 20 s.
	s := settings{bin: bin, redisServer: "redis-server", quiet: 20 * time.Second, settle: 20 * time.Second}
	if p.steps() {
		s.clock = steppedClock(t)
	}
	res, err := chaos(t.Context(), s, p, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	if res.dir != "" {
		t.Cleanup(func() { _ = os.RemoveAll(res.dir) })
	}
	return res
}

func steppedClock(t *testing.T) (library string) {
	t.Helper()
	library, err := proc.BuildClock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return library
}

func TestTheClockOfRedisStepsAndARestartKeepsIt(t *testing.T) {
	t.Parallel()
	r := &setup{dir: t.TempDir(), plan: stepped, settings: settings{redisServer: "redis-server", clock: steppedClock(t)}}
	t.Cleanup(r.close)
	for _, ahead := range []time.Duration{0, 4 * time.Second, -4 * time.Second, 2500 * time.Millisecond} {
		if err := r.clock().Set(ahead); err != nil {
			t.Fatal(err)
		}
		for _, started := range []bool{false, true} {
			var err error
			if r.nodes == nil {
				err = r.startStore(t.Context())
			} else if started {
				r.nodes[0].kill()
				err = r.startNode(t.Context(), r.nodes[0])
			}
			if err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			now, err := r.nodes[0].client.Time(t.Context()).Result()
			if least, most := before.Add(ahead), time.Now().Add(ahead); err != nil || now.Before(least.Truncate(time.Microsecond)) || now.After(most) {
				t.Errorf("%v, restarted %v: it is %v, %v; want %v to %v", ahead, started, now, err, least, most)
			}
		}
	}
}

// buildBroken builds the program with its sources edited.
func buildBroken(t *testing.T, edits []edit) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "spillway")
	if out, err := exec.Command("go", "build", "-overlay", overlay(t, edits), "-o", bin, "../../cmd/spillway").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// overlay is a file that makes go read the edited sources.
func overlay(t *testing.T, edits []edit) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for path, text := range applyEdits(t, edits) {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
