//go:build deploy

package deploy

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

const releaseFile = ".github/goreleaser.yaml"

// packages are a .deb and an .rpm of this machine's architecture, built once as a
// release builds them. It returns their paths.
func packages(t *testing.T) (deb, rpm string) {
	t.Helper()
	built.Do(func() { built.dir = buildPackages(t) })
	if built.dir == "" {
		t.Fatal("the packages were not built")
	}
	for _, p := range []struct {
		into    *string
		pattern string
	}{{&deb, "*.deb"}, {&rpm, "*.rpm"}} {
		list, err := filepath.Glob(filepath.Join(built.dir, p.pattern))
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: got %v, %v; want one", p.pattern, list, err)
		}
		*p.into = list[0]
	}
	return deb, rpm
}

var built struct {
	sync.Once
	dir string // within binaryDir, which TestMain removes
}

func buildPackages(t *testing.T) (dist string) {
	t.Helper()
	dist = filepath.Join(filepath.Dir(binary), "dist")
	output(t, "goreleaser", "release", "--snapshot", "--clean", "--skip=archive,sbom", "--config", onePlatform(t, dist))
	return dist
}

// onePlatform is a file with the configuration of a release, for a build of this machine's platform alone into
// dist: the others would take minutes.
func onePlatform(t *testing.T, dist string) (file string) {
	t.Helper()
	config := parse(t, read(t, releaseFile))
	config["dist"] = dist
	for _, b := range config["builds"].([]any) {
		b.(map[string]any)["goos"], b.(map[string]any)["goarch"] = []string{"linux"}, []string{runtime.GOARCH}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "goreleaser.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPackagesAreTheSameFromEachCloneAndCache(t *testing.T) {
	t.Parallel()
	sums := map[string][]string{}
	for _, cache := range []string{output(t, "go", "env", "GOCACHE"), t.TempDir()} {
		dir, dist := tagged(t), t.TempDir()
		cmd := exec.CommandContext(t.Context(), "goreleaser", "release", "--clean", "--skip=publish,announce", "--config", onePlatform(t, dist))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOCACHE="+strings.TrimSpace(cache))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		programs, err := filepath.Glob(filepath.Join(dist, "*", "spillway"))
		if err != nil || len(programs) != 1 {
			t.Fatalf("programs: got %v, %v; want one", programs, err)
		}
		if said := output(t, programs[0], "version"); !regexp.MustCompile(`^spillway v` + releaseVersion(t) + `\nrevision [0-9a-f]{40} modified false\n`).MatchString(said) {
			t.Errorf("it says: %s", said)
		}
		for _, pattern := range []string{"*.tar.gz", "*.deb", "*.rpm", "*.bom.json"} {
			list, err := filepath.Glob(filepath.Join(dist, pattern))
			if err != nil || len(list) != 1 {
				t.Fatalf("%s: got %v, %v; want one", pattern, list, err)
			}
			content, err := os.ReadFile(list[0])
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(list[0])
			if len(content) > 25<<20 {
				t.Errorf("%s has %d MB, want 25 at most", name, len(content)>>20)
			}
			sums[name] = append(sums[name], fmt.Sprintf("%x", sha256.Sum256(content)))
		}
	}
	for name, of := range sums {
		if len(of) != 2 || of[0] != of[1] {
			t.Errorf("%s: two builds of one commit have the sums %v", name, of)
		}
	}
}

// unpacked is a folder with the files of the .deb.
func unpacked(t *testing.T) (dir string) {
	t.Helper()
	deb, _ := packages(t)
	dir = t.TempDir()
	output(t, "dpkg-deb", "-x", deb, dir)
	return dir
}

// packaged are the files of a package and their permissions.
var packaged = map[string]fs.FileMode{
	"/usr/bin/spillway":                                  0o755,
	"/usr/lib/systemd/system/spillway.service":           0o644,
	"/usr/lib/sysusers.d/spillway.conf":                  0o644,
	"/usr/lib/tmpfiles.d/spillway.conf":                  0o644,
	"/etc/spillway/spillway.yaml":                        0o640,
	"/usr/share/doc/spillway/spillway.example.yaml":      0o644,
	"/usr/share/doc/spillway/OPERATING.md":               0o644,
	"/usr/share/doc/spillway/CONFIGURATION.md":           0o644,
	"/usr/share/doc/spillway/alerts.yaml":                0o644,
	"/usr/share/doc/spillway/copyright":                  0o644,
	"/usr/share/man/man1/spillway.1.gz":                  0o644,
	"/usr/share/bash-completion/completions/spillway":    0o644,
	"/usr/share/zsh/vendor-completions/_spillway":        0o644,
	"/usr/share/fish/vendor_completions.d/spillway.fish": 0o644,
}

func TestPackagesReleaseConfigurationIsValid(t *testing.T) {
	t.Parallel()
	output(t, "goreleaser", "check", "--config", releaseFile)
}

func TestPackagesHaveTheirFilesWithTheirRights(t *testing.T) {
	t.Parallel()
	dir := unpacked(t)
	found := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			found[strings.TrimPrefix(path, dir)] = info.Mode()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, rpm := packages(t)
	inRPM := strings.Fields(output(t, "rpm", "-qlp", rpm))
	for path, mode := range packaged {
		if found[path] != mode {
			t.Errorf("%s: the .deb has %v, want %v", path, found[path], mode)
		}
		// Each distribution has its own folder for zsh.
		if !slices.Contains(inRPM, strings.Replace(path, "zsh/vendor-completions", "zsh/site-functions", 1)) {
			t.Errorf("%s: not in the .rpm", path)
		}
	}
	for path := range found {
		if _, ok := packaged[path]; !ok {
			t.Errorf("%s is in the .deb, and nobody expects it", path)
		}
	}
}

func TestPackagesKeepAChangedConfiguration(t *testing.T) {
	t.Parallel()
	deb, rpm := packages(t)
	if got := output(t, "dpkg-deb", "-I", deb, "conffiles"); strings.TrimSpace(got) != "/etc/spillway/spillway.yaml" {
		t.Errorf("conffiles of the .deb: %q", got)
	}
	if got := output(t, "rpm", "-qp", "--queryformat", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]", rpm); !regexp.MustCompile(`(?m)^/etc/spillway/spillway.yaml cn$`).MatchString(got) {
		t.Errorf("the .rpm has no configuration that it keeps: %s", got)
	}
}

