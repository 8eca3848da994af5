package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
)

func TestABranchWithoutTokensNeedsNoneForOtherAddressesThanLoopback(t *testing.T) {
	t.Parallel()
	args := []string{"--listen=0.0.0.0:0"}
	if _, err := loadConfig(t, args, nil, threeNamespaces); err != nil {
		t.Error(err)
	}
	_, err := loadConfig(t, args, nil, strings.ReplaceAll(threeNamespaces, "hot,cold", "cold"))
	if err == nil || !strings.Contains(err.Error(), "missing for hot") {
		t.Errorf("got %v, want an error about hot, which is no branch", err)
	}
}

func TestDataAndAdminPortMustDiffer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		listen, adminListen string
		same                bool
	}{
		{"127.0.0.1:7001", "127.0.0.1:7001", true},
		{"127.0.0.1:7001", "localhost:7001", true},
		{"LOCALHOST:7001", "localhost:7001", true},
		{"127.0.0.1:7001", "[::ffff:127.0.0.1]:7001", true},
		{"[::1]:7001", "[0:0::1]:7001", true},
		{":7001", "127.0.0.1:7001", true},
		{"127.0.0.1:7001", "0.0.0.0:7001", true},
		{"[::]:7001", "[::1]:7001", true},
		{"[::1]:7001", "0.0.0.0:7001", true}, // Go listens on IPv6 too for 0.0.0.0
		{"127.0.0.1:80", "127.0.0.1:http", true},
		{"no-such-host.invalid:7001", "no-such-host.invalid:7001", true},
		{"127.0.0.1:7001", "127.0.0.1:7002", false},
		{"127.0.0.1:7001", "127.0.0.2:7001", false},
		{"127.0.0.1:7001", "[::1]:7001", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{":0", "localhost:0", false},
	} {
		args := []string{"--listen=" + tt.listen, "--admin-listen=" + tt.adminListen, "--insecure-no-auth"}
		_, err := loadConfig(t, args, nil, "")
		if got := err != nil && strings.Contains(err.Error(), "--admin-listen: admin_listen: "+tt.adminListen+" is not usable: want a port other than"); got != tt.same || err != nil != tt.same {
			t.Errorf("%s and %s: got %v, want the same: %t", tt.listen, tt.adminListen, err, tt.same)
		}
		if _, err := loadConfig(t, append(args, "--role=drain", "--redis=redis://h"), nil, ""); err != nil {
			t.Errorf("%s and %s: the drain has no data port: %v", tt.listen, tt.adminListen, err)
		}
	}
}

const threeNamespaces = `namespaces:
  all: {sink: "namespaces://hot,cold", tokens: ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]}
  hot: {sink: "stdout:"}
  cold: {sink: "null:", tokens: ["sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"]}
`

func TestAReloadMovesNoPoolAndNoNamespace(t *testing.T) {
	t.Parallel()
	before, err := loadConfig(t, nil, nil, "pools: {fast: \"redis://h\", slow: \"redis://s\"}\nnamespaces: {kart: {pool: fast}, golf: {}}\n")
	if err != nil {
		t.Fatal(err)
	}
	after, err := loadConfig(t, nil, nil, "pools: {fast: \"redis://:hunter2@other\", next: \"redis://n\"}\nnamespaces: {kart: {pool: next}, golf: {pool: fast}}\n")
	if err != nil {
		t.Fatal(err)
	}
	changes := Changes(before, after)
	changes = slices.DeleteFunc(changes, func(c Change) bool { return c.Key == "config" })
	var texts []string
	for _, c := range changes {
		texts = append(texts, c.Text)
	}
	want := "namespaces.golf.pool: default → fast|namespaces.kart.pool: fast → next|pools.fast: redis://h → redis://…@other|pools.next: added|pools.slow: removed"
	if got := strings.Join(texts, "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	errs := RestartOnly(before, after, changes)
	if len(errs) != 3 || !strings.Contains(errs[0].Error(), "fixed when the namespace is first used") || !strings.Contains(errs[2].Error(), filepath.Base(after.File)+":1: pools.fast: ") {
		t.Errorf("%v", errs)
	}
}

func TestAQueueWithoutTokensIsNotServedBeyondLoopback(t *testing.T) {
	t.Parallel()
	_, err := loadConfig(t, []string{"--listen=0.0.0.0:8080"}, nil, "namespaces:\n  mail: {kind: queue}\n")
	if err == nil || !strings.Contains(err.Error(), "missing for mail") {
		t.Errorf("got %v", err)
	}
}

func TestTheFirstNamespaceOfAKindComesByAReload(t *testing.T) {
	t.Parallel()
	var none, both Config
	both.Namespaces, both.QueueNamespaces = map[string]Namespace{"events": {}}, map[string]QueueNamespace{"mail": {}}
	for _, c := range []struct {
		before, after *Config
		want          string
	}{{&none, &both, "[namespaces.events namespaces.mail]"}, {&both, &none, "[namespaces.events namespaces.mail]"}, {&none, &none, "[]"}} {
		keys := []string{}
		for _, change := range Changes(c.before, c.after) {
			keys = append(keys, change.Key)
		}
		if fmt.Sprint(keys) != c.want {
			t.Errorf("got %v, want %v", keys, c.want)
		}
	}
}

// Every setting that does not apply exists, so that none is misspelt in the list.
func TestRestartSettingsExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, key := range KeysOf(SettingsOf(&Config{})) {
		known[key] = true
	}
	for _, key := range restartSettings {
		if !known[key] {
			t.Errorf("%s is no setting of %v", key, slices.Sorted(maps.Keys(known)))
		}
	}
}

