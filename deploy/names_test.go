package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// deployFiles are the files of this folder that are neither documents, which have tests
// of their own, nor Go nor generated, by their path from here.
func deployFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "examples" || path == "man" || path == "sql"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) == ".go" || filepath.Ext(path) == ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files were found, %v", len(files), err)
	}
	return files
}

func TestEveryVariableOfTheDeployFilesIsAFlag(t *testing.T) {
	t.Parallel()
	flags := flagsOf(t, "serve", "report", "check")
	for file, text := range deployFiles(t) {
		for _, name := range found(`\b(SPILLWAY_[A-Z_]+)\b`, text) {
			flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "SPILLWAY_")), "_", "-")
			if !slices.Contains(flags, flag) {
				t.Errorf("%s names %s, and there is no flag %s", file, name, flag)
			}
		}
	}
}

func TestEveryFlagOfTheDeployFilesExists(t *testing.T) {
	t.Parallel()
	flags := flagsOf(t, "serve", "report", "check", "config check", "ls", "jobs ls", "jobs delete")
	// Lines that call other programs have their flags.
	foreign := regexp.MustCompile(`docker|--from|helm |kubectl|systemctl|systemd-|redis-server|Prometheus|prometheus\.yaml`)
	for file, text := range deployFiles(t) {
		for line := range strings.Lines(text) {
			for _, flag := range found(`(?:^|[\s"`+"`"+`])(--[a-z][a-z-]+)`, line) {
				if !foreign.MatchString(line) && !slices.Contains(flags, flag) {
					t.Errorf("%s names %s, which no command has: %s", file, flag, strings.TrimSpace(line))
				}
			}
		}
	}
}

func TestEveryMetricOfTheDeployFilesExists(t *testing.T) {
	t.Parallel()
	known := everySeries(t)
	for file, text := range deployFiles(t) {
		for _, name := range found(`\b(spillway_[a-z_]*[a-z])\b`, text) {
			if known[name] == nil {
				t.Errorf("%s names %s, which is not at /metrics", file, name)
			}
		}
	}
}
