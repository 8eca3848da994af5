//go:build ui

package console

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// axe is the text of axe-core, which npm installs into a temporary folder.
func axe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	npm := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// check runs axe on what the page shows now.
func check(t *testing.T, page *chromium.Page, when string) {
	t.Helper()
	var violations []struct {
		ID, Help string
		Nodes    []struct {
			HTML           string
			FailureSummary string
		}
	}
	if err := page.Eval(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations)`, &violations); err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		for _, node := range v.Nodes[:min(3, len(v.Nodes))] {
			t.Errorf("%s: %s: %s\n%.300s\n%s", when, v.ID, v.Help, node.HTML, node.FailureSummary)
		}
	}
}

func TestAxeFindsNothingInEitherThemeAtEitherWidth(t *testing.T) {
	t.Parallel()
	script := axe(t)
	browser := chromium.Start(t)
	now := time.Now().UnixMilli()
	f := newFake(t)
	f.inTrouble()
	f.namespaces[1]["paused"] = object{"since_ms": now - 60_000, "by": "bob", "reason": "new certificate"}
	f.peek = []object{{"seq": 1, "id": "a-1", "occurred_at_ms": now, "age_ms": 1, "bytes": 9, "data": object{"lap": 3}}}
	f.drops = []object{{"at_ms": now, "namespace": "kart", "partition": "kart-7", "id": "a-1", "reason": "evicted", "entries": 1, "age_ms": 2000}}
	f.dead = []object{{"letter": "0123456789abcdef", "partition": "kart-7", "id": "a-2", "dead_at_ms": now, "reason": "4xx", "detail": "422 no such lap", "attempt": 1, "bytes": 9}}
	for _, scheme := range []string{"dark", "light"} {
		for _, width := range []int{1280, 400} {
			page, _ := visit(t, browser, f.URL+"/", width, 900)
			if err := page.Prefer(scheme); err != nil {
				t.Fatal(err)
			}
			shows(t, page, "kart-3")
			until(t, page, "charts are drawn", `document.querySelectorAll("canvas").length === 2`)
			if err := page.Eval(script+";0", nil); err != nil {
				t.Fatal(err)
			}
			when := fmt.Sprintf("%s, %d px", scheme, width)
			check(t, page, when)
			picture(t, page, fmt.Sprintf("%s-%d", scheme, width), width, map[int]int{1280: 1500, 400: 2600}[width])
			click(t, page, "kart-3")
			shows(t, page, "Looking takes nothing away.")
			for _, tab := range []string{"Drops", "Dead letters"} {
				click(t, page, tab)
				until(t, page, tab+" has entries", `document.querySelector(".drawer .entry .meta")`)
				check(t, page, when+", "+tab)
			}
			picture(t, page, fmt.Sprintf("%s-%d-dead", scheme, width), width, 900)
			click(t, page, "delete")
			shows(t, page, "Type 12 to confirm")
			check(t, page, when+", dialog")
			picture(t, page, fmt.Sprintf("%s-%d-dialog", scheme, width), width, 900)
		}
	}
}