func TestChangesOfAMapAreInTheOrderOfItsKeys(t *testing.T) {
	t.Parallel()
	before := map[string]int{"b": 1, "c": 2, "d": 3, "e": 5}
	after := map[string]int{"a": 1, "c": 2, "d": 4, "e": 6}
	compare := func(at string, old, now int) []Change {
		if old == now {
			return nil
		}
		return []Change{{Text: at + ".size"}, {Text: at + ".more"}}
	}
	for _, c := range []struct {
		before, after map[string]int
		want          string
	}{
		{before, after, "[at.a: added at.b: removed at.d.size at.d.more at.e.size at.e.more]"},
		{nil, before, "[at.b: added at.c: added at.d: added at.e: added]"},
		{before, nil, "[at.b: removed at.c: removed at.d: removed at.e: removed]"},
		{nil, nil, "[]"},
	} {
		var texts []string
		for _, change := range mapChanges("at.", c.before, c.after, compare) {
			texts = append(texts, change.Text)
		}
		if got := fmt.Sprint(texts); got != c.want {
			t.Errorf("%v to %v: got %s, want %s", c.before, c.after, got, c.want)
		}
	}
}

func TestDefaultsAreThoseOfThePackages(t *testing.T) {
	t.Parallel()
	c, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Default.Policy(), partition.DefaultPolicy(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := c.Drain(), drain.DefaultConfig(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	in, want := c.Ingest(), ingest.DefaultConfig()
	in.Tokens, in.CORSOrigins, in.SDKs, in.NamespaceKeys = nil, nil, nil, false
	if !reflect.DeepEqual(in, want) {
		t.Errorf("got %+v, want %+v", in, want)
	}
}

// CopyFields would leave out a field of Policy that no setting has the name of.
func TestEveryFieldOfPolicyIsASettingOfANamespace(t *testing.T) {
	t.Parallel()
	policy, namespace := reflect.TypeFor[partition.Policy](), reflect.TypeFor[Namespace]()
	for i := range policy.NumField() {
		field := policy.Field(i)
		if setting, ok := namespace.FieldByName(field.Name); !ok || !setting.Type.ConvertibleTo(field.Type) {
			t.Errorf("Policy.%s has no setting of its name and type", field.Name)
		}
	}
}

func TestShardsAreANumberOrAuto(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(t, nil, nil, "shards: auto\nnamespaces:\n  kart: {}\n  chess: {shards: 12}\n  mail: {kind: queue, shards: auto, spread: {bulk: 4}}\n")
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := c.Print(&printed); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nshards: auto # ", "\n    shards: auto # ", "\n    shards: 12 # "} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("%q is not in\n%s", want, &printed)
		}
	}
	for name, want := range map[string]string{"kart": `"auto"`, "chess": "12"} {
		i := slices.IndexFunc(c.Shown()[name], func(s admin.Setting) bool { return s.Key == "shards" })
		if got, err := json.Marshal(c.Shown()[name][i].Value); err != nil || string(got) != want {
			t.Errorf("%s: the admin port shows %s, %v", name, got, err)
		}
	}
	if got := c.Namespaces["kart"].Policy().Shards; got != partition.AutoShards {
		t.Errorf("the policy has %d shards", got)
	}
	if got := c.QueueNamespaces["mail"].Policy().Shards; got != partition.AutoShards {
		t.Errorf("the policy of queues has %d shards", got)
	}
	for _, wrong := range []string{"-1", "1.5", "Auto", "\"\""} {
		if _, err := loadConfig(t, nil, nil, "shards: "+wrong+"\n"); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
