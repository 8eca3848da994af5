package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/spillway-io/spillway/drain/sink"
)

// reloadRule says whether a reload applies a setting.
type reloadRule string

const (
	reloadApplies reloadRule = "yes"
	reloadRestart reloadRule = "no"
	reloadNewOnly reloadRule = "new namespaces only"
)

// restartSettings are the settings that a reload rejects to change. All others apply.
var restartSettings = []string{
	"admin_listen", "admin_tls_cert", "admin_tls_client_ca", "admin_tls_key", "config", "listen", "log_format", "prefix", "redis", "role",
}

// ReloadRuleOf is that of a setting, by its key without a namespace.
func ReloadRuleOf(key string) reloadRule {
	switch {
	case key == "pool":
		return reloadNewOnly
	case slices.Contains(restartSettings, key):
		return reloadRestart
	}
	return reloadApplies
}

// Change is a setting whose value is another one.
type Change struct {
	Key  string // as in namespaces.kart.sink
	Text string // for the log: the key, and both values unless they are secret
	rule reloadRule
}

// Changes are the differences of two configurations. The settings of the default
// namespace show in each namespace that inherits them.
func Changes(before, after *Config) (changes []Change) {
	inherited := KeysOf(SettingsOf(&Namespace{}))
	changes = settingChanges("", before, after, inherited)
	changes = append(changes, ownChanges("", before, after)...)
	for _, key := range slices.Sorted(maps.Keys(after.filled)) {
		old, had := before.filled[key]
		if now := after.filled[key]; had && old.raw == now.raw && old.sum != now.sum {
			changes = append(changes, Change{key, key + ": a secret in it", reloadApplies})
		}
	}
	namespaces := mapChanges("namespaces.", before.Namespaces, after.Namespaces, structChanges)
	// A namespace that changes its kind is removed and added, which the store rejects while it
	// has data.
	queues := mapChanges("namespaces.", before.QueueNamespaces, after.QueueNamespaces, structChanges)
	ofPHP := mapChanges("namespaces.", before.PHPNamespaces, after.PHPNamespaces, structChanges)
	return slices.Concat(changes, namespaces, mapChanges("pools.", before.Pools, after.Pools, poolChanges), queues, ofPHP)
}

// mapChanges compares two maps in the order of their keys. An entry of one of them alone
// was added or removed; both compares one that they share. at is the prefix and the key.
func mapChanges[V any](prefix string, before, after map[string]V,
	both func(at string, old, now V) []Change) (changes []Change) {
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
			changes = append(changes, both(at, old, now)...)
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
			text += fmt.Sprintf(": %s → %s", cmp.Or(old, "none"), cmp.Or(new, "none"))
		}
		changes = append(changes, Change{at + s.Key(), text, ReloadRuleOf(s.Key())})
	}
	return changes
}

// structChanges compares a namespace of any kind.
func structChanges[V any](at string, before, after V) []Change {
	return append(settingChanges(at+".", &before, &after, nil), ownChanges(at+".", &before, &after)...)
}

// SumSecrets notes digests of the URLs with their secrets, to tell when one changes.
func (c *Config) SumSecrets() {
	c.filled = map[string]filled{}
	note := func(key, raw string) { c.filled[key] = filled{raw, c.Secrets.Sum(raw)} }
	for _, name := range c.PoolNames() {
		note(c.PoolSetting(name))
	}
	for name, urls := range c.PushSinks {
		note("sinks."+name, urls)
	}
	for name, ns := range c.Namespaces {
		note("namespaces."+name+".sink", ns.Sink)
		note("namespaces."+name+".fallback", ns.Fallback)
	}
}

// RestartOnly is an error for each change that a reload cannot apply.
func RestartOnly(before, after *Config, changes []Change) (errs []error) {
	for _, c := range changes {
		switch c.rule {
		case reloadRestart:
			errs = append(errs, after.FieldError(c.Key, fmt.Errorf("%s: restart to change it", c.Text)))
		case reloadNewOnly:
			errs = append(errs, after.FieldError(c.Key,
				fmt.Errorf("%s: fixed when the namespace is first used, because it decides where its data "+
					"lies: set it back, or add a namespace of another name", c.Text)))
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
