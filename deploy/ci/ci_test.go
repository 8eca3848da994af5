// Package ci holds .ci, the workflows and the Makefile to what they say. It imports no package of
// ours, so go test keeps its results until one of those files changes.
package ci

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
)

// root is the repository, seen from the folder tests run in.
const root = "../.."

// read is the text of a file of the repository. Also what a program reads is read here first: go test
// does not see that.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// found are the first groups of all matches.
func found(pattern, text string) (list []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// targets is what make lists.
func targets(t *testing.T) string {
	t.Helper()
	read(t, "Makefile")
	out, err := exec.CommandContext(t.Context(), "make", "-C", root).CombinedOutput()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	return string(out)
}

// stubs is a folder of programs. Each writes its call to the file "calls" and
// then runs its script.
type stubs struct{ dir, calls string }

func newStubs(t *testing.T, scripts map[string]string) stubs {
	t.Helper()
	s := stubs{dir: t.TempDir()}
	s.calls = filepath.Join(s.dir, "calls")
	// If a parallel test forks while one of these files is open for writing, its
	// child holds the file open too, and running the file fails: "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for name, script := range scripts {
		text := "#!/bin/sh\necho \"" + name + " $*\" >>" + s.calls + "\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// with adds real programs to the folder.
func (s stubs) with(t *testing.T, names ...string) stubs {
	t.Helper()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(s.dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// run runs a script of the repository, with its arguments, with only the stubs on PATH. It returns
// whether the script succeeded, what it printed and which stubs it called.
func (s stubs) run(t *testing.T, script string, env ...string) (ok bool, said, calls string) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(script)
	read(t, words[0])
	cmd := exec.CommandContext(t.Context(), bash, append([]string{filepath.Join(root, words[0])}, words[1:]...)...)
	cmd.Env = append([]string{"PATH=" + s.dir}, env...)
	out, err := cmd.CombinedOutput()
	called, _ := os.ReadFile(s.calls) // absent when there was no call
	return err == nil, string(out), string(called)
}

func TestCIRunsTheTestsAndStopsAtAFailure(t *testing.T) {
	t.Parallel()
	s := newStubs(t, map[string]string{"make": "exit 0"}).with(t, "dirname")
	ok, said, calls := s.run(t, ".ci/run")
	if !ok || !strings.HasPrefix(calls, "make test TESTFLAGS=-count=1\n") {
		t.Errorf("got %v, calls %q, said %q; want success that begins with make test", ok, calls, said)
	}
	s = newStubs(t, map[string]string{"make": "exit 2"}).with(t, "dirname")
	if ok, _, calls := s.run(t, ".ci/run"); ok || strings.Count(calls, "\n") != 1 {
		t.Errorf("a failing make test passes, or more follows it: %q", calls)
	}
}

// What no run calls, rots.
func TestEveryTargetOfMakeThatFindsSomethingIsRun(t *testing.T) {
	t.Parallel()
	_, all, _ := strings.Cut(read(t, "Makefile"), "\nALL = ")
	all, _, _ = strings.Cut(all, "\n\n")
	run := append(strings.Fields(all), found(`make ([a-z-]+)`, read(t, ".ci/run"))...)
	// The first four find nothing, and the others are nothing but other targets.
	without := []string{"help", "run", "build", "fmt", "generate", "check", "test-all"}
	for _, target := range found(`(?m)^  ([a-z-]+) `, targets(t)) {
		if !slices.Contains(run, target) && !slices.Contains(without, target) && !strings.HasPrefix(target, "deps-") {
			t.Errorf("neither .ci/run nor make test-all runs make %s", target)
		}
	}
}

func TestAllGoesOnAfterAFailureAndSaysWhatRan(t *testing.T) {
	t.Parallel()
	s := newStubs(t, map[string]string{"make": `[ "$2" != second ]`}).with(t, "dirname", "mkdir", "tail")
	ok, said, _ := s.run(t, ".ci/all", "LOGS="+s.dir)
	if !ok {
		t.Errorf("nothing to run fails: %s", said)
	}
	ok, said, _ = s.run(t, ".ci/all first second third", "LOGS="+s.dir)
	if table := found(`(?m)^(ok +first|FAILED +second|ok +third) +\d+ s$`, said); ok || len(table) != 3 {
		t.Errorf("got %v and %q, want a failure, and a table of the three", ok, said)
	}
}

func TestAnInstalledRedisServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStubs(t, map[string]string{"redis-server": "", "cc": "", "apt-get": "", "id": "echo 0"})
	if ok, said, calls := s.run(t, ".ci/deps test"); !ok || calls != "" || said != "" {
		t.Errorf("got %v, calls %q, said %q; want silence", ok, calls, said)
	}
}

func TestWithoutRightsTheMissingRedisServerIsNamed(t *testing.T) {
	t.Parallel()
	for name, scripts := range map[string]map[string]string{
		"no apt":                  {"id": "echo 0"},
		"no sudo":                 {"id": "echo 1000", "apt-get": ""},
		"sudo wants a password":   {"id": "echo 1000", "apt-get": "", "sudo": "exit 1"},
		"apt finds no package":    {"id": "echo 0", "apt-get": "exit 100"},
		"sudo rejects apt itself": {"id": "echo 1000", "apt-get": "exit 100", "sudo": `shift; [ "$1" != env ] && exec "$@"; exit 1`},
	} {
		s := newStubs(t, scripts).with(t, "cat", "tee", "chmod", "rm", "env", "sh")
		policy := filepath.Join(s.dir, "policy-rc.d")
		ok, said, _ := s.run(t, ".ci/deps test", "POLICY_RC_D="+policy)
		if ok || !strings.Contains(said, "apt-get install redis-server") || !strings.Contains(said, "brew install redis") {
			t.Errorf("%s: got %v and %q, want a failure that says what to install", name, ok, said)
		}
		if _, err := os.Stat(policy); err == nil {
			t.Errorf("%s: the policy that forbids daemons is still there", name)
		}
	}
}

func TestAptInstallsRedisServerWithoutStartingIt(t *testing.T) {
	t.Parallel()
	// The first install fails, as it does without package lists. The policy must be
	// there while apt works, and gone afterwards.
	apt := `case $1 in
update) : >"$STATE" ;;
install) [ -x "$POLICY_RC_D" ] || exit 9; [ -e "$STATE" ] || exit 100 ;;
esac`
	for _, tt := range []struct {
		name, id, sudo string
	}{
		{"as root", "echo 0", "exit 1"},
		{"by passwordless sudo", "echo 1000", `shift; [ "$1" = true ] && exit 0; exec "$@"`},
	} {
		s := newStubs(t, map[string]string{"apt-get": apt, "id": tt.id, "sudo": tt.sudo}).with(t, "cat", "tee", "chmod", "rm", "env", "sh")
		policy := filepath.Join(s.dir, "policy-rc.d")
		ok, said, calls := s.run(t, ".ci/deps test", "POLICY_RC_D="+policy, "STATE="+filepath.Join(s.dir, "state"))
		install := "apt-get install -y --no-install-recommends redis-server gcc libc6-dev\n"
		if !ok || strings.Count(calls, install) < 2 || !strings.Contains(calls, "apt-get update\n") {
			t.Errorf("%s: got %v, calls %q, said %q; want install, update, install", tt.name, ok, calls, said)
		}
		if _, err := os.Stat(policy); err == nil {
			t.Errorf("%s: the policy that forbids daemons is still there", tt.name)
		}
	}
}

func TestAPolicyOfTheMachineIsKept(t *testing.T) {
	t.Parallel()
	s := newStubs(t, map[string]string{"apt-get": "", "id": "echo 0"}).with(t, "cat", "env", "sh")
	policy := filepath.Join(s.dir, "policy-rc.d")
	if err := os.WriteFile(policy, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, said, _ := s.run(t, ".ci/deps test", "POLICY_RC_D="+policy); !ok {
		t.Fatal(said)
	}
	if text, err := os.ReadFile(policy); err != nil || string(text) != "theirs" {
		t.Errorf("got %q, %v; want the policy untouched", text, err)
	}
}

func TestEachDepsScriptNamesWhatItCannotInstall(t *testing.T) {
	t.Parallel()
	for script, tt := range map[string]struct {
		says string
		ok   bool
	}{
		".ci/deps bench":   {"Debian and Ubuntu have it", true}, // make bench goes on without
		".ci/deps clients": {"apt-get install nodejs npm chromium", false},
		".ci/deps ui":      {"apt-get install chromium npm", false},
		".ci/deps sinks":   {"apt-get install redis-server clickhouse-server", false},
		".ci/deps deploy":  {"apt-get install prometheus systemd dpkg rpm", false},
		".ci/deps release": {"apt-get install npm default-jdk-headless", false},
		".ci/deps php":     {"apt-get install php-cli php-redis", false},
	} {
		s := newStubs(t, map[string]string{"id": "echo 1000", "apt-get": ""}).with(t, "cat")
		if ok, said, calls := s.run(t, script); ok != tt.ok || !strings.Contains(said, tt.says) || strings.Contains(calls, "install") {
			t.Errorf("%s: got %v, %q, calls %q; want %v, and a text with %q", script, ok, said, calls, tt.ok, tt.says)
		}
	}
}

func TestEachDepsScriptInstallsWhatIsMissing(t *testing.T) {
	t.Parallel()
	for script, install := range map[string]string{
		".ci/deps bench":   "recommends wrk\n",
		".ci/deps clients": "recommends nodejs python3 mono-mcs",
		".ci/deps ui":      "recommends chromium npm\n",
		".ci/deps sinks":   "recommends redis-server clickhouse-server nats-server kcat",
		".ci/deps deploy":  "recommends prometheus systemd dpkg rpm\n",
		".ci/deps release": "recommends npm default-jdk-headless",
		".ci/deps php":     "recommends php-cli php-redis php-mbstring",
	} {
		s := newStubs(t, map[string]string{"id": "echo 0", "apt-get": ""}).with(t, "cat", "tee", "chmod", "rm", "env", "sh")
		ok, said, calls := s.run(t, script, "POLICY_RC_D="+filepath.Join(s.dir, "policy-rc.d"))
		if !ok || !strings.Contains(calls, install) {
			t.Errorf("%s: got %v, %q, calls %q; want a call with %q", script, ok, said, calls, install)
		}
	}
}

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
	help := targets(t)
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
