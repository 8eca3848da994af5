//go:build clients

package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-io/spillway/lua/proc"
)

// recipe is the block of a language below "Log shippers and loggers", with the server's address.
func recipe(t *testing.T, language, holds string, s *server) string {
	t.Helper()
	text, err := os.ReadFile("../../../ingest/API.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### Log shippers and loggers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(section, -1) {
		if strings.Contains(m[1], holds) {
			_, port, _ := net.SplitHostPort(s.data)
			return strings.ReplaceAll(m[1], "8080", port)
		}
	}
	t.Fatalf("the document has no %s block with %s", language, holds)
	return ""
}

// serveForRecipes starts a server as make run does, but for what it delivers to.
func serveForRecipes(t *testing.T) (s *server, delivered func(partition, text string) bool) {
	t.Helper()
	dir := t.TempDir()
	file, config := filepath.Join(dir, "events"), filepath.Join(dir, "spillway.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "namespaces: {default: {sink: \"file://%s\", linger: 50ms}}\n", file), 0o600); err != nil {
		t.Fatal(err)
	}
	return serve(t, "--redis", "embedded:", "--config", config).ready(http.StatusOK), func(partition, text string) bool {
		lines, _ := os.ReadFile(file)
		for line := range bytes.Lines(lines) {
			if bytes.Contains(line, []byte(`"partition":"`+partition+`"`)) && bytes.Contains(line, []byte(text)) {
				return true
			}
		}
		return false
	}
}

func TestRecipesOfLoggersDeliverWhatTheyLog(t *testing.T) {
	t.Parallel()
	modules := filepath.Join(installSDKs(t), "node_modules")
	client, err := filepath.Abs("../../../ingest/client")
	if err != nil {
		t.Fatal(err)
	}
	for partition, row := range map[string]struct{ language, command string }{
		"pino":    {"js", "node"},
		"winston": {"js", "node"},
		"python":  {"python", "/usr/bin/python3"},
	} {
		t.Run(partition, func(t *testing.T) {
			t.Parallel()
			s, delivered := serveForRecipes(t)
			dir := t.TempDir()
			program := filepath.Join(dir, "program.mjs")
			if err := os.WriteFile(program, []byte(recipe(t, row.language, partition, s)), 0o600); err != nil {
				t.Fatal(err)
			}
			packages := filepath.Join(dir, "node_modules")
			for name, of := range map[string]string{
				"pino":                  filepath.Join(modules, "pino"),
				"winston":               filepath.Join(modules, "winston"),
				"@spillway-io/spillway": filepath.Join(client, "js"),
			} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(packages, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(of, filepath.Join(packages, name)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(row.command, program)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(client, "python"))
			proc.KillWithParent(cmd)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			eventually(t, "the line is delivered", func() bool { return delivered(partition, "done") })
		})
	}
}

func TestRecipeOfSyslogNGDeliversMessages(t *testing.T) {
	t.Parallel()
	const program = "/usr/sbin/syslog-ng"
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("left out: there is no syslog-ng, which make deps-clients installs where no other syslog is")
	}
	s, delivered := serveForRecipes(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "syslog-ng.conf")
	config := fmt.Sprintf("@version: 3.35\nsource s_src { file(%q); };\n", filepath.Join(dir, "messages")) + recipe(t, "syslog-ng", "d_spillway", s)
	message := "Nov 20 10:00:00 host kart[7]: lap \"1\" done\n"
	for name, text := range map[string]string{file: config, filepath.Join(dir, "messages"): message} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "--foreground", "--stderr", "--no-caps", "--cfgfile", file, "--persist-file", filepath.Join(dir, "persist"),
		"--pidfile", filepath.Join(dir, "pid"), "--control", filepath.Join(dir, "control"))
	cmd.Stderr = &log
	proc.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("syslog-ng: %s", log.String())
		}
	})
	eventually(t, "the message is delivered", func() bool { return delivered("syslog-ng", `"MESSAGE":"lap \"1\" done"`) })
}

// Neither program is in Debian, so this sends what they would: Vector's sink http says
// application/x-ndjson where it encodes JSON and ends lines, as Fluent Bit's output http does for
// json_lines since 3.1.
func TestRecipesOfVectorAndFluentBitNameARouteThatTakesTheirLines(t *testing.T) {
	t.Parallel()
	s, delivered := serveForRecipes(t)
	vector := regexp.MustCompile(`(?s)type = "http".*uri = "(.*?)"\nencoding.codec = "json"\nframing.method = "newline_delimited"\n` +
		`batch.max_events = 1000\n`).FindStringSubmatch(recipe(t, "toml", "sinks.spillway", s))
	fluent := regexp.MustCompile(`(?s)Name +http\n.*Host +(\S+)\n +Port +(\S+)\n +URI +(\S+)\n +Format +json_lines\n`).
		FindStringSubmatch(recipe(t, "ini", "OUTPUT", s))
	if vector == nil || fluent == nil {
		t.Fatal("the recipes have other settings than this test knows the request of")
	}
	for url, lines := range map[string]string{
		vector[1]: `{"file":"a.log","host":"h","message":"lap 1 done","source_type":"file","timestamp":"2026-01-02T03:04:05.6Z"}` + "\n",
		"http://" + fluent[1] + ":" + fluent[2] + fluent[3]: `{"date":1763629674.1,"log":"lap 0 done"}` + "\n" + `{"date":1763629674.2,"log":"lap 1 done"}` + "\n",
	} {
		answer, err := http.Post(url, "application/x-ndjson", strings.NewReader(lines))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", url, answer.Status)
		}
	}
	for _, partition := range []string{"vector", "fluent-bit"} {
		eventually(t, partition+"'s line is delivered", func() bool { return delivered(partition, "lap 1 done") })
	}
}
