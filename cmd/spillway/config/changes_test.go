package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
	compare := func(at, key string, old, now int) []Change {
		if old == now {
			return nil
		}
		return []Change{{Text: at + ".size"}, {Text: at + "." + key}}
	}
	for _, c := range []struct {
		before, after map[string]int
		want          string
	}{
		{before, after, "[at.a: added at.b: removed at.d.size at.d.d at.e.size at.e.e]"},
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
