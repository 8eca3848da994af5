package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

func TestDefaultNamespaceExistsUnlessTheFileLeavesItOut(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                                    "[default]",
		"# nothing but a comment\n":           "[default]",
		"capacity: 5\n":                       "[default]",
		"namespaces: {kart: {}}\n":            "[kart]",
		"namespaces: {kart: , default: {}}\n": "[default kart]",
	} {
		c, err := loadConfig(t, nil, nil, file)
		if err != nil {
			t.Errorf("%q: %v", file, err)
			continue
		}
		if got := fmt.Sprint(c.Names()); got != want {
			t.Errorf("%q: got %s, want %s", file, got, want)
		}
	}
}

func TestFileErrorsNameLineFieldValueAndWhatToChange(t *testing.T) {
	t.Parallel()
	keys := strings.Join(append(KeysOf(SettingsOf(&Config{}))[1:], "admin_tokens", "mask_fields", "pools", "sinks", "namespaces"), ", ") // without config
	nsKeys := strings.Join(namespaceKeys(), ", ")
	const wantDurability = " is not usable: want async, or replica=1 to replica=5 with a redis that has replicas; embedded: has none"
	tests := []struct{ name, file, want string }{
		{"unknown key", "redis: \"embedded:\"\nttl: 5s\n", "spillway.yaml:2: ttl: unknown key: want one of " + keys},
		{"misspelt key", "redis: \"embedded:\"\ncapcity: 5\n", "spillway.yaml:2: capcity: unknown key: did you mean capacity?"},
		{"key of a namespace at the top", "write_keys: [a]\n", "spillway.yaml:1: write_keys: unknown key: each namespace has its own: write it below the name of one, in namespaces"},
		{"key of the top in a namespace", "namespaces:\n  kart: {workers: 5}\n", "spillway.yaml:2: namespaces.kart.workers: unknown key: it is for all namespaces together: write it at the top of the file, not indented"},
		{"key of the top in a namespace with a dot", "namespaces:\n  kart.eu: {workers: 5}\n", "spillway.yaml:2: namespaces.kart.eu.workers: unknown key: it is for all namespaces together: write it at the top of the file, not indented"},
		{"key of a queue at the top", "max_jobs: 5\n", "spillway.yaml:1: max_jobs: unknown key: each namespace has its own: write it below the name of one, in namespaces"},
		{"key of a queue in a buffer", "namespaces:\n  mail: {push: [{sink: crm}]}\n", "spillway.yaml:2: namespaces.mail.push: unknown key: it is for queues: add kind: queue to this namespace"},
		{"key of a queue in a buffer that says so", "namespaces:\n  mail: {kind: buffer, dead: drop}\n", "spillway.yaml:2: namespaces.mail.dead: unknown key: it is for queues: add kind: queue to this namespace"},
		{"key of a buffer in a queue", "namespaces:\n  mail: {kind: queue, max_age: 3m}\n", "spillway.yaml:2: namespaces.mail.max_age: unknown key: it is for buffers, and this namespace is of kind queue: remove it"},
		{"rules in a queue", "namespaces:\n  mail: {kind: queue, rules: [{match: a, tries: 2}]}\n", "spillway.yaml:2: namespaces.mail.rules: unknown key: rules are the entries of queues: write queues"},
		{"sink in a queue", "namespaces:\n  mail: {kind: queue, sink: \"null:\"}\n", "spillway.yaml:2: namespaces.mail.sink: unknown key: it is for buffers, and this namespace is of kind queue: its push names one of the sinks at the top of the file"},
		{"key of the top in a queue", "namespaces:\n  mail: {kind: queue, workers: 5}\n", "spillway.yaml:2: namespaces.mail.workers: unknown key: it is for all namespaces together: write it at the top of the file, not indented"},
		{"misspelt key of a queue", "namespaces:\n  mail: {kind: queue, max_job: 5}\n", "spillway.yaml:2: namespaces.mail.max_job: unknown key: did you mean max_jobs?"},
		{"unknown step", "namespaces:\n  kart: {transform: [{drop: {path: a}}]}\n", "spillway.yaml:2: namespaces.kart.transform[0]: field drop not found"},
		{"unknown key of a step", "namespaces:\n  kart: {transform: [{keep: [a]}, {drop_if: {path: a, equal: b}}]}\n", "spillway.yaml:2: namespaces.kart.transform[1]: field equal not found"},
		{"step that cannot work", "namespaces:\n  kart:\n    transform: [{sample: {keep: 0%}}]\n", "spillway.yaml:3: namespaces.kart.transform: step 1: keep: \"0%\": want more than 0% and less than 100%, such as 10%"},
		{"step with a key that anybody reads", "namespaces:\n  kart: {transform: [{mask: {paths: [a], as: hash, key: secret}}]}\n", `spillway.yaml:2: namespaces.kart.transform: step 1: mask: write a key such as "{file:/run/secrets/mask}"`},
		{"transform of a queue", "namespaces:\n  mail: {kind: queue, transform: [{keep: [a]}]}\n", "spillway.yaml:2: namespaces.mail.transform: unknown key: it is for buffers, and this namespace is of kind queue: remove it"},
		{"the flag that names the file", "config: x\n", "spillway.yaml:1: config: unknown key: want one of " + keys},
		{"unknown key of a namespace", "namespaces:\n  kart:\n    ttl: 5s\n", "spillway.yaml:3: namespaces.kart.ttl: unknown key: want one of " + nsKeys},
		{"key twice", "capacity: 5\nbatch: 2\ncapacity: 6\n", "spillway.yaml:3: capacity: duplicate key, first on line 1: remove one"},
		{"namespace twice", "namespaces:\n  kart: {}\n  kart: {}\n", "spillway.yaml:3: namespaces.kart: duplicate key, first on line 2: remove one"},
		{"word for a number", "capacity: many\n", `spillway.yaml:1: capacity: "many" is not a whole number: write one such as 100`},
		{"fraction for a whole number", "capacity: 2.5\n", `spillway.yaml:1: capacity: "2.5" is not a whole number: write one such as 100`},
		{"quoted number", "capacity: \"5\"\n", `spillway.yaml:1: capacity: "5" is text: remove the quotes`},
		{"number for text", "prefix: 5\n", "spillway.yaml:1: prefix: 5 is not text: put it in quotes"},
		{"word for a switch", "insecure_no_auth: yes\n", `spillway.yaml:1: insecure_no_auth: "yes" is neither true nor false`},
		{"duration without unit", "max_age: 90\n", `spillway.yaml:1: max_age: "90" is not a duration: write one with its unit, such as 90s, 3m or 500ms`},
		{"size with an unclear unit", "max_body: 5M\n", `spillway.yaml:1: max_body: "5M" is not a size: write one such as 64MiB, 100MB or 4096`},
		{"no value", "\ncapacity:\n", "spillway.yaml:2: capacity: no value: write one or remove the line"},
		{"list", "sink: [a, b]\n", "spillway.yaml:1: sink: a map or a list: write a single value"},
		{"map", "sink: {a: b}\n", "spillway.yaml:1: sink: a map or a list: write a single value"},
		{"no map at all", "- a\n", "spillway.yaml:1: not a map: write keys with values, such as `capacity: 5000`"},
		{"namespace that is no map", "namespaces:\n  kart: 5\n", "spillway.yaml:2: namespaces.kart: not a map: write keys with values, such as `capacity: 5000`"},
		{"not YAML", "a: b: c\n", "spillway.yaml: not YAML: mapping values are not allowed in this context; indent with spaces, not tabs, and quote a value that ends with a colon, such as \"stdout:\""},
		{"second document", "capacity: 5\n---\ncapacity: 6\n", "spillway.yaml: more than one YAML document: remove ---"},
		{"bad namespace", "namespaces:\n  \"a b\": {}\n  kart: {}\n", "spillway.yaml:2: namespaces.a b: not a name: write 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first"},
		{"no namespace", "namespaces: {}\n", "spillway.yaml:1: namespaces: none given: add one, or remove the key"},
		{"out of range", "batch: 500\n", "spillway.yaml:1: namespaces.default.batch: 500 is not usable: want 1 to 128 entries"},
		{"out of range in a namespace", "namespaces:\n  kart:\n    max_age: 13h\n", "spillway.yaml:3: namespaces.kart.max_age: 13h0m0s is not usable: want 100ms to 12h: what is worth keeping for longer belongs in a log"},
		{"unknown durability", "durability: fsync\n", "spillway.yaml:1: durability: fsync" + wantDurability},
		{"no replica", "redis: redis://h:1\ndurability: replica=0\n", "spillway.yaml:2: durability: replica=0" + wantDurability},
		{"a replica of nothing", "durability: replica=1\n", "spillway.yaml:1: durability: replica=1" + wantDurability},
		{"unknown delivery", "delivery: exactly-once\n", "spillway.yaml:1: namespaces.default.delivery: exactly-once is not usable: want at-least-once or at-most-once"},
		{"another package's setting", "lanes: 0\n", "spillway.yaml:1: lanes: 0 is not usable: want 1 to 64"},
		{"lease too short for its sink", "lease: 10s\n", "spillway.yaml:1: lease: 10s is not usable: want 2s more than sink_timeout, or a slow write outlives its lease; sink_timeout is 10s (the default)"},
		{"two that do not go together", "namespaces:\n  kart:\n    max_age: 500ms\n    linger: 1s\n", "spillway.yaml:4: namespaces.kart.linger: 1s is not usable: want 0s to max_age, or entries expire while they wait; max_age is 500ms (spillway.yaml:3)"},
		{"file, environment and ranges at once", "capcity: 5\nlanes: 0\nbatch: 0\nshards: 0\n",
			"spillway.yaml:1: capcity: unknown key: did you mean capacity?\nspillway.yaml:2: lanes: 0 is not usable: want 1 to 64\n" +
				"spillway.yaml:3: namespaces.default.batch: 0 is not usable: want 1 to 128 entries\nspillway.yaml:4: namespaces.default.shards: 0 is not usable: want 1 to 1024, or auto"},
		{"one file for two", "namespaces:\n  a: {sink: \"file:///x/y\"}\n  b: {sink: \"file:///x/./y?max_size=1MB\"}\n", "spillway.yaml:3: namespaces.b.sink: /x/y is not usable: want another file, because namespace a writes to this one"},
		{"a branch that is not there", "namespaces:\n  a: {sink: \"namespaces://b,c\"}\n  b: {}\n", "spillway.yaml:2: namespaces.a.sink: namespaces://b,c is not usable: want names that namespaces has, and it has no c"},
		{"its own branch", "namespaces:\n  a: {sink: \"namespaces://a\"}\n", "spillway.yaml:2: namespaces.a.sink: namespaces://a is not usable: want no way back to a: a feeds a"},
		{"branches in a circle", "namespaces:\n  a: {sink: \"namespaces://c,b\"}\n  b: {sink: \"namespaces://a\"}\n  c: {}\n",
			"spillway.yaml:2: namespaces.a.sink: namespaces://c,b is not usable: want no way back to a: a feeds b feeds a\n" +
				"spillway.yaml:3: namespaces.b.sink: namespaces://a is not usable: want no way back to b: b feeds a feeds b"},
		{"several at once", "capacity: many\nshards: few\n", "spillway.yaml:1: capacity: \"many\" is not a whole number: write one such as 100\nspillway.yaml:2: shards: \"few\" is not a number of shards: write one such as 12, or auto"},
		{"invalid although a flag takes precedence", "workers: many\n", `spillway.yaml:1: workers: "many" is not a whole number: write one such as 100`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadConfig(t, []string{"--workers=5"}, nil, tt.file)
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), "")
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestFlagAndEnvironmentErrorsSayWhereTheValueIs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{"environment, wrong type", nil, map[string]string{"SPILLWAY_MAX_AGE": "90"}, `SPILLWAY_MAX_AGE: "90" is not a duration: write one with its unit, such as 90s, 3m or 500ms`},
		{"environment, out of range", nil, map[string]string{"SPILLWAY_SHARDS": "0"}, "SPILLWAY_SHARDS: namespaces.default.shards: 0 is not usable: want 1 to 1024, or auto"},
		{"environment, file missing", nil, map[string]string{"SPILLWAY_CONFIG": "/nowhere/at/all"}, "config: open /nowhere/at/all: no such file or directory"},
		{"flag, out of range", []string{"--capacity=0"}, nil, "--capacity: namespaces.default.capacity: 0 is not usable: want 1 to 10000000 entries"},
		{"role", []string{"--role=both"}, nil, "--role: role: both is not usable: want one of all, ingest, drain\n--role: role: both is not usable: want all, because other processes cannot use an embedded store; or set redis, the same in all processes"},
		{"embedded, ingest alone", []string{"--role=ingest"}, nil, "--role: role: ingest is not usable: want all, because other processes cannot use an embedded store; or set redis, the same in all processes"},
		{"embedded, drain alone", []string{"--role=drain"}, nil, "--role: role: drain is not usable: want all, because other processes cannot use an embedded store; or set redis, the same in all processes"},
		{"log level", []string{"--log-level=loud"}, nil, "--log-level: log_level: loud is not usable: want one of debug, info, warn, error"},
		{"linger inherited from the defaults", []string{"--max-age=500ms"}, nil, "namespaces.default.linger: 1s is not usable: want 0s to max_age, or entries expire while they wait; max_age is 500ms (--max-age)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := loadConfig(t, tt.args, tt.env, "")
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestNamespacesInheritFromTheTopLevel(t *testing.T) {
	t.Parallel()
	const file = `
capacity: 50
max_age: 2m
namespaces:
  default: {capacity: 60, linger: 2s}
  kart: {capacity: 70, sink: "null:"}
  chess:
`
	tests := []struct {
		name                 string
		args                 []string
		env                  map[string]string
		def, kart, chess     int // capacities
		defaultAge, kartsAge time.Duration
	}{
		{"file", nil, nil, 60, 70, 50, 2 * time.Minute, 2 * time.Minute},
		{"flag beats the file's default namespace, not the others'", []string{"--capacity=80"}, nil, 80, 70, 80, 2 * time.Minute, 2 * time.Minute},
		{"so does the environment", nil, map[string]string{"SPILLWAY_CAPACITY": "90", "SPILLWAY_MAX_AGE": "1m"}, 90, 70, 90, time.Minute, time.Minute},
		{"an empty variable is none", nil, map[string]string{"SPILLWAY_CAPACITY": ""}, 60, 70, 50, 2 * time.Minute, 2 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadConfig(t, tt.args, tt.env, file)
			if err != nil {
				t.Fatal(err)
			}
			ns := c.Namespaces
			got := []any{ns["default"].Capacity, ns["kart"].Capacity, ns["chess"].Capacity, ns["default"].MaxAge, ns["kart"].MaxAge, ns["default"].Linger, ns["kart"].Sink, ns["chess"].Sink}
			want := []any{tt.def, tt.kart, tt.chess, tt.defaultAge, tt.kartsAge, 2 * time.Second, "null:", "stdout:"}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestOtherAddressesThanLoopbackNeedAuthentication(t *testing.T) {
	t.Parallel()
	for address, loopback := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:80": true, "[::1]:80": true, "localhost:80": true, "[::ffff:127.0.0.1]:80": true,
		":9090": false, "0.0.0.0:9090": false, "[::]:9090": false, "10.0.0.5:80": false, "example.com:80": false, "localhost.example.com:80": false,
	} {
		for _, flag := range []string{"--listen=", "--admin-listen="} {
			_, err := loadConfig(t, []string{flag + address}, nil, "")
			if (err == nil) != loopback {
				t.Errorf("%s%s: got %v, want accepted: %t", flag, address, err, loopback)
			}
			if _, err = loadConfig(t, []string{flag + address, "--insecure-no-auth"}, nil, ""); err != nil {
				t.Errorf("%s%s --insecure-no-auth: %v", flag, address, err)
			}
		}
	}
	if _, err := loadConfig(t, []string{"--listen=8080"}, nil, ""); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("got %v, want an error that names host:port", err)
	}
}

func TestPrecedenceIsFlagThenEnvironmentThenFileThenDefault(t *testing.T) {
	t.Parallel()
	// Four values of a setting of each type, in the order of precedence.
	settings := []struct {
		key, flag, env, file, unset string
		got                         func(c *Config) any
	}{
		{"prefix", "a", "b", "c", "sw", func(c *Config) any { return c.Prefix }},
		{"workers", "11", "12", "13", "64", func(c *Config) any { return c.Workers }},
		{"sink_timeout", "1s", "2s", "3s", "10s", func(c *Config) any { return c.SinkTimeout }},
		{"max_body", "1MB", "2MB", "3MB", "1MiB", func(c *Config) any { return c.MaxBody }},
		{"insecure_no_auth", "true", "true", "true", "false", func(c *Config) any { return c.InsecureNoAuth }},
		{"capacity", "1", "2", "3", "10000", func(c *Config) any { return c.Namespaces["default"].Capacity }},
		{"sink", "null:", "file:///e", "file:///f", "stdout:", func(c *Config) any { return c.Namespaces["default"].Sink }},
	}
	for _, s := range settings {
		for set := range 8 { // bit 2: flag, bit 1: environment, bit 0: file
			want := s.unset
			var args []string
			env, file := map[string]string{}, ""
			if set&1 != 0 {
				file, want = s.key+": "+s.file+"\n", s.file
				if s.key == "sink" {
					file = fmt.Sprintf("sink: %q\n", s.file)
				}
			}
			if set&2 != 0 {
				env["SPILLWAY_"+strings.ToUpper(s.key)], want = s.env, s.env
			}
			if set&4 != 0 {
				args, want = []string{"--" + strings.ReplaceAll(s.key, "_", "-") + "=" + s.flag}, s.flag
			}
			t.Run(fmt.Sprintf("%s/%03b", s.key, set), func(t *testing.T) {
				t.Parallel()
				c, err := loadConfig(t, args, env, file)
				if err != nil {
					t.Fatal(err)
				}
				if got := fmt.Sprint(s.got(c)); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

// loadConfig loads a configuration as serve does.
func loadConfig(t *testing.T, args []string, env map[string]string, file string) (*Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "spillway.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	var c struct {
		Config Config `embed:""`
	}
	parser, err := kong.New(&c, FlagDefaults(""))
	if err != nil {
		t.Fatal(err)
	}
	k, err := parser.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	p := Process{Given: GivenFlags(k), LookupEnv: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}}
	return &c.Config, c.Config.Load(p)
}

type mistake struct{ name, file, want string }

// findMistakes loads files, each after the same lines. An error begins with the file and want, is of
// one line, and shows no token.
func findMistakes(t *testing.T, before string, list []mistake) {
	t.Helper()
	for _, tt := range list {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadConfig(t, nil, nil, before+tt.file+"\n")
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), "")
			if !strings.HasPrefix(got, "spillway.yaml:"+tt.want) || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant spillway.yaml:%s", got, tt.want)
			}
			if strings.Contains(got, "hunter2") {
				t.Errorf("the error shows the token: %s", got)
			}
		})
	}
}

func TestOriginErrorsNameLineAndSayWhatToWrite(t *testing.T) {
	t.Parallel()
	const notAList = `not a list: write ["https://game.example"], or "*" for every page`
	tests := []mistake{
		{"a path", `cors_origins: ["https://kart.example/"]`, `3: namespaces.kart.cors_origins[0]: "https://kart.example/" is not an origin as browsers send it: write "https://kart.example"`},
		{"a wildcard", "cors_origins:\n      - https://a.example\n      - https://*.example", `5: namespaces.kart.cors_origins[1]: "https://*.example": a part of an origin cannot be a *: list each origin, or write "*" alone to allow every page`},
		{"no scheme", "cors_origins: [kart.example]", `3: namespaces.kart.cors_origins[0]: "kart.example" is not an origin: write scheme://host or scheme://host:port, such as https://game.example`},
		{"no list", "cors_origins: https://kart.example", "3: namespaces.kart.cors_origins: " + notAList},
		{"no value", "cors_origins:", "3: namespaces.kart.cors_origins: " + notAList},
		{"an empty list", "cors_origins: []", `3: namespaces.kart.cors_origins: empty list: write ["https://game.example"], or "*" for every page, or remove the key to allow no page`},
		{"a number", "cors_origins: [5]", `3: namespaces.kart.cors_origins[0]: not text: `},
		{"a list in it", "cors_origins: [[https://a.example]]", `3: namespaces.kart.cors_origins[0]: not text: `},
		{"twice", "cors_origins: [https://a.example, https://a.example]", "3: namespaces.kart.cors_origins[1]: duplicate origin, first on line 3: remove one"},
		{"all and one", `cors_origins: ["*", https://a.example]`, `3: namespaces.kart.cors_origins[0]: "*" beside other origins: remove either`},
		{"at the top", "sink: \"null:\"\ncors_origins: \"*\"", "4: cors_origins: unknown key: each namespace has its own: "},
	}
	findMistakes(t, "namespaces:\n  kart:\n    ", tests)
}

func TestFallbacksAreAListOrAText(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		"fallback: \"file:///a null:\"\n", "fallback: [\"file:///a\", \"null:\"]\n", "namespaces:\n  default:\n    fallback:\n      - file:///a\n      - \"null:\"\n",
	} {
		c, err := loadConfig(t, nil, nil, file)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Namespaces["default"].Fallback; got != "file:///a null:" {
			t.Errorf("%s: got %q", file, got)
		}
	}
}
