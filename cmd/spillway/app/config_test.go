package app

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/partition/control"
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
	first := print("prefix: \"5\"\nmax_age: 90s\nmax_body: 2MB\nnamespaces: {default: {}, kart: {sink: \"file:///x.ndjson\", linger: 0s, transform: [{drop_if: {path: a.b, equals: \"5\"}}, {set: {path: n, value: 5}}, {sample: {keep: 10%}}]}}\n")
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

func TestConfigPrintShowsTokensInTheFormOfTheFile(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "spillway.yaml", fmt.Sprintf("admin_token: %s\nnamespaces:\n  kart:\n    tokens:\n      - {hash: %s, name: \"5\", rate: 60/min, new_partitions: 1/s}\n      - %s\n",
		hashText("a"), hashText("b"), hashText("c")))
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", path)
	if code != exitOK {
		t.Fatal(stderr)
	}
	for _, want := range []string{
		"\nadmin_token: " + hashText("a") + " # " + path + ":1\n",
		"    tokens: # " + path + ":5\n",
		"      - {hash: '" + hashText("b") + `', name: "5", rate: 60/min, new_partitions: 1/s}` + "\n",
		"      - " + hashText("c") + "\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	again, stderr, code := runCommand(t, nil, "", "config", "print", "--config", writeFile(t, "again.yaml", out))
	if code != exitOK || !strings.Contains(again, `name: "5", rate: 60/min`) {
		t.Errorf("the printed file is not accepted: %s%s", stderr, again)
	}
}

func TestTokenPrintsANewTokenAndItsHash(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 3 {
		out, _, code := runCommand(t, nil, "", "token", "-o", "json")
		var made struct{ Token, Hash string }
		if err := json.Unmarshal([]byte(out), &made); err != nil || code != exitOK {
			t.Fatal(out, err)
		}
		if len(made.Token) != len("sw_")+43 || seen[made.Token] || hashText(made.Token) != made.Hash {
			t.Errorf("got %+v", made)
		}
		seen[made.Token] = true
	}
	out, _, _ := runCommand(t, nil, "", "token")
	var token, hash string
	if _, err := fmt.Sscanf(out, "token  %s\nhash   %s\n", &token, &hash); err != nil || hashText(token) != hash {
		t.Errorf("got %q, %v", out, err)
	}
	if c, err := loadConfig(t, []string{"--admin-token=" + hash}, nil, "namespaces: {kart: {tokens: [\""+hash+"\"]}}\n"); err != nil || c.AdminToken != hash {
		t.Errorf("the configuration does not accept the hash: %v", err)
	}
}

// hashText is the hash of a token in the form of the file.
func hashText(token string) string { return control.FormatHash(sha256.Sum256([]byte(token))) }

