package deploy

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const releaseFile = ".github/goreleaser.yaml"

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

// tagged is a clone of the last commit in a folder of its own, with the tag of the release.
func tagged(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "spillway")
	output(t, "git", "clone", "-q", ".", dir)
	output(t, "git", "-C", dir, "tag", "-f", "v"+releaseVersion(t))
	return dir
}

// The packages and the other platforms take minutes: make test-deploy and make test-clients build those twice.
func TestAReleasedProgramIsTheSameFromEachClone(t *testing.T) {
	t.Parallel()
	var release struct {
		Builds []struct {
			Main           string
			Flags, Ldflags []string
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, releaseFile)), &release); err != nil {
		t.Fatal(err)
	}
	of := release.Builds[0]
	var programs [2][]byte
	for i := range programs {
		dir := tagged(t)
		program := filepath.Join(dir, "bin", "spillway")
		args := append([]string{"build", "-o", program, "-ldflags", strings.Join(of.Ldflags, " ")}, of.Flags...)
		cmd := exec.CommandContext(t.Context(), "go", append(args, of.Main)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if said := output(t, program, "version"); !regexp.MustCompile(`^spillway v` + releaseVersion(t) + `\nrevision [0-9a-f]{40} modified false\n`).MatchString(said) {
			t.Errorf("it says: %s", said)
		}
		var err error
		if programs[i], err = os.ReadFile(program); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Error("two builds of one commit differ")
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(programs[0])
	if err == nil {
		err = w.Close()
	}
	if err != nil || packed.Len() > 25<<20 {
		t.Errorf("%v; packed it has %d MB, want 25 at most", err, packed.Len()>>20)
	}
}
