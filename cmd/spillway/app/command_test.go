package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestServeRunsTheCommandOfTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const script = `cat >"$1/in"; env >"$1/env"; cat "/proc/$$/status" >"$1/status" 2>/dev/null; mv "$1/in" "$1/done"`
	file := filepath.Join(dir, "spillway.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "namespaces:\n  default:\n    sink: \"exec:\"\n    sink_command: [/bin/sh, -c, %q, plugin, %q]\n", script, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServeIn(t, []string{"PATH=/usr/bin:/bin", "HOME=/nowhere", "AWS_SECRET_ACCESS_KEY=c4n4ry", "SPILLWAY_LOG_LEVEL=debug"}, "--config="+file)
	if res, err := http.Post("http://"+s.listen+"/v1/default/kart", "", strings.NewReader(`{"lap":1}`)); err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	var line []byte
	eventually(t, "the program does not end", func() (done bool) {
		var err error
		line, err = os.ReadFile(filepath.Join(dir, "done"))
		return err == nil
	})
	if !strings.Contains(string(line), `"partition":"kart"`) || !strings.HasSuffix(string(line), `"data":{"lap":1}}`+"\n") {
		t.Errorf("got %s", line)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"HOME=/nowhere": true, "PATH=/usr/bin:/bin": true, "BATCH_PARTITION=kart": true, "c4n4ry": false, "SPILLWAY_": false, "TEST_AS": false} {
		if got := strings.Contains(string(env), name); got != want {
			t.Errorf("%s is there: %t, want %t, in\n%s", name, got, want, env)
		}
	}
	// An ignored signal would be inherited.
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	if _, mask, ok := strings.Cut(string(status), "SigIgn:\t"); ok {
		ignored, err := strconv.ParseUint(mask[:16], 16, 64)
		if err != nil || ignored&(1<<(syscall.SIGPIPE-1)) != 0 {
			t.Errorf("SIGPIPE is ignored: %x, %v", ignored, err)
		}
	}
}

func TestTheCommandOfASinkComesFromTheFileOnly(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		file string
		args []string
		want string // on stderr
	}{
		{"namespaces: {kart: {sink: \"exec:\", sink_command: [/bin/true, \"7\"]}}\n", nil, ""},
		{"namespaces: {default: {sink_command: [/bin/true]}}\n", []string{"--sink=exec:"}, ""},
		{"namespaces: {kart: {sink: \"exec:\"}}\n", nil, `has no command: add to the namespace, in the file, sink_command: ["/usr/bin/python3", "/opt/plugin.py"]`},
		{"{}\n", []string{"--sink=exec:/bin/true"}, `takes nothing after "exec:": the command is sink_command of the namespace, in the file`},
		{"{}\n", []string{"--sink-command=/bin/true"}, "unknown flag --sink-command"},
		{"sink_command: [/bin/true]\n", nil, ":1: sink_command: unknown key"},
		{"namespaces:\n  kart:\n    sink: \"null:\"\n    sink_command: [/bin/true]\n", nil, `:4: namespaces.kart.sink_command: needs sink: "exec:", and the sink is another: change one of them`},
		{"namespaces: {kart: {sink: \"exec:\", sink_command: /bin/true}}\n", nil, `:1: namespaces.kart.sink_command: not a list: write a program and its arguments, such as ["/usr/bin/python3", "/opt/plugin.py"]`},
		{"namespaces: {kart: {sink: \"exec:\", sink_command: []}}\n", nil, ":1: namespaces.kart.sink_command: not a list"},
		{"namespaces: {kart: {sink: \"exec:\", sink_command: [/bin/true, 7]}}\n", nil, ":1: namespaces.kart.sink_command[1]: not text: put it in quotes"},
		{"namespaces: {kart: {sink: \"exec:\", sink_command: [python3]}}\n", nil, `"python3" is not an absolute path`},
	} {
		path := writeFile(t, "spillway.yaml", row.file)
		_, stderr, code := runCommand(t, nil, "", append([]string{"config", "check", "--config", path}, row.args...)...)
		if row.want == "" && code != exitOK || row.want != "" && (code != exitUsage || !strings.Contains(stderr, row.want)) {
			t.Errorf("%s %q: got %d, %s, want %s", row.file, row.args, code, stderr, row.want)
		}
	}
	_, stderr, code := runCommand(t, map[string]string{"SPILLWAY_SINK_COMMAND": "/bin/true"}, "", "config", "check", "--sink=exec:")
	if code != exitUsage || !strings.Contains(stderr, "SPILLWAY_SINK_COMMAND: unknown variable") {
		t.Errorf("got %d, %s", code, stderr)
	}
}

func TestConfigPrintShowsTheCommand(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "spillway.yaml", "namespaces:\n  kart:\n    sink: \"exec:\"\n    sink_command: [/bin/sh, -c, \"exit 0 # [no]\", \"7\", \"\"]\n")
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", path)
	if want := `    sink_command: [/bin/sh, -c, 'exit 0 # [no]', "7", ""] # ` + path + ":4\n"; code != exitOK || !strings.Contains(out, want) {
		t.Fatalf("got %d, %s%s, want %s", code, out, stderr, want)
	}
	first, second := mustLoad(t, path), mustLoad(t, writeFile(t, "again.yaml", out))
	if got, want := fmt.Sprintf("%q", second), fmt.Sprintf("%q", first); got != want || len(first) != 5 {
		t.Errorf("got %s, want %s", got, want)
	}
}

// mustLoad returns the command of the namespace kart.
func mustLoad(t *testing.T, path string) []string {
	t.Helper()
	c, err := loadConfig(t, []string{"--config", path}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	return c.Namespaces["kart"].SinkCommand
}
