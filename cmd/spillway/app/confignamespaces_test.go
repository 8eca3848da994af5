package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

func TestQueuesAreSettingsOfANamespace(t *testing.T) {
	t.Parallel()
	const file = `
sinks:
  crm: "https://u:secret@crm.example/jobs"
namespaces:
  kart: {kind: buffer}
  plain: {kind: queue}
  mail:
    kind: queue
    shards: 4
    spread: {bulk: 4}
    max_jobs: 5000
    max_queues: 10
    dead: drop
    reply_ttl: 5m
    tokens:
      - sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
      - {hash: "sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9", name: workers, consume: 1000/min}
    queues:
      - {match: "mail-*", rate: 100/s, burst: 50, concurrency: 8}
      - {match: bulk, rate: none, tries: 20, keep_trace: 24h}
    push:
      - {match: "mail-*", sink: crm, writes: 1..64, target: 300ms, batch: 16, backoff: 2s..5m}
`
	c, err := loadConfig(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	if _, isBuffer := c.Namespaces["kart"]; !isBuffer || len(c.Namespaces) != 1 || len(c.QueueNamespaces) != 2 {
		t.Fatalf("got the buffers %v and the queues %v", c.Names(), c.QueueNames())
	}
	got := c.QueueNamespaces["mail"]
	if n := len(got.Tokens); n != 2 || got.Tokens[1].Name != "workers" || got.Tokens[1].Consume != (partition.Rate{Count: 1000, Per: time.Minute}) {
		t.Errorf("got the tokens %+v", got.Tokens)
	}
	got.Tokens = nil
	want := config.QueueNamespace{Shards: 4, MaxJobs: 5000, MaxQueues: 10, MaxKeys: 1_000_000, MaxSchedules: 100_000, MaxTraces: 10_000, Dead: "drop", ReplyTTL: 5 * time.Minute, Spread: map[string]int{"bulk": 4},
		Rules: []config.QueueRule{
			{Match: "mail-*", Rate: job.RateLimit{Rate: partition.Rate{Count: 100, Per: time.Second}}, Burst: 50, Concurrency: 8},
			{Match: "bulk", Rate: job.RateLimit{None: true}, Tries: 20, KeepTrace: job.Span(24 * time.Hour)},
		},
		Push: []config.Push{{
			Match: "mail-*", Sink: "crm", Writes: config.Writes{Least: 1, Most: 64}, Target: 300 * time.Millisecond, Batch: 16,
			Backoff: config.Backoff{Base: 2 * time.Second, Max: 5 * time.Minute},
		}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", c.File)
	if code != exitOK || strings.Contains(out, "u:secret") || !strings.Contains(out, "crm: https://…@crm.example/…") {
		t.Fatal(stderr, out)
	}
	again, stderr, code := runCommand(t, nil, "", "config", "print", "--config", writeFile(t, "again.yaml", out))
	for _, part := range []string{"kind: queue", "max_jobs: 5000 # ", "dead: drop # ", "bulk: 4", `- {match: mail-*, sink: crm, writes: 1..64, target: 300ms, batch: 16, backoff: 2s..5m}`, `- {match: mail-*, rate: 100/s, burst: 50, concurrency: 8}`, `- {match: bulk, rate: none, tries: 20, keep_trace: 24h}`, "name: workers, consume: 1000/min}"} {
		if code != exitOK || !strings.Contains(again, part) {
			t.Errorf("%q is missing in\n%s%s", part, stderr, again)
		}
	}
}

func TestSinksOfPushAreChecked(t *testing.T) {
	t.Parallel()
	for sinks, want := range map[string]string{
		`{crm: "https://crm.example/in null:"}`:          "",
		`{crm: "htps://crm.example/in"}`:                 `spillway.yaml:4: sinks.crm: unknown sink scheme "htps"`,
		`{crm: "null: file:///no/such/folder/x.ndjson"}`: "spillway.yaml:4: sinks.crm: ",
		`{crm: " "}`: "spillway.yaml:4: sinks.crm: ",
		`{crm: "https://u:{env:NO_SUCH_PASSWORD}@crm.example"}`: "NO_SUCH_PASSWORD",
	} {
		file := writeFile(t, "spillway.yaml", "namespaces:\n  mail: {kind: queue, push: [{sink: crm}]}\n\nsinks: "+sinks+"\n")
		_, stderr, code := runCommand(t, nil, "", "config", "check", "--config", file)
		if (code == exitOK) != (want == "") || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d, %s\nwant %s", sinks, code, stderr, want)
		}
	}
}

func TestARoleDecidesWhatATokenMayDo(t *testing.T) {
	t.Parallel()
	a := startApp(t, "--admin-token="+hashText("root"), "--sink=null:", "--config="+writeFile(t, "spillway.yaml", fmt.Sprintf(
		"admin_tokens: [{name: vi, role: viewer, hash: %q}, {name: op, role: operator, hash: %q}]\n", hashText("v"), hashText("o"))))
	for _, tt := range []struct {
		path, token string
		want        int
	}{
		{"/metrics", "v", 200}, {"/api/v1/namespaces", "v", 200}, {"/debug/pprof/symbol", "v", 403}, {"/debug/pprof/symbol", "o", 403},
		{"/debug/pprof/symbol", "root", 200}, {"/metrics", "x", 401}, {"/metrics", "", 401}, {"/livez", "", 200},
	} {
		r, _ := http.NewRequest("GET", "http://"+a.AdminListen+tt.path, nil)
		r.Header.Set("Authorization", "Bearer "+tt.token)
		res, err := a.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != tt.want {
			t.Errorf("%s with %q: got %d, want %d", tt.path, tt.token, res.StatusCode, tt.want)
		}
	}
}

func TestOriginsAreThoseOfTheirNamespace(t *testing.T) {
	t.Parallel()
	const file = `
namespaces:
  kart: {cors_origins: ["https://kart.example", "http://localhost:5173"]}
  chess: {cors_origins: "*"}
  go: {cors_origins: ["*"]}
  default: {}
`
	c, err := loadConfig(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"kart": {"https://kart.example", "http://localhost:5173"}, "chess": {"*"}, "go": {"*"}, "default": nil}
	if got := c.Ingest().CORSOrigins; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", path)
	if code != exitOK || !strings.Contains(out, `['https://kart.example', 'http://localhost:5173']`) || !strings.Contains(out, `cors_origins: ['*']`) {
		t.Errorf("got %d %s\n%s", code, stderr, out)
	}
	again, err := loadConfig(t, nil, nil, out)
	if err != nil || fmt.Sprint(again.Ingest().CORSOrigins) != fmt.Sprint(want) {
		t.Errorf("what is printed reads as %v, %v", again.Ingest().CORSOrigins, err)
	}
}

const poolsFile = `
redis: redis://h:1
pools:
  fast: "redis://u:{env:PASSWORD}@cache:6379/2"
  scratch: {url: "redis://scratch:6379", volatile: true}
  default: {volatile: true}
namespaces:
  kart: {pool: fast}
  golf: {}
  mail: {kind: queue, pool: scratch}
`

func TestANamespaceIsInThePoolThatItNames(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(t, nil, map[string]string{"PASSWORD": "pa@ss"}, poolsFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintln(c.PoolNames(), c.PoolOf("kart"), c.PoolOf("golf"), c.PoolOf("mail"), len(c.PoliciesIn("fast")), c.QueuesIn("scratch"), c.Pools["default"].Volatile); got != "[default fast scratch] fast default scratch 1 [mail] true\n" {
		t.Error(got)
	}
	if url, err := c.PoolURL("fast"); url != "redis://u:pa%40ss@cache:6379/2" || err != nil {
		t.Errorf("%q, %v", url, err)
	}
	env := map[string]string{"PASSWORD": "hunter2"}
	out, stderr, code := runCommand(t, env, "", "config", "print", "--config", c.File)
	for _, part := range []string{"fast: {url: 'redis://…@cache:6379/2'} # ", "scratch: {url: 'redis://scratch:6379', volatile: true} # ", "default: {volatile: true} # ", "pool: fast # ", "pool: scratch # "} {
		if code != exitOK || !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s%s", part, stderr, out)
		}
	}
	if strings.Contains(out, "hunter2") {
		t.Error(out)
	}
	if out, stderr, code := runCommand(t, env, "", "config", "check", "--config", c.File); code != exitOK {
		t.Error(out, stderr)
	}
}

func TestPoolsThatCannotWorkAreFoundBeforeTheStart(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range partition.MaxStores {
		fmt.Fprintf(&many, "  p%d: redis://h%d\n", i, i)
	}
	for name, row := range map[string]struct{ file, want string }{
		"none of that name":      {"namespaces:\n  kart: {pool: fst}\npools: {fast: \"redis://h\"}\n", "2: namespaces.kart.pool: fst is not usable: want default, or a name that pools has at the top of the file"},
		"none for a queue":       {"namespaces:\n  mail: {kind: queue, pool: fst}\n", "2: namespaces.mail.pool: fst is not usable"},
		"the default's URL":      {"pools:\n  default: redis://h\n", "2: pools.default: a URL is not usable: want volatile alone, because this pool is redis"},
		"no URL":                 {"pools:\n  fast: {volatile: true}\n", "2: pools.fast: no url is not usable: want a URL such as redis://host:6379"},
		"no value":               {"pools:\n  fast:\n", "2: pools.fast: not text"},
		"embedded":               {"pools:\n  fast: \"embedded:\"\n", "2: pools.fast: embedded: is not usable: want a Redis, because only redis can be embedded"},
		"another key":            {"pools:\n  fast: {url: \"redis://h\", volatil: true}\n", "2: pools.fast.volatil: unknown key: did you mean volatile?"},
		"a wrong kind":           {"pools:\n  fast: {url: \"redis://h\", volatile: often}\n", "2: pools.fast.volatile: "},
		"not a URL":              {"pools:\n  fast: ftp://hunter2@h\n", "2: pools.fast: the URL is not usable: want "},
		"an option":              {"pools:\n  fast: redis://h?read_timeout=1s\n", "2: pools.fast: option \"read_timeout\" is not usable"},
		"a placeholder, a host":  {"pools:\n  fast: \"redis://{env:HOST}\"\n", "2: pools.fast: a placeholder is not in the user or the password"},
		"no variable":            {"pools:\n  fast: \"redis://:{env:NONE}@h\"\n", "2: pools.fast: {env:NONE}: the environment has no variable NONE"},
		"a placeholder, no end":  {"pools:\n  fast: \"redis://:{env:NONE@h\"\n", "2: pools.fast: a placeholder has no end"},
		"a name":                 {"pools:\n  \"a b\": redis://h\n", "2: pools.a b: not a name"},
		"no map":                 {"pools: redis://h\n", "1: pools: not a map"},
		"too many":               {"pools:\n" + many.String(), fmt.Sprintf("pools: %d is not usable: want at most %d, with that of redis", partition.MaxStores+1, partition.MaxStores)},
		"in a namespace":         {"namespaces:\n  kart: {pools: {}}\n", "2: namespaces.kart.pools: unknown key: it is for all namespaces together"},
		"outside of a namespace": {"pool: fast\n", "1: pool: unknown key: each namespace has its own"},
	} {
		_, stderr, code := runCommand(t, nil, "", "config", "check", "--config", writeFile(t, "spillway.yaml", row.file))
		if code != exitUsage || !strings.Contains(stderr, row.want) || strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: exit %d, and %q is missing in %s", name, code, row.want, stderr)
		}
	}
}

func TestOnlineCheckConnectsToEveryPool(t *testing.T) {
	t.Parallel()
	durable, volatile := redistest.Start(t, "--appendonly", "yes"), redistest.Start(t, "--appendonly", "no")
	file := fmt.Sprintf("redis: %s\nsink: \"null:\"\npools:\n  fast: %s\n  away: redis://127.0.0.1:1\nnamespaces:\n  kart: {}\n  golf: {pool: fast}\n", durable.URL(), volatile.URL())
	check := func(more string) (string, string, int) {
		return runCommand(t, nil, "", "config", "check", "--online", "--config", writeFile(t, "spillway.yaml", file+more))
	}
	if out, stderr, code := check("  mail: {kind: queue}\n"); code != exitOK || !strings.Contains(out, "its append-only file is off") {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	if _, stderr, code := check("  chess: {pool: away}\n"); code == exitOK || !strings.Contains(stderr, "5: pools.away: redis://127.0.0.1:1: redis at 127.0.0.1:1 refuses connections") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, stderr, code := check("  mail: {kind: queue, pool: fast}\n"); code == exitOK || !strings.Contains(stderr, "or write volatile: true for the pool") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// What serve rejects for want of a right, the check rejects, in words that name it: of each kind that the file has.
func TestOnlineCheckAsksForTheRightsOfEachKind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	url := "redis://worker:{env:PASSWORD}@" + server.Addr
	for _, row := range []struct{ lacks, namespaces, want string }{
		{"-lpos", "mail: {kind: queue}", "LPOS"},
		{"-lpos", "mail: {kind: queue}\n  kart: {}", "LPOS"},
		{"-lpos", "kart: {}", ""},
		{"-lrem", "kart: {}", "LREM"},
		{"-lrem", "mail: {kind: queue}", ""},
	} {
		if err := server.Client().Do(t.Context(), "acl", "setuser", "worker", "reset", "on", ">hunter2", "~*", "&*", "+@all", row.lacks).Err(); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"redis: %q\n", "pools: {far: %q}\n"} {
			namespaces := row.namespaces
			if strings.HasPrefix(file, "pools") {
				namespaces = strings.NewReplacer("kind: queue}", "kind: queue, pool: far}", "kart: {}", "kart: {pool: far}").Replace(namespaces)
			}
			text := fmt.Sprintf(file, url) + "sink: \"null:\"\nnamespaces:\n  " + namespaces + "\n"
			out, stderr, code := runCommand(t, map[string]string{"PASSWORD": "hunter2"}, "", "config", "check", "--online", "--config", writeFile(t, "spillway.yaml", text))
			if code == exitOK != (row.want == "") || !strings.Contains(stderr, row.want) || strings.Contains(out+stderr, "hunter2") {
				t.Errorf("%s\nwithout %s: exit %d: %s%s", text, row.lacks, code, out, stderr)
			}
		}
	}
}

// Every URL takes placeholders, and nothing shows what they stand for.
func TestEveryURLTakesPlaceholdersAndIsMasked(t *testing.T) {
	t.Parallel()
	env := map[string]string{"SECRET": "hunter2"}
	for _, row := range []struct{ file, wrong string }{
		{"redis: 'redis://u:{env:SECRET}@127.0.0.1:1'\n", "redis: 'redis://u:{env:SECRET}@h/x'\n"},
		{"redis: 'redis-sentinel://u:{env:SECRET}@127.0.0.1:1/main'\n", "redis: 'redis-sentinel://u:{env:SECRET}@h'\n"},
		{"pools: {a: 'redis://u:{env:SECRET}@127.0.0.1:1'}\nnamespaces: {kart: {pool: a}}\n", "pools: {a: 'redis://u:{env:SECRET}@h/x'}\n"},
		{"sink: 'redis-stream://u:{env:SECRET}@127.0.0.1:1/0'\n", "sink: 'redis-stream://u:{env:SECRET}@127.0.0.1:1/0?x=1'\n"},
		{"sink: 'http://127.0.0.1:1/{env:SECRET}?gzip=1'\n", "sink: 'http://127.0.0.1:1/{env:SECRET}?gzp=1'\n"},
		{"fallback: 'redis-stream://u:{env:SECRET}@127.0.0.1:1/0'\n", "fallback: 'redis-stream://u:{env:SECRET}@127.0.0.1:1/0?x=1'\n"},
	} {
		if !strings.Contains(row.file, "sink:") {
			row.file += "sink: \"null:\"\n"
		}
		for _, run := range []struct {
			args, file string
			code       int
		}{{"print", row.file, exitOK}, {"check", row.file, exitOK}, {"check --online", row.file, exitFailure}, {"check", row.wrong, exitUsage}} {
			args := append([]string{"config"}, strings.Fields(run.args)...)
			out, stderr, code := runCommand(t, env, "", append(args, "--config", writeFile(t, "spillway.yaml", run.file))...)
			if code != run.code || strings.Contains(out+stderr, "hunter2") || run.args == "print" && !strings.Contains(out, "…") {
				t.Errorf("%s of %s: exit %d: %s%s", run.args, run.file, code, out, stderr)
			}
		}
	}
}

func TestAReloadSeesANewSecretOfEveryRedis(t *testing.T) {
	t.Parallel()
	secret := writeFile(t, "secret", "first")
	text := "redis: 'redis://u:{file:" + secret + "}@h'\npools: {a: 'redis://u:{file:" + secret + "}@h'}\n"
	load := func() *config.Config {
		c, err := loadConfig(t, nil, nil, text)
		if err != nil {
			t.Fatal(err)
		}
		c.SumSecrets()
		return c
	}
	before := load()
	if err := os.WriteFile(secret, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, change := range config.Changes(before, load())[1:] { // without that of the file
		got = append(got, change.Text)
	}
	if want := []string{"pools.a: a secret in it", "redis: a secret in it"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSDKsAreSettingsOfANamespace(t *testing.T) {
	t.Parallel()
	const file = `
namespaces:
  default: {}
  kart:
    write_keys: [kart-web, "7", {key: "8", rate: 100/s}]
    partition_paths: [properties.game]
`
	c, err := loadConfig(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	in := c.Ingest()
	want := map[string]ingest.SDK{
		"default": {}, // not inherited
		"kart":    {WriteKeys: []ingest.WriteKey{{Key: "kart-web"}, {Key: "7"}, {Key: "8", Rate: ingest.Quota{Count: 100, Per: time.Second}}}, PartitionPaths: []string{"properties.game"}},
	}
	if !reflect.DeepEqual(in.SDKs, want) || !in.NamespaceKeys {
		t.Errorf("got %+v %t", in.SDKs, in.NamespaceKeys)
	}
	if c, err := loadConfig(t, []string{"--listen=:8080", "--insecure-no-auth"}, nil, file); err != nil || c.Ingest().NamespaceKeys {
		t.Errorf("a namespace's name is a key on other addresses than loopback: %v", err)
	}
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", c.File)
	if code != exitOK {
		t.Fatal(stderr)
	}
	again, stderr, code := runCommand(t, nil, "", "config", "print", "--config", writeFile(t, "again.yaml", out))
	for _, part := range []string{"- kart-web\n", "- \"7\"\n", "- {key: \"8\", rate: 100/s}\n", "- properties.game\n"} {
		if code != exitOK || !strings.Contains(again, part) {
			t.Errorf("%q is missing in\n%s%s", part, stderr, again)
		}
	}
}

func TestErrorsOfSDKSettingsNameLineAndKey(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"  a:\n    write_keys: [k]\n  b:\n    write_keys: [k]\n": "5: namespaces.b.write_keys: sha256:8254c329 is not usable: want another key, because namespace a lists this one",
		"  a: {write_keys: [k, k]}\n":                            "2: namespaces.a.write_keys: sha256:8254c329 is not usable: want another key, because namespace a lists this one",
		"  a: {write_keys: []}\n":                                "2: namespaces.a.write_keys: not a list, or empty: ",
		"  a: {write_keys: k}\n":                                 "2: namespaces.a.write_keys: not a list, or empty: ",
		"  a: {write_keys: [7]}\n":                               "2: namespaces.a.write_keys[0]: not text: write it in quotes",
		"  a: {write_keys: [\"a b\"]}\n":                         "2: namespaces.a.write_keys: sha256:c8687a08 is not usable: want 1 to 256 printable characters without spaces",
		"  a: {write_keys: [{rate: 1/s}]}\n":                     "2: namespaces.a.write_keys: sha256:e3b0c442 is not usable: want 1 to 256 printable characters without spaces",
		"  a: {write_keys: [{key: k, rate: 5}]}\n":               "2: namespaces.a.write_keys[0].rate: \"5\" is not a quota",
		"  a: {write_keys: [j, {key: [k]}]}\n":                   "2: namespaces.a.write_keys[1].key: a map or a list",
		"  a: {write_keys: [{key: k, rat: 5/s}]}\n":              "2: namespaces.a.write_keys[0].rat: ",
		"  a: {partition_paths: [a..b]}\n":                       "2: namespaces.a.partition_paths: [\"a..b\"] is not usable: want at most 8 paths",
	} {
		c, err := loadConfig(t, nil, nil, "namespaces:\n"+file)
		if err == nil {
			t.Errorf("%q is accepted", file)
			continue
		}
		got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), "")
		if !strings.HasPrefix(got, "spillway.yaml:"+want) {
			t.Errorf("%q: got  %s\nwant spillway.yaml:%s", file, got, want)
		}
	}
}

func TestMetricsOfLmstfyNeedItsAPI(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--lmstfy-metrics":          "lmstfy_metrics",
		"--lmstfy --lmstfy-metrics": "",
	} {
		_, stderr, code := runCommand(t, nil, "", append([]string{"config", "check"}, strings.Fields(args)...)...)
		if (code == 0) != (want == "") || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d %s", args, code, stderr)
		}
	}
}
