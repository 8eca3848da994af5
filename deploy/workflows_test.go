package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// yamlFiles are the YAML files that GitHub and the linters read.
func yamlFiles(t *testing.T) []string {
	t.Helper()
	files := []string{".golangci.yml"}
	for _, pattern := range []string{"*", "workflows/*", "ISSUE_TEMPLATE/*"} {
		found, err := filepath.Glob(filepath.Join(root, ".github", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if ext := filepath.Ext(path); ext == ".yml" || ext == ".yaml" {
				files = append(files, strings.TrimPrefix(filepath.ToSlash(path), root+"/"))
			}
		}
	}
	return files
}

func TestYAMLFilesOfTheRepositoryAreValid(t *testing.T) {
	t.Parallel()
	files := yamlFiles(t)
	for _, want := range []string{".github/workflows/test.yml", ".github/workflows/lint.yml", ".github/workflows/release.yml", ".github/goreleaser.yaml", ".github/dependabot.yml"} {
		if !slices.Contains(files, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, file := range files {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(read(t, file)), &content); err != nil || len(content) == 0 {
			t.Errorf("%s: got %v, %v", file, content, err)
		}
	}
}

// step is the part of a workflow's step that the tests read.
type step struct {
	Run  string
	Uses string
	Dir  string `yaml:"working-directory"`
	With map[string]any
}

// steps are those of all jobs of all workflows, by file.
func steps(t *testing.T) map[string][]step {
	t.Helper()
	all := map[string][]step{}
	for _, file := range yamlFiles(t) {
		if !strings.HasPrefix(file, ".github/workflows/") {
			continue
		}
		var workflow struct {
			Jobs map[string]struct{ Steps []step }
		}
		if err := yaml.Unmarshal([]byte(read(t, file)), &workflow); err != nil {
			t.Fatal(err)
		}
		for _, job := range workflow.Jobs {
			all[file] = append(all[file], job.Steps...)
		}
	}
	return all
}

func TestWorkflowsRunWhatExists(t *testing.T) {
	t.Parallel()
	help := output(t, "make")
	for file, list := range steps(t) {
		for _, s := range list {
			for _, target := range found(`\bmake ([a-z-]+)`, s.Run) {
				if !strings.Contains(help, "\n  "+target+" ") {
					t.Errorf("%s: make %s does not exist", file, target)
				}
			}
			paths := append(found(`(\.ci/\w+|deploy/\w+)`, s.Run), s.Dir)
			for _, key := range []string{"file", "go-version-file", "cache-dependency-path"} {
				if path, ok := s.With[key].(string); ok {
					paths = append(paths, path)
				}
			}
			paths = append(paths, found(`--config (\S+)`, fmt.Sprint(s.With["args"]))...)
			for _, path := range paths {
				if _, err := os.Stat(filepath.Join(root, path)); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
}

func TestWorkflowsTestAndLintEveryModule(t *testing.T) {
	t.Parallel()
	all := steps(t)
	for _, want := range []struct{ file, run, dir string }{
		{"test.yml", ".ci/run", ""},
		{"test.yml", "go test", "bench/peers"},
		{"test.yml", "go test", "ingest/lmstfy/clienttest"},
		{"lint.yml", "make lint", ""},
	} {
		if !slices.ContainsFunc(all[".github/workflows/"+want.file], func(s step) bool {
			return strings.Contains(s.Run, want.run) && s.Dir == want.dir
		}) {
			t.Errorf("%s: no step runs %q in the folder %q", want.file, want.run, want.dir)
		}
	}
}

func TestActionsArePinnedToAMajorVersion(t *testing.T) {
	t.Parallel()
	for file, list := range steps(t) {
		for _, s := range list {
			if s.Uses != "" && len(found(`^([a-z-]+/[a-z-]+@v\d+)$`, s.Uses)) == 0 {
				t.Errorf("%s: uses %s, want action@v and a number", file, s.Uses)
			}
		}
	}
}

func TestGolangciExcludesTheRulesOfMakeLint(t *testing.T) {
	t.Parallel()
	_, rules, _ := strings.Cut(read(t, "Makefile"), "-exclude=")
	rules, _, _ = strings.Cut(rules, "\n")
	var config struct {
		Linters struct {
			Settings struct{ Gosec struct{ Excludes []string } }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".golangci.yml")), &config); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(config.Linters.Settings.Gosec.Excludes, ","); got != rules || rules == "" {
		t.Errorf("got %s, want %s as in the Makefile", got, rules)
	}
}
