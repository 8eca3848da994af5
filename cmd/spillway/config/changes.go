package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/drain/sink"
)

// reloadRule says whether a reload applies a setting.
type reloadRule string

const (
	reloadApplies reloadRule = "yes"
	reloadRestart reloadRule = "no"
	reloadNewOnly reloadRule = "new namespaces only"
)

// restartSettings are the settings that a reload refuses to change. All others apply.
var restartSettings = []string{
	"admin_listen", "admin_tls_cert", "admin_tls_client_ca", "admin_tls_key", "config", "listen", "log_format", "prefix", "redis", "role",
}

// reloadRuleOf is that of a setting, by its key without a namespace.
func ReloadRuleOf(key string) reloadRule {
	switch {
	case key == "shards", key == "pool":
		return reloadNewOnly
	case slices.Contains(restartSettings, key):
		return reloadRestart
	}
	return reloadApplies
}

// change is a setting whose value is another one.
type Change struct {
	Key  string // as in namespaces.kart.sink
	Text string // for the log: the key, and both values unless they are secret
	rule reloadRule
}

// changesOf are the differences of two configurations. The settings of the default
// namespace show in each namespace that inherits them.
func Changes(before, after *Config) (changes []Change) {
	inherited := KeysOf(SettingsOf(&Namespace{}))
	changes = settingChanges("", before, after, inherited)
	changes = append(changes, fieldChanges("",
		field{"admin_tokens", before.AdminTokens, after.AdminTokens},
		field{"mask_fields", before.MaskFields, after.MaskFields},
		field{"sinks", before.PushSinks, after.PushSinks},
	)...)
	for _, name := range slices.Sorted(maps.Keys(after.PushSinks)) {
		if at := "sinks." + name; before.PushSinks[name] == after.PushSinks[name] && before.secretSums[at] != after.secretSums[at] {
			changes = append(changes, Change{at, at + ": a secret in it", reloadApplies})
		}
	}
	namespaces := mapChanges("namespaces.", before.Namespaces, after.Namespaces, func(at, name string, old, now Namespace) []Change {
		return append(namespaceChanges(at+".", old, now), secretChanges(at+".", before, after, name)...)
	})
	return slices.Concat(changes, namespaces, poolChanges(before, after), queueChanges(before, after))
}

// mapChanges compares two maps in the order of their keys. An entry of one of them alone
// was added or removed; both compares one that they share. at is the prefix and the key.
func mapChanges[V any](prefix string, before, after map[string]V, both func(at, key string, old, now V) []Change) (changes []Change) {
	all := map[string]V{}
	maps.Copy(all, before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		at := prefix + key
		old, had := before[key]
		now, has := after[key]
		switch {
		case !had:
			changes = append(changes, Change{at, at + ": added", reloadApplies})
		case !has:
			changes = append(changes, Change{at, at + ": removed", reloadApplies})
		default:
			changes = append(changes, both(at, key, old, now)...)
		}
	}
	return changes
}

// field is a value that has no flag, before and after a reload.
type field struct {
	key         string
	before, now any
}

// fieldChanges names the fields whose value is another one. A reload applies them.
func fieldChanges(at string, fields ...field) (changes []Change) {
	for _, f := range fields {
		if !reflect.DeepEqual(f.before, f.now) {
			changes = append(changes, Change{at + f.key, at + f.key, reloadApplies})
		}
	}
	return changes
}

// settingChanges compares the settings of two structs of the same type.
func settingChanges(at string, before, after any, except []string) (changes []Change) {
	now := SettingsOf(after)
	for i, s := range SettingsOf(before) {
		old, new := s.text(), now[i].text()
		if old == new || slices.Contains(except, s.Key()) {
			continue
		}
		old, new = s.shown(), now[i].shown()
		text := at + s.Key()
		if old != new {
			text += fmt.Sprintf(": %s → %s", orNone(old), orNone(new))
		}
		changes = append(changes, Change{at + s.Key(), text, ReloadRuleOf(s.Key())})
	}
	return changes
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// namespaceChanges compares one namespace, with what only the file has.
func namespaceChanges(at string, before, after Namespace) (changes []Change) {
	changes = settingChanges(at, &before, &after, nil)
	if before.Pool != after.Pool {
		changes = append(changes, Change{at + "pool", fmt.Sprintf("%spool: %s → %s", at, cmp.Or(before.Pool, DefaultPool), cmp.Or(after.Pool, DefaultPool)), ReloadRuleOf("pool")})
	}
	return append(changes, fieldChanges(at,
		field{"sink_command", before.SinkCommand, after.SinkCommand},
		field{"tokens", before.Tokens, after.Tokens},
		field{"cors_origins", before.CORSOrigins, after.CORSOrigins},
		field{"write_keys", before.SDK.WriteKeys, after.SDK.WriteKeys},
		field{"partition_paths", before.SDK.PartitionPaths, after.SDK.PartitionPaths},
		field{"partition_fallback", before.SDK.PartitionFallback, after.SDK.PartitionFallback},
	)...)
}

// secretChanges are the sinks whose URL is the same, and the file of a secret in it is not.
func secretChanges(at string, before, after *Config, name string) (changes []Change) {
	for key, urls := range map[string]string{"fallback": after.Namespaces[name].Fallback, "sink": after.Namespaces[name].Sink} {
		same := before.Namespaces[name].Sink
		if key == "fallback" {
			same = before.Namespaces[name].Fallback
		}
		if urls == same && before.secretSums[at+key] != after.secretSums[at+key] {
			changes = append(changes, Change{at + key, at + key + ": a secret in it", reloadApplies})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	return changes
}

// sumSecrets notes digests of the sinks' URLs with their secrets, to tell when one changes.
func (c *Config) SumSecrets() {
	c.secretSums = map[string][32]byte{}
	for name, p := range c.Pools {
		c.secretSums["pools."+name] = c.Secrets.Sum(p.URL)
	}
	for name, urls := range c.PushSinks {
		c.secretSums["sinks."+name] = c.Secrets.Sum(urls)
	}
	for _, name := range c.Names() {
		ns := c.Namespaces[name]
		c.secretSums["namespaces."+name+".sink"] = c.Secrets.Sum(ns.Sink)
		c.secretSums["namespaces."+name+".fallback"] = c.Secrets.Sum(ns.Fallback)
	}
}

// restartOnly is an error for each change that a reload cannot apply.
func RestartOnly(before, after *Config, changes []Change) (errs []error) {
	for _, c := range changes {
		switch c.rule {
		case reloadRestart:
			errs = append(errs, after.FieldError(c.Key, fmt.Errorf("%s: restart to change it", c.Text)))
		case reloadNewOnly:
			errs = append(errs, after.FieldError(c.Key, fmt.Errorf("%s: fixed when the namespace is first used, because it decides where entries lie: set it back, or add a namespace of another name", c.Text)))
		}
	}
	return errs
}

// shown is the value for logs: without what may be secret.
func (s Setting) shown() string {
	switch s.Flag {
	case "redis":
		return RedactStore(s.text())
	case "sink":
		return sink.Redact(s.text())
	case "fallback":
		return redactSinks(s.text())
	case "admin-token":
		return ""
	}
	return s.text()
}
