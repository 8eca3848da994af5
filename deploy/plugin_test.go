package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pluginFolder is the module of the tutorial.
const pluginFolder = "deploy/examples/plugin"

// copyPlugin makes a copy of the module that uses this repository instead of a release.
func copyPlugin(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, pluginFolder))); err != nil {
		t.Fatal(err)
	}
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), []byte(read(t, "go.sum")), 0o600); err != nil {
		t.Fatal(err)
	}
	inPlugin(t, dir, "go", "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+repository)
	return dir
}

// inPlugin runs a command in a copy of the module. It may download go.mod files that the
// build of the repository did not need.
func inPlugin(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func TestThePluginOfTheTutorialPassesTheSuite(t *testing.T) {
	t.Parallel()
	dir := copyPlugin(t)
	inPlugin(t, dir, "go", "vet", "./...")
	inPlugin(t, dir, "go", "test", "-count=1", "./...")
}

func TestTheCodeOfTheTutorialIsThatOfThePlugin(t *testing.T) {
	t.Parallel()
	text := read(t, "drain/sink/sinktest/TUTORIAL.md")
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)\n`([a-z/_]+\\.go)`[^\n]*:\n\n```go\n(.*?)```\n").FindAllStringSubmatch(text, -1) {
		if files[m[1]] != "" {
			files[m[1]] += "\n"
		}
		files[m[1]] += m[2]
	}
	found := 0
	err := filepath.WalkDir(filepath.Join(root, pluginFolder), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || d.Name() == "server_test.go" { // the fake is linked
			return err
		}
		found++
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(filepath.Join(root, pluginFolder), path)
		if got := files[filepath.ToSlash(name)]; got != string(want) {
			t.Errorf("the tutorial's parts of %s are not the file; got\n%s", name, got)
		}
		return nil
	})
	if err != nil || found != len(files) {
		t.Errorf("%d files of the plugin, %d in the tutorial, %v", found, len(files), err)
	}
}