// serve validates with the same functions.
func TestConfigCheckRejectsUnusableSettings(t *testing.T) {
	t.Parallel()
	const huge, ownTimeouts = "9223372036854775807", "time-outs, pools and retries are Spillway's own"
	for _, tt := range []struct {
		args string
		want []string // field, value, what to write
	}{
		{"--max-partitions=" + huge, []string{"namespaces.default.max_partitions: " + huge, "want 1 to 10000000"}},
		{"--max-partitions=0", []string{"max_partitions: 0 ", "want 1 to 10000000"}},
		{"--capacity=" + huge, []string{"capacity: " + huge, "want 1 to 10000000"}},
		{"--max-dead=" + huge, []string{"max_dead: " + huge, "want 1 to 1000000"}},
		{"--shards=" + huge, []string{"shards: " + huge, "want 1 to 1024"}},
		{"--batch=0", []string{"batch: 0 ", "want 1 to 128"}},
		{"--max-age=1ns", []string{"max_age: 1ns ", "want 100ms to 12h"}},
		{"--max-age=-1s", []string{"max_age: -1s ", "want 100ms to 12h"}},
		{"--max-age=2562047h", []string{"max_age: 2562047h", "want 100ms to 12h"}},
		{"--linger=-1ns", []string{"linger: -1ns ", "want 0s to max_age"}},
		{"--linger=4m", []string{"linger: 4m0s ", "want 0s to max_age"}},
		{"--delivery=once", []string{"delivery: once ", "want at-least-once or at-most-once"}},
		{"--backoff-base=0s", []string{"backoff_base: 0s ", "want 1ms or more"}},
		{"--backoff-max=50ms", []string{"backoff_max: 50ms ", "want backoff_base to 1h"}},
		{"--workers=0", []string{"workers: 0 ", "want 1 to 10000"}},
		{"--workers=" + huge, []string{"workers: " + huge, "want 1 to 10000"}},
		{"--sink-timeout=1ns", []string{"sink_timeout: 1ns ", "want 10ms to 10m"}},
		{"--sink-timeout=2562047h", []string{"sink_timeout: 2562047h", "want 10ms to 10m"}},
		{"--lease=1ns", []string{"lease: 1ns ", "want 2s more than sink_timeout"}},
		{"--lease=2562047h", []string{"lease: 2562047h", "want 1h at most"}},
		{"--sink-timeout=14s", []string{"lease: 15s ", "want 2s more than sink_timeout"}},
		{"--lanes=0", []string{"lanes: 0 ", "want 1 to 64"}},
		{"--max-conns=0", []string{"max_conns: 0 ", "want 1 to 1048576"}},
		{"--max-inflight-bytes=1B", []string{"max_inflight_bytes: 1 ", "want max_body + 3*max_decompressed + 1 MiB or more"}},
		{"--max-inflight-bytes=" + huge, []string{"max_inflight_bytes: " + huge, "want 1 TiB at most"}},
		{"--max-body=0", []string{"max_body: 0 ", "want 1 B to 1 GiB"}},
		{"--max-body=" + huge, []string{"max_body: " + huge, "want 1 B to 1 GiB"}},
		{"--max-body=8MiB", []string{"max_decompressed: 4194304 ", "want max_body to 1 GiB"}},
		{"--max-entries=0", []string{"max_entries: 0 ", "want 1 to 1000"}},
		{"--max-entry=0", []string{"max_entry: 0 "}},
		{"--read-timeout=1ns", []string{"read_timeout: 1ns ", "want 100ms to 1h"}},
		{"--read-timeout=2562047h", []string{"read_timeout: 2562047h", "want 100ms to 1h"}},
		{"--shutdown-timeout=1ns", []string{"shutdown_timeout: 1ns ", "want 100ms to 1h"}},
		{"--shutdown-timeout=2562047h", []string{"shutdown_timeout: 2562047h", "want 100ms to 1h"}},
		{"--log-level=loud", []string{"log_level: loud ", "want one of debug"}},
		{"--log-format=xml", []string{"log_format: xml ", "want one of auto"}},
		{"--role=both", []string{"role: both ", "want one of all"}},
		{"--durability=replica=9", []string{"durability: replica=9 ", "want async, or replica=1 to replica=5"}},
		{"--durability=replica=9 --redis=redis:/127.0.0.1", []string{"durability: replica=9 ", "redis: the URL is not usable"}},
		{"--prefix={a}", []string{"prefix: {a} ", "want 1 to 64 letters"}},
		{"--prefix=", []string{"prefix: ", "want 1 to 64 letters"}},
		{"--sink=pigeon:", []string{"sink", `"pigeon"`, " file: http:"}},
		{"--sink=http://127.1/", []string{"sink", "127.1", "write it as 10.0.0.1"}},
		{"--sink=file:///x?max_size=0B", []string{"sink", "max_size", "want 1B or more"}},
		{"--sink=file:///x?max_size=100", []string{"sink", "max_size", "100 has no unit: write 100MB, 100MiB or 100B"}},
		{"--tls-cert=/nowhere --tls-key=/nowhere", []string{"tls_cert", "/nowhere", "no such file"}},

		{"--listen=127.0.0.1", []string{"listen: 127.0.0.1 ", "want host:port"}},
		{"--listen=127.0.0.1:65536", []string{"listen: 127.0.0.1:65536 ", "want a port from 0 to 65535"}},
		{"--listen=127.0.0.1:-1", []string{"listen: 127.0.0.1:-1 ", "want a port from 0 to 65535"}},
		{"--admin-listen=127.0.0.1:no-such-service", []string{"admin_listen: 127.0.0.1:no-such-service ", "want a port from 0 to 65535"}},
		{"--admin-listen=127.0.0.1:8080", []string{"admin_listen: 127.0.0.1:8080 ", "a port other than"}},

		{"--redis=redis://h:1?read_timeout=5s", []string{`redis: option "read_timeout" `, "want no option but db", ownTimeouts}},
		{"--redis=rediss://h:1?pool_size=5", []string{`redis: option "pool_size" `, "want no option but db and skip_verify", ownTimeouts}},
		{"--redis=redis-sentinel://h1,h2/m?db=5", []string{`redis: option "db" `, "redis-sentinel://h1,h2/master/3"}},
		{"--redis=redis-cluster://h1,h2?max_redirects=1", []string{`redis: option "max_redirects" `, ownTimeouts}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			_, stderr, code := runCommand(t, nil, "", append([]string{"config", "check"}, strings.Fields(tt.args)...)...)
			if code != exitUsage {
				t.Errorf("exit %d, want %d", code, exitUsage)
			}
			for _, want := range tt.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q is missing in %q", want, stderr)
				}
			}
		})
	}
}

func TestUnknownVariablesAreUsageErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(env map[string]string, code int, text string) {
		t.Helper()
		for _, args := range [][]string{{"config", "check"}, {"report", file}} {
			_, stderr, got := runCommand(t, env, "", args...)
			if got != code || !strings.Contains(stderr, text) || text == "" && stderr != "" {
				t.Errorf("%v %v: got %d and %q, want %d and %q", env, args, got, stderr, code, text)
			}
		}
	}
	for _, name := range []string{"SPILLWAY_MAX_AEG", "SPILLWAY_max_age", "SPILLWAY_", "SPILLWAY_NAMESPACES", "SPILLWAY_ADMIN_PORT"} {
		check(map[string]string{name: "90s"}, exitUsage, name+": unknown variable: ")
	}
	check(map[string]string{
		// Variables of other commands and of other programs are allowed.
		"SPILLWAY_MAX_AGE": "90s", "SPILLWAY_TOKEN": "x", "SPILLWAY_TO_TOKEN": "x", "SPILLWAY_ASSERT": "2", "SPILLWAY_MAX_AEG": "", "MAX_AEG": "x", "SPILLWAYS_X": "x", "spillway_x": "x",
		// Kubernetes sets these for a Service called spillway, or spillway-admin.
		"SPILLWAY_SERVICE_HOST": "10.0.0.1", "SPILLWAY_SERVICE_PORT": "80", "SPILLWAY_SERVICE_PORT_DATA": "80", "SPILLWAY_PORT": "tcp://10.0.0.1:80",
		"SPILLWAY_PORT_80_TCP": "tcp://10.0.0.1:80", "SPILLWAY_PORT_80_TCP_PROTO": "tcp", "SPILLWAY_PORT_80_TCP_PORT": "80", "SPILLWAY_PORT_80_TCP_ADDR": "10.0.0.1",
		"SPILLWAY_ADMIN_SERVICE_HOST": "10.0.0.1", "SPILLWAY_ADMIN_PORT": "tcp://10.0.0.1:80", "SPILLWAY_ADMIN_PORT_8081_TCP_ADDR": "10.0.0.1",
	}, exitOK, "")
}

func TestTheAdminPortShowsTheSettingsOfANamespace(t *testing.T) {
	t.Parallel()
	a := startApp(t, "--sink=https://user:secret@127.0.0.1:1/path")
	_, body := a.get(t, a.AdminListen, "/api/v1/namespaces")
	const want = `{"namespaces":[{"namespace":"default","kind":"buffer","sink":"https://…@127.0.0.1:1/…","fallback":"","capacity":10000,"max_age_ms":180000,"batch":128,"linger_ms":5,"delivery":"at-least-once","shards":1,"max_partitions":100000,"max_keys":1000000,"max_dead":10000,"max_dead_bytes":67108864,"backoff_base_ms":100,"backoff_max_ms":30000}]}` + "\n"
	if body != want {
		t.Errorf("got %s", body)
	}
}

func TestAnUnknownVariableNamesTheNearest(t *testing.T) {
	t.Parallel()
	env := map[string]string{"SPILLWAY_MAX_AEG": "90s", "SPILLWAY_ADMIN_LISTN": "x", "SPILLWAY_TTL": "5s", "SPILLWAY_WORKERS": "many"}
	_, stderr, code := runCommand(t, env, "", "config", "check", "--capacity=0")
	for _, want := range []string{
		"SPILLWAY_MAX_AEG: unknown variable: did you mean SPILLWAY_MAX_AGE?", "SPILLWAY_ADMIN_LISTN: unknown variable: did you mean SPILLWAY_ADMIN_LISTEN?",
		"SPILLWAY_TTL: unknown variable: no setting has that name", `SPILLWAY_WORKERS: "many" is not a whole number`, "--capacity: namespaces.default.capacity: 0 is not usable",
	} {
		if code != exitUsage || strings.Count(stderr, want) != 1 {
			t.Errorf("exit %d, and %q is not once in %s", code, want, stderr)
		}
	}
}

func TestTransformShowsWhatBecomesOfEvents(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "spillway.yaml", "namespaces:\n  plain: {}\n  kart:\n    transform:\n      - drop_if: {path: event, equals: ping}\n"+
		"      - mask: {paths: [user.email], as: hash, key: \"{env:MASK_KEY}\"}\n      - partition_paths: [game]\n      - keep: [user, game]\n")
	env := map[string]string{"MASK_KEY": "x"}
	out, stderr, code := runCommand(t, env, `{"event":"ping"}
{"event":"lap","user":{"email":"a<b"},"game":"eu 1"}

{"event":"lap"}
[1]
none
`, "transform", "kart", "--config", path)
	want := `{"result":"filtered"}
{"result":"kept","partition":"eu-1","data":{"user":{"email":"9512cf8bbbc029be79b70eaaa3774495"},"game":"eu 1"}}
{"result":"emptied"}
{"result":"opaque","data":[1]}
{"result":"unreadable"}
`
	if code != exitOK || out != want {
		t.Errorf("got %d %s%s", code, out, stderr)
	}
	for args, want := range map[string]string{"plain": "namespace plain has no transform", "nobody": "no buffer nobody: it has kart, plain"} {
		if _, stderr, code := runCommand(t, env, "", "transform", args, "--config", path); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d %s", args, code, stderr)
		}
	}
}
