package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

const canary = "correct-horse-battery"

// FuzzConfigFile checks that a file is rejected, or that the output of `config
// print` for it loads as the same configuration.
func FuzzConfigFile(f *testing.F) {
	for _, file := range []string{
		"capacity: 50\nnamespaces:\n  default: {linger: 2s, sink: \"null:\"}\n  kart:\n", "max_body: 5M\n", "a: &a [*a]\n", "? [\n", "--- {}\n--- {}\n",
		"namespaces: {a: {sink: \"http://u:" + canary + "@h/" + canary + "?k=" + canary + "\"}}\n", "capacity: &x 5\nbatch: *x\n", "<<: {batch: 1}\n", "\xff\xfe", "redis: 5\n",
		"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n", "capacity: !!binary AA==\n", strings.Repeat("[", 100), "? {a: b}\n: c\n", "prefix: \"a\\0b\"\n",
		"capacity: 0o17\nbatch: 0x10\n", "{}\n---\n{}\n", "capacity: !!str 5\nbatch: !!int \"5\"\n", "\ufeff{}",
		"admin_token: sw_secret\nnamespaces: {a: {tokens: [sw_secret, 7, {hash: x, hash: y}, null]}}\n",
		"namespaces:\n  kart:\n    tokens: [\"sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\", {hash: \"sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\", name: eu, rate: 5/s, new_partitions: 2/min}]\n",
	} {
		f.Add([]byte(file))
	}
	dir := f.TempDir()
	load := func(t *testing.T, text []byte) (*Config, error) {
		c := unsetConfig(t)
		c.File = filepath.Join(dir, "spillway.yaml")
		if err := os.WriteFile(c.File, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return c, c.Load(Process{LookupEnv: func(string) (string, bool) { return "", false }})
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := load(t, file)
		if err != nil {
			return
		}
		printed, err := yaml.Marshal(c.node())
		if err != nil {
			t.Fatalf("%q cannot be printed: %v", file, err)
		}
		again, err := load(t, printed)
		if err != nil {
			t.Fatalf("%q is printed as %q, which is rejected: %v", file, printed, err)
		}
		if got, want := printable(again), printable(c); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is printed as %q: got %+v, want %+v", file, printed, got, want)
		}
	})
}

// FuzzSetting parses a text as each type of setting. The text of an accepted value
// must parse to the same value.
func FuzzSetting(f *testing.F) {
	for _, text := range []string{"5", "-1", "90s", "3m0s", "1h0m0s", "64MiB", "3gb", "9223372036854775807KB", "1e400", "0x10", "t", "1_000", "٣", "NaN", "-Inf", "2562047h47m16.854775807s", "5µs"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, fresh := range []func() any{
			func() any { return new(int) }, func() any { return new(bool) }, func() any { return new(float64) },
			func() any { return new(time.Duration) }, func() any { return new(partition.Size) }, func() any { return new(string) },
		} {
			first, second := Setting{value: fresh()}, Setting{value: fresh()}
			if first.set(text) != nil {
				continue
			}
			printed := first.text()
			if printed == "NaN" {
				continue // no flag takes one, and it equals nothing
			}
			if err := second.set(printed); err != nil || !reflect.DeepEqual(first.value, second.value) {
				t.Fatalf("%T: %q is printed %q, which reads as %s, %v", first.value, text, printed, second.text(), err)
			}
		}
	})
}

// printable is a Config without secrets and origins, which config print leaves out.
func printable(c *Config) Config {
	plain := *c
	plain.File, plain.Redis, plain.origins, plain.Default.Sink = "", "", nil, ""
	plain.Secrets = sink.Secrets{}
	plain.Namespaces = map[string]Namespace{}
	for name, ns := range c.Namespaces {
		ns.Sink = ""
		plain.Namespaces[name] = ns
	}
	return plain
}

func unsetConfig(t *testing.T) *Config {
	var c struct {
		Config Config `embed:""`
	}
	parser, err := kong.New(&c, FlagDefaults(""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(nil); err != nil {
		t.Fatal(err)
	}
	return &c.Config
}
