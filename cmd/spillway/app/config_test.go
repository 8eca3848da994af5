package app

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/cmd/spillway/config"
)

// loadConfig loads a configuration as serve does.
func loadConfig(t *testing.T, args []string, env map[string]string, file string) (*config.Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "spillway.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	var c struct {
		Config config.Config `embed:""`
	}
	parser, err := kong.New(&c, config.FlagDefaults(""))
	if err != nil {
		t.Fatal(err)
	}
	k, err := parser.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	p := config.Process{Given: config.GivenFlags(k), LookupEnv: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}}
	return &c.Config, c.Config.Load(p)
}

func TestConfigPrintOutputIsAnEqualConfiguration(t *testing.T) {
	t.Parallel()
	print := func(file string) string {
		path := filepath.Join(t.TempDir(), "a.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", path)
		if code != exitOK {
			t.Fatal(stderr)
		}
		lines := strings.Split(out, "\n")
		for i, l := range lines {
			lines[i], _, _ = strings.Cut(l, " # ")
		}
		return strings.Join(lines, "\n")
	}
	first := print("prefix: \"5\"\nmax_age: 90s\nmax_body: 2MB\nnamespaces: {default: {}, kart: {sink: \"file:///x.ndjson\", linger: 0s}}\n")
	if second := print(first); second != first {
		t.Errorf("got %s\nwant %s", second, first)
	}
	for _, want := range []string{"prefix: \"5\"\n", "max_body: 2MB\n", "    sink: file:///x.ndjson\n", "    linger: 0s\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is missing in\n%s", want, first)
		}
	}
	c := config.Config{}
	for _, s := range config.SettingsOf(&c) {
		if s.Flag != "config" && !strings.Contains(first, "\n"+s.Key()+":") && !strings.HasPrefix(first, s.Key()+":") {
			t.Errorf("%s is missing", s.Key())
		}
	}
}

func TestConfigPrintShowsTheSourceOfEachValue(t *testing.T) {
	t.Parallel()
	out, _, _ := runCommand(t, map[string]string{"SPILLWAY_LINGER": "2s"}, "", "config", "print", "--batch=5")
	for _, want := range []string{"\nbatch: 5 # --batch\n", "\nlinger: 2s # SPILLWAY_LINGER\n", "\nshards: 1 # default\n", "\n    batch: 5 # --batch\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// runCommand runs a command line in this process.
func runCommand(t *testing.T, env map[string]string, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	env = maps.Clone(env)
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	var out, errs bytes.Buffer
	code = run(t.Context(), args, config.Process{
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok }, Environ: environ,
	})
	return out.String(), errs.String(), code
}
