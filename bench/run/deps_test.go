package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// depsBench runs .ci/deps-bench with these programs alone on the PATH; each
// notes its call and then does what its text says.
func depsBench(t *testing.T, programs map[string]string) (ok bool, said, calls string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		// A file that is open for writing cannot be run, not even by the child of
		// another test, so it gets its name when it is closed.
		file := filepath.Join(dir, name)
		text = "#!/bin/sh\necho \"" + name + " $*\" >>" + filepath.Join(dir, "calls") + "\n" + text + "\n"
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf %s "$1" >"$2"; chmod +x "$2"`, "sh", text, file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, name := range []string{"env", "sh"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bash, "../../.ci/deps-bench")
	cmd.Env = []string{"PATH=" + dir, "STATE=" + filepath.Join(dir, "lists")}
	out, err := cmd.CombinedOutput()
	called, _ := os.ReadFile(filepath.Join(dir, "calls")) // absent when there was no call
	return err == nil, string(out), string(called)
}

func TestWrkIsInstalledWhereAptCanAndMissedWhereItCannot(t *testing.T) {
	t.Parallel()
	const install = "apt-get install -y --no-install-recommends wrk\n"
	// The first install fails, as without package lists.
	apt := `case $1 in update) : >"$STATE" ;; install) [ -e "$STATE" ] || exit 100 ;; esac`
	for _, tt := range []struct {
		name     string
		programs map[string]string
		installs int
		says     string
	}{
		{"it is there", map[string]string{"wrk": ""}, 0, ""},
		{"as root", map[string]string{"id": "echo 0", "apt-get": apt}, 2, "Installing"},
		{"by sudo", map[string]string{"id": "echo 1000", "apt-get": apt, "sudo": `shift; [ "$1" = true ] && exit 0; exec "$@"`}, 2, "Installing"},
		{"no apt", map[string]string{"id": "echo 0"}, 0, "No wrk"},
		{"no rights", map[string]string{"id": "echo 1000", "apt-get": apt}, 0, "No wrk"},
		{"no package", map[string]string{"id": "echo 0", "apt-get": "exit 100"}, 1, "No wrk"},
	} {
		ok, said, calls := depsBench(t, tt.programs)
		if !ok || strings.Count("\n"+calls, "\n"+install) != tt.installs || !strings.Contains(said, tt.says) || tt.says == "" && said != "" {
			t.Errorf("%s: got %v, calls %q, said %q", tt.name, ok, calls, said)
		}
	}
}
