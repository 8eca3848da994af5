package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/null"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
)

func TestTargetsThatCannotWorkAreFoundBeforeTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{{"config", "check"}, {"serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}} {
		args = append(args, "--sink=file://"+dir, "--fallback=file://"+dir+"/none/x.ndjson https://h/?gzp=1 {env:NONE}", "--redis=redis://h:1/x", "--tls-cert=/nowhere", "--tls-key=/nowhere")
		_, stderr, code := runCommand(t, nil, "", args...)
		for _, want := range []string{
			"--sink: namespace default: open file: " + dir + " is a directory", "none does not exist: make it first", "did you mean gzip?", "NONE",
			"--redis: redis: ", "--tls-cert: tls_cert: open /nowhere: no such file or directory",
		} {
			if code != exitUsage || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit %d, and %q is missing in %s", args[0], code, want, stderr)
			}
		}
	}
}

func TestIngestNeedsNoTargets(t *testing.T) {
	t.Parallel()
	if _, stderr, code := runCommand(t, nil, "", "config", "check", "--role=ingest", "--redis=redis://h", "--sink=file:///nowhere/x.ndjson"); code != exitOK {
		t.Error(stderr)
	}
}

func TestOnlineCheckConnectsAndWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	check := func(args ...string) (string, string, int) {
		return runCommand(t, nil, "", append([]string{"config", "check", "--online", "--redis=" + server.URL()}, args...)...)
	}
	out, stderr, code := check("--sink=http://"+l.Addr().String()+"/x", "--fallback=file://"+filepath.Join(dir, "x.ndjson"))
	if code != exitOK || !strings.Contains(out, "store and sinks answer") {
		t.Error(out, stderr)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("the check made %v", files)
	}
	if n, err := server.Client().DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("the check left %d keys, %v", n, err)
	}
	const nobody = "127.0.0.1:1"
	_, stderr, code = check("--sink=http://"+nobody+"/", "--fallback=redis-stream://"+nobody, "--redis=redis://"+nobody)
	for _, want := range []string{"--sink: namespace default: sink http://" + nobody, "--fallback: namespace default: sink redis-stream://" + nobody, "--redis: redis: redis://" + nobody + ": redis at " + nobody + " refuses connections"} {
		if code != exitFailure || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, and %q is missing in %s", code, want, stderr)
		}
	}
}

func TestConfigCheckWarnsOfSettingsThatDefeatEachOther(t *testing.T) {
	t.Parallel()
	out, stderr, code := runCommand(t, nil, "", "config", "check", "--capacity=5", "--max-age=4s", "--linger=3s", "--max-entry=2MiB", "--max-dead-bytes=1MiB")
	for _, want := range []string{
		"warning: --capacity: namespaces.default.capacity: 5 is less than batch, 128", "--linger: namespaces.default.linger: 3s is more than half of max_age, 4s",
		"--max-age: namespaces.default.max_age: 4s is less than sink_timeout, 10s", "namespaces.default.backoff_max: 30s is more than max_age, 4s",
		"--max-entry: max_entry: 2MiB is more than max_body, 1MiB", "namespaces.default.max_dead_bytes: 1MiB is less than max_entry, 2MiB",
	} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("exit %d, and %q is missing in %s%s", code, want, out, stderr)
		}
	}
}

func TestFallbacksThatCannotWorkSayWhere(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"fallback: [\"a b\"]\n":                      "spillway.yaml:1: fallback: not a list of texts without spaces",
		"fallback: [{a: b}]\n":                       "spillway.yaml:1: fallback: not a list of texts without spaces",
		"sink: file:///a\nfallback: [file:///a]\n":   "spillway.yaml:2: namespaces.default.fallback: /a is not usable: want another file, because namespace default writes to this one",
		"fallback: [\"null:\", \"pigeon://u:pw@h\"]": "spillway.yaml:1: namespace default: unknown sink scheme \"pigeon\"",
		"fallback: [\"https://u:pw@h:x/\"]":          "spillway.yaml:1: namespace default: sink URL is malformed: invalid port",
		"fallback: [\"namespaces://default\"]\n":     "no way back to default",
	} {
		c, err := loadConfig(t, nil, nil, file)
		if err == nil {
			_, err = NewApp(c, sinkRegistry(), zap.NewNop())
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: got %v, want %s", file, err, want)
		}
	}
}

func TestConfigPrintShowsFallbacksWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	out, _, code := runCommand(t, nil, "", "config", "print", "--fallback=https://u:pw@h/secret?k=pw file:///a")
	if code != exitOK || !strings.Contains(out, "\nfallback: https://…@h/…?… file:///a # --fallback\n") || strings.Contains(out, "pw") {
		t.Errorf("got %d %s", code, out)
	}
}

