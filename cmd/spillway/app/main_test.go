package app

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestMain lets a test run Main in a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_AS_SPILLWAY") != "" {
		Main()
	}
	os.Exit(m.Run())
}

// Not parallel: kong reads the width of the terminal from the environment.
func TestHelpIsGolden(t *testing.T) {
	t.Setenv("COLUMNS", "100")
	names := []string{"spillway", "serve", "report", "demo", "bench", "config", "token", "version", "completion"}
	names = append(names, "top", "ls", "peek", "tail", "pause", "resume", "purge", "dead", "dead ls", "dead show", "dead replay", "dead rm", "drops", "audit", "reload", "check")
	names = append(names, "ns", "ns create", "ns ls", "ns rm", "token new", "token create", "token ls", "token revoke", "admin-token", "admin-token create", "admin-token ls", "admin-token revoke")
	path := filepath.Join("testdata", "help.golden")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, name := range names {
		args := append(strings.Fields(strings.TrimPrefix(name, "spillway")), "--help")
		got, stderr, code := runCommand(t, nil, "", args...)
		if code != exitOK || stderr != "" {
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
		section := "== " + name + " ==\n" + got + "\n"
		if !*update && !strings.Contains(string(want), section) {
			t.Errorf("%s differs from %s; run go test ./cmd/spillway/app -update and read the difference. got:\n%s", name, path, got)
		}
		all += section
	}
	if *update {
		if err := os.WriteFile(path, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if len(all) != len(want) {
		t.Errorf("%s has other commands than these", path)
	}
}

func TestWithoutACommandTheCommandsFitAScreen(t *testing.T) {
	t.Parallel()
	got, _, _ := runCommand(t, nil, "")
	if n := strings.Count(got, "\n"); n > 40 || !strings.Contains(got, "\n  serve ") || !strings.Contains(got, "\n  jobs ") {
		t.Errorf("%d lines: %s", n, got)
	}
}

func TestConfigCommandsTakeTheFlagsOfServe(t *testing.T) {
	t.Parallel()
	flags := func(command ...string) string {
		help, _, _ := runCommand(t, nil, "", append(command, "--help")...)
		_, flags, _ := strings.Cut(help, "\nFlags:\n")
		return regexp.MustCompile(`(?m)^ +--online .*\n( {20,}.*\n)*`).ReplaceAllString(flags, "") // of check alone
	}
	want := flags("serve")
	for _, command := range []string{"check", "print"} {
		if got := flags("config", command); got != want || want == "" {
			t.Errorf("config %s: got flags\n%s\nwant those of serve\n%s", command, got, want)
		}
	}
}

// The list in the example comes from sinkTypes: -update rewrites it.
func TestExampleConfigurationListsEverySink(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "..", "deploy", "spillway.example.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^# Sinks:.*\n(#   \S+\n)*`)
	want := "# Sinks:\n"
	for _, t := range sinkTypes {
		want += "#   " + t.Form + "\n"
	}
	if *update {
		if err := os.WriteFile(path, list.ReplaceAllLiteral(text, []byte(want)), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got := list.Find(text); string(got) != want {
		t.Errorf("the example configuration says %q, want %q; run go test ./cmd/spillway/app -update", got, want)
	}
}

func TestExitCodesDistinguishUsageErrorsFromFailures(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args []string
		code int
		want string // on stderr
	}{
		{[]string{"version"}, exitOK, ""},
		{[]string{}, exitOK, ""},
		{[]string{"config", "check"}, exitOK, ""},
		{[]string{"servee"}, exitUsage, `unexpected argument servee, did you mean "serve"?`},
		{[]string{"config"}, exitUsage, "expected one of"},
		{[]string{"--version"}, exitOK, ""},
		{[]string{"help"}, exitOK, ""},
		{[]string{"help", "dead", "ls"}, exitOK, ""},
		{[]string{"help", "surve"}, exitUsage, "unexpected argument surve"},
		{[]string{"completion", "tcsh"}, exitUsage, "shell"},
		{[]string{"ls", "--limit=0"}, exitUsage, "limit"},
		{[]string{"deliveries", "default", "kart"}, exitUsage, "unexpected argument kart: a partition is given with --partition; see spillway deliveries --help"},
		{[]string{"top", "--admin=ftp://x"}, exitUsage, "admin: not a URL"},
		{[]string{"check", "--nonsense"}, 3, "unknown flag"},
		{[]string{"check", "--admin=http://127.0.0.1:1"}, 2, ""},
		{[]string{"--admin", "http://127.0.0.1:1", "token", "ls"}, exitUsage, "unknown flag --admin: it is a flag of a command, and goes after its name; see spillway --help"},
		{[]string{"token", "--admin=http://127.0.0.1:1", "ls"}, exitUsage, "unknown flag --admin: it is a flag of a command, and goes after its name; see spillway token --help"},
		{[]string{"--nonsense", "top"}, exitUsage, "unknown flag --nonsense; see spillway --help"},
		{[]string{"peek", "mail"}, exitUsage, `expected "<partition>" of a buffer (of a queue: spillway jobs peek); see spillway peek --help`},
		{[]string{"jobs", "peek", "mail"}, exitUsage, `expected "<queue>"; see spillway jobs peek --help`},
		{[]string{"serve", "--nonsense"}, exitUsage, "unknown flag --nonsense"},
		{[]string{"serve", "--capacity=x"}, exitUsage, "--capacity"},
		{[]string{"serve", "--listen=0.0.0.0:0"}, exitUsage, "--insecure-no-auth"},
		{[]string{"serve", "--admin-listen=0.0.0.0:0"}, exitUsage, "--insecure-no-auth"},
		{[]string{"serve", "--admin-listen=0.0.0.0:0"}, exitUsage, "admin_token"},
		{[]string{"config", "check", "--admin-token=secret"}, exitUsage, "--admin-token: admin_token: not a hash"},
		{[]string{"serve", "--role=drain"}, exitUsage, "embedded"},
		{[]string{"config", "check", "--sink=carrier-pigeon:"}, exitUsage, "unknown sink scheme"},
		{[]string{"config", "check", "--redis=http://x"}, exitUsage, "redis-cluster://h1,h2"},
		{[]string{"report", "--rate=1", "--replay-speed=1"}, exitUsage, "--rate"},
		{[]string{"report", "--server=ftp://x"}, exitUsage, "server: not a URL"},
		{[]string{"report", "/nowhere/at/all"}, exitFailure, "no such file"},
		{[]string{"version", "-o", "xml"}, exitUsage, "--output"},
		{[]string{"demo", "--duration=-1s"}, exitUsage, "duration"},
		{[]string{"bench", "everything"}, exitUsage, "ingest"},
		{[]string{"bench", "e2e", "--assert=p98<1ms"}, exitUsage, "unknown figure"},
		{[]string{"bench", "e2e", "--batch=0"}, exitUsage, "batch"},
		{[]string{"bench", "drain", "--rate=0"}, exitUsage, "backlog"},
		{[]string{"bench", "drain", "--assert=p99<1ms"}, exitUsage, "p99 is not measured here; what is: delivered"},
		{[]string{"bench", "e2e", "--server=https://x"}, exitUsage, "server"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			_, stderr, code := runCommand(t, nil, "", tt.args...)
			if code != tt.code || !strings.Contains(stderr, tt.want) {
				t.Errorf("got %d and %q, want %d and %q", code, stderr, tt.code, tt.want)
			}
		})
	}
}

func TestVersionAsJSONHasStableKeys(t *testing.T) {
	t.Parallel()
	out, _, code := runCommand(t, nil, "", "version", "-o", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatal(out, err)
	}
	for _, key := range []string{"version", "revision", "modified", "go", "platform"} {
		if _, ok := got[key]; !ok {
			t.Errorf("%s is missing in %s", key, out)
		}
	}
}
