//go:build deploy

package deploy

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The page is generated, and needs neither groff nor mandoc: where one of them is
// there, it reads the page without a warning.
func TestPackagesManualPageHasNoWarnings(t *testing.T) {
	t.Parallel()
	page := filepath.Join(root, "deploy", "man", "spillway.1")
	for _, reader := range [][]string{{"groff", "-ww", "-z", "-man", "-Tutf8"}, {"mandoc", "-T", "lint", "-W", "error"}} {
		path, err := exec.LookPath(reader[0])
		if err != nil {
			t.Logf("%s is not on PATH", reader[0])
			continue
		}
		out, err := exec.CommandContext(t.Context(), path, append(reader[1:], page)...).CombinedOutput()
		if text := strings.TrimSpace(string(out)); err != nil || text != "" {
			t.Errorf("%s: %v\n%s", reader[0], err, text)
		}
	}
}
