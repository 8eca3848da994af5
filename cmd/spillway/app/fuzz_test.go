package app

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
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
		return c, c.load(process{lookupEnv: func(string) (string, bool) { return "", false }})
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

func unsetConfig(t *testing.T) *Config {
	var c struct {
		Config Config `embed:""`
	}
	parser, err := kong.New(&c, flagDefaults(sinkSchemes()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(nil); err != nil {
		t.Fatal(err)
	}
	return &c.Config
}

// printable is a Config without secrets and origins, which config print leaves out.
func printable(c *Config) Config {
	plain := *c
	plain.File, plain.Redis, plain.origins, plain.Default.Sink = "", "", nil, ""
	plain.secrets = sink.Secrets{}
	plain.Namespaces = map[string]Namespace{}
	for name, ns := range c.Namespaces {
		ns.Sink = ""
		plain.Namespaces[name] = ns
	}
	return plain
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
			first, second := setting{value: fresh()}, setting{value: fresh()}
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
			texts := []string{sink.Redact(raw), redactStore(raw)}
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
			if strings.HasPrefix(raw, "redis://u:"+canary) && strings.Contains(redactStore(raw), canary) && !strings.Contains(form, canary) {
				t.Fatalf("%q is shown as %q", raw, redactStore(raw))
			}
		}
	})
}

// FuzzReportLine checks that readLines returns the lines of the input, and that
// each accepted line becomes one valid line for the mixed route.
func FuzzReportLine(f *testing.F) {
	for _, text := range []string{
		`{"partition":"kart-7","id":"a","ts":1763629675100,"offset_ms":40,"data":{"lap":4}}`, `{"partition":"p","data":1,"data":2}`, "\n\n{}\n", `{"partition":"a/b","data":1}`,
		`{"partition":"p","data":"\ud800"}`, `{"partition":"p","ts":1e3,"data":1}`, `{"\u0070artition":"p","data":null}`, "[]", "\xff", `{"partition":"p","id":"a b","data":1}`,
		`{"partition":"{p}","data":1}`, "\n\r\n \n{}\n", `{"partition":"\u0070","data":1}`, `{"partition":"p","id":"a\nb","data":1}`, "\x00\n",
		`{"partition":"p","data":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}",
	} {
		f.Add([]byte(text), false)
	}
	f.Add([]byte(`{"partition":"p","offset_ms":9223372036854775807,"data":1}`), true)
	f.Add([]byte(`{"partition":"kart-7","id":"a","ts":1763629675100,"offset_ms":40,"data":{"lap":4}}`), true)
	f.Fuzz(func(t *testing.T, text []byte, replay bool) {
		lines := make(chan line, bytes.Count(text, []byte("\n"))+1)
		if err := readLines(t.Context(), bytes.NewReader(text), lines); err != nil {
			t.Fatal(err)
		}
		close(lines)
		all := bytes.Split(text, []byte("\n"))
		for l := range lines {
			if !l.tooLong && !bytes.Equal(l.text, bytes.TrimSpace(all[l.number-1])) {
				t.Fatalf("line %d of %q is %q", l.number, text, l.text)
			}
			it, err := l.item(replay)
			if err != nil {
				continue
			}
			var got struct{ Partition string }
			if err := json.Unmarshal(it.encoded, &got); err != nil || bytes.IndexByte(it.encoded, '\n') != len(it.encoded)-1 || !partition.ValidPartition(got.Partition) {
				t.Fatalf("%q becomes %q, %v", l.text, it.encoded, err)
			}
		}
	})
}

func FuzzAsserts(f *testing.F) {
	for _, list := range []string{"p99<5ms,residual=0", "p99<5", "=", "p99<>5ms", "rate>=1e400", "lost!=NaN", ",,", "p99 < 5ms", "delivered==0x10", "p99<<5ms", "rate<=+Inf", "<5ms", " p99 < 5ms , , ", "requests=5ms"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		asserts, err := parseAsserts(list)
		if err != nil {
			return
		}
		for _, a := range asserts {
			if !slices.Contains(benchFigures, a.key) || a.op == "" || !strings.HasPrefix(a.text, a.key) {
				t.Fatalf("%q: got %+v", list, a)
			}
			if a.holds(a.want) != slices.Contains([]string{"<=", ">=", "=", "=="}, a.op) {
				t.Fatalf("%q: %+v compared with itself", list, a)
			}
		}
	})
}