func TestSinksOfAnotherModuleAreCheckedBeforeTheyAreAdded(t *testing.T) {
	t.Parallel()
	before := len(sinkTypes)
	for want, more := range map[string]SinkType{
		"scheme null: already":  {"null:", []string{"null"}, null.New},
		"lacks its form":        {"", []string{"mine"}, null.New},
		`"mine:" lacks`:         {"mine:", nil, null.New},
		"schemes or its opener": {"mine:", []string{"mine"}, nil},
		"scheme two: already":   {"two:", []string{"two", "two"}, null.New},
	} {
		if err := addSinks([]SinkType{more}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if len(sinkTypes) != before {
		t.Error("a sink with an error was added")
	}
}

// forgetful warns when it is opened.
type forgetful struct {
	sink.Sink
	log    func(string)
	maxAge time.Duration
}

func (s *forgetful) WarnTo(log func(string), maxAge time.Duration) { s.log, s.maxAge = log, maxAge }

func (s *forgetful) Open(ctx context.Context) error {
	s.log(fmt.Sprintf("forgets before %s", s.maxAge))
	return s.Sink.Open(ctx)
}

func TestWhatASinkWarnsOfIsInTheLogAndInTheOnlineCheck(t *testing.T) {
	t.Parallel()
	c, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	c.Namespaces = map[string]config.Namespace{"kart": c.Default}
	ns := c.Namespaces["kart"]
	ns.Sink, ns.MaxAge = "forgetful://user:s3cret@host", 7*time.Second
	c.Namespaces["kart"] = ns
	registry := sink.Registry{"forgetful": func(u *url.URL) (sink.Sink, error) {
		inner, err := null.New(&url.URL{Scheme: "null"})
		return &forgetful{Sink: inner}, err
	}}
	core, logs := observer.New(zap.DebugLevel)
	sinks, err := newSinks(c, registry, nil, prometheus.NewRegistry(), zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	if err := sinks["kart"].Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := logs.FilterMessage("forgets before 7s").FilterField(zap.String("namespace", "kart")).FilterField(zap.String("sink", "forgetful://…@host"))
	if seen.Len() != 1 || seen.All()[0].Level != zap.WarnLevel {
		t.Errorf("got %v, want one warning", logs.All())
	}
	c.Redis = redistest.Start(t).URL()
	if warnings, err := checkOnline(t.Context(), c, registry); err != nil || !slices.Contains(warnings, "namespace kart: forgets before 7s") {
		t.Errorf("got %q, %v", warnings, err)
	}
}

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

const canary = "correct-horse-battery"

// FuzzURLs checks that neither the errors nor the redacted form of a sink's or a
// store's URL show its password.
func FuzzURLs(f *testing.F) {
	for _, form := range []string{
		"https://u:%s@h/in", "http://h/%s?k=%s", "file:///x?max_size=%s", "file:///x?%s", "stdout:%s", "null:%s", "redis://:%s@h", "redis-sentinel://u:%s@a,b/m", "%s", "http:u:%s@h",
	} {
		f.Add(form)
	}
	for _, seed := range urlSeeds {
		f.Add(seed)
	}
	known := sinkRegistry()
	f.Fuzz(func(t *testing.T, form string) {
		// A slash too few or too many makes a user and password a path.
		for _, wrong := range []string{"https:/", "https:///", "https:", "redis:/", "redis:"} {
			raw := wrong + "u:" + canary + "@h/" + strings.ReplaceAll(form, "%s", "x")
			texts := []string{sink.Redact(raw), config.RedactStore(raw)}
			if s, err := known.New(raw); err == nil {
				_ = s.Close(context.Background())
			} else {
				texts = append(texts, err.Error())
			}
			if _, err := backend.Open(backend.Config{URL: raw}, prometheus.NewRegistry(), zap.NewNop()); err != nil {
				texts = append(texts, err.Error())
			}
			if shown := strings.Join(texts, "\n"); strings.Contains(shown, canary) && !strings.Contains(form, canary) {
				t.Fatalf("%q is shown as %q", raw, shown)
			}
		}
		for _, raw := range []string{strings.ReplaceAll(form, "%s", canary), "https://u:" + canary + "@" + form, "redis://u:" + canary + "@" + form} {
			if s, err := known.New(raw); err == nil {
				_ = s.Close(context.Background())
			} else if strings.HasPrefix(raw, "https://u:"+canary) && strings.Contains(err.Error(), canary) {
				t.Fatalf("%q is rejected with %v", raw, err)
			}
			if strings.HasPrefix(raw, "redis://u:"+canary) && strings.Contains(config.RedactStore(raw), canary) && !strings.Contains(form, canary) {
				t.Fatalf("%q is shown as %q", raw, config.RedactStore(raw))
			}
		}
	})
}
