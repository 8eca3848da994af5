package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const unitFile = "deploy/systemd/spillway.service"

func TestTheUnitRunsACommandThatExists(t *testing.T) {
	t.Parallel()
	unit := read(t, unitFile)
	start := found(`(?m)^ExecStart=(.*)$`, unit)
	if len(start) != 1 {
		t.Fatalf("got %v, want one ExecStart", start)
	}
	words := strings.Fields(start[0])
	if words[0] != "/usr/bin/spillway" || words[1] != "serve" {
		t.Errorf("it runs %v, want /usr/bin/spillway serve", words)
	}
	known := flagsOf(t, "serve")
	for _, word := range words[2:] {
		if strings.HasPrefix(word, "--") && !slices.Contains(known, word) {
			t.Errorf("serve has no flag %s", word)
		}
	}
}

func TestTheUnitWaitsLongerThanTheShutdown(t *testing.T) {
	t.Parallel()
	stop := found(`(?m)^TimeoutStopSec=(\d+)$`, read(t, unitFile))
	wait, err := time.ParseDuration(stop[0] + "s")
	defaults := config(t)
	var takes time.Duration
	for _, key := range []string{"shutdown_timeout", "shutdown_delay"} {
		if text, ok := defaults[key].(string); ok {
			d, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			takes += d
		}
	}
	if err != nil || takes == 0 || wait <= takes {
		t.Errorf("the unit is killed after %v, %v; a shutdown takes %v", wait, err, takes)
	}
}

func TestTheConfigurationOfThePackagesIsAccepted(t *testing.T) {
	t.Parallel()
	checkPackaged(t, binary, read(t, "deploy/systemd/spillway.yaml"))
}

// checkPackaged checks the configuration of the packages on a machine that has its folder
// for files elsewhere.
func checkPackaged(t *testing.T, program, text string) {
	t.Helper()
	state := t.TempDir()
	file := filepath.Join(state, "spillway.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/var/lib/spillway", state)), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, program, "config", "check", "--config", file)
}

// What the packages have must be there when a release is built.
func TestThePackagesHaveFilesThatExist(t *testing.T) {
	t.Parallel()
	var release struct {
		Before   struct{ Hooks []string }
		Packages []struct {
			Scripts  map[string]string
			Contents []struct{ Src, Dst string }
		} `yaml:"nfpms"`
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/goreleaser.yaml")), &release); err != nil {
		t.Fatal(err)
	}
	made := read(t, "deploy/packages/generated.sh")
	files := release.Before.Hooks
	targets := map[string]bool{}
	for _, p := range release.Packages {
		for _, script := range p.Scripts {
			files = append(files, script)
		}
		for _, c := range p.Contents {
			targets[c.Dst] = true
			if name, ok := strings.CutPrefix(c.Src, "tmp/packages/"); ok {
				// The script names a completion by its variable.
				name = regexp.MustCompile(`\.(bash|zsh|fish)$`).ReplaceAllString(name, ".$$shell")
				if !strings.Contains(made, `"$out/`+name+`"`) {
					t.Errorf("%s: generated.sh does not write it", c.Src)
				}
				continue
			}
			files = append(files, c.Src)
		}
	}
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	for _, path := range append(found(`--config (/\S+)`, read(t, unitFile)), "/usr/lib/systemd/system/spillway.service") {
		if !targets[path] {
			t.Errorf("no package has %s", path)
		}
	}
}