func TestPackagesRunAndConfigureWhatSpillwayAccepts(t *testing.T) {
	t.Parallel()
	dir := unpacked(t)
	program := filepath.Join(dir, "usr/bin/spillway")
	config, err := os.ReadFile(filepath.Join(dir, "etc/spillway/spillway.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	checkPackaged(t, program, string(config))
	if completion := output(t, program, "completion", "bash"); completion != read(t, "tmp/packages/spillway.bash") || len(completion) < 100 {
		t.Errorf("the completion of the package is not that of its program: %d bytes", len(completion))
	}
	if page := output(t, "gzip", "-dc", filepath.Join(dir, "usr/share/man/man1/spillway.1.gz")); page != read(t, "deploy/man/spillway.1") {
		t.Error("the manual page of the package is not that of the repository")
	}
}

func TestPackagesScriptsAreValidShell(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"postinstall", "preremove", "postremove", "generated", "clients", "release"} {
		output(t, "sh", "-n", "deploy/packages/"+name+".sh")
	}
}

func TestPackagesMakeTheUserOfTheUnit(t *testing.T) {
	t.Parallel()
	dir := unpacked(t)
	// The names are all that it reads of the system below dir.
	if err := os.WriteFile(filepath.Join(dir, "etc/passwd"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := output(t, "systemd-sysusers", "--root="+dir, "--dry-run", "spillway.conf"); !strings.Contains(said, "spillway") {
		t.Errorf("systemd-sysusers makes no user: %q", said)
	}
	unit := read(t, "deploy/systemd/spillway.service")
	if !strings.Contains(unit, "\nUser=spillway\n") || !strings.Contains(unit, "\nGroup=spillway\n") {
		t.Error("the unit runs as another user")
	}
}

// The program is where the unit looks for it once the package is installed; until then
// it is where the package was unpacked.
func TestUnitVerifiesAndExposesLittle(t *testing.T) {
	t.Parallel()
	dir := unpacked(t)
	text, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system/spillway.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "spillway.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "=/usr/bin/", "="+dir+"/usr/bin/")), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := output(t, "systemd-analyze", "verify", "--man=no", unit); said != "" {
		t.Errorf("systemd-analyze verify: %s", said)
	}
	// Of 100: the exposure is 1.2 on a scale of 10. What remains is the network.
	output(t, "systemd-analyze", "security", "--offline=true", "--threshold=13", unit)
}
