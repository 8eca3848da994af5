package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

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
