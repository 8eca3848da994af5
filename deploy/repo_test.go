// Package deploy holds what runs Spillway elsewhere: an image, a compose file,
// an example configuration, and the documents for operators. Its tests hold those,
// the other documents, the Makefile and the direction of imports to what the code
// really does.
package deploy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/cmd/spillway/app/apptest"
)

// root is the repository, seen from the folder tests run in.
const root = ".."

// binary is the path of the program.
var binary string

func TestMain(m *testing.M) { apptest.Main(m, &binary) }

// read is the text of a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// reads opens every folder of the repository, for a test that runs a program there: go test keeps a
// result until something changes that the test opened, and does not see what its programs read.
var reads = sync.OnceValue(func() error {
	return filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "tmp"}, d.Name()) {
			return fs.SkipDir
		}
		return err
	})
})

// output runs a program in the repository and returns what it prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	if err := reads(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// versions are where each package says its version.
var versions = map[string]string{
	"deploy/helm/spillway/Chart.yaml":      `(?m)^(?:version|appVersion): (.*)$`,
	"ingest/client/python/pyproject.toml":  `(?m)^version = "(.*)"$`,
	"ingest/client/js/package.json":        `"version": "(.*)"`,
	"ingest/client/java/pom.xml":           `(?m)^  <version>(.*)</version>$`,
	"ingest/client/java/README.md":         "`io.spillway:spillway:(.*?)`",
	"ingest/client/csharp/Spillway.csproj": `<Version>(.*)</Version>`,
	"ingest/client/php/composer.json":      `"version": "(.*)"`,
	"deploy/OPERATING.md":                  `spillway_([0-9][0-9.]*)_`,
	"README.md":                            `spillway_([0-9][0-9.]*)_`,
}

// releaseVersion is the one version of the chart and of all packages.
func releaseVersion(t *testing.T) string {
	t.Helper()
	list := found(versions["deploy/helm/spillway/Chart.yaml"], read(t, "deploy/helm/spillway/Chart.yaml"))
	if len(list) != 1 {
		t.Fatalf("the chart has the versions %q", list)
	}
	return list[0]
}

func TestEveryPackageHasOneVersion(t *testing.T) {
	t.Parallel()
	want := releaseVersion(t)
	for file, pattern := range versions {
		if got := found(pattern, read(t, file)); len(got) != 1 || got[0] != want {
			t.Errorf("%s has the versions %q, the chart has %s", file, got, want)
		}
	}
}

// Every test that the table of faults names exists.
func TestEveryFaultNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			known[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.SplitSeq(read(t, "partition/FAULTS.md"), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "fault" {
			continue
		}
		rows++
		names := regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[3], -1)
		if len(names) == 0 {
			t.Errorf("no test:%s", cells[1])
		}
		for _, m := range names {
			if !known[m[1]] {
				t.Errorf("%s: there is no %s", strings.TrimSpace(cells[1]), m[1])
			}
		}
	}
	if rows < 35 {
		t.Errorf("only %d rows were read", rows)
	}
}
