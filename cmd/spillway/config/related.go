package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/partition"
)

// findings are the settings of a Config that cannot work.
type findings struct {
	*Config
	errs []error
}

func (f *findings) add(errs ...error) { f.errs = append(f.errs, errs...) }

// wrong finds a value, and says what to write instead.
func (f *findings) wrong(key string, value any, want string) {
	f.add(f.FieldError(key, partition.Wrong(key, value, want)))
}

// unusable finds a setting whose value is not shown.
func (f *findings) unusable(key string, cause error) {
	f.add(f.FieldError(key, &SettingError{key, cause}))
}

// oneOf finds a value that is not among the allowed ones.
func (f *findings) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		f.wrong(key, value, "one of "+strings.Join(allowed, ", "))
	}
}

// under finds the errors in all, about settings whose keys begin with at.
func (f *findings) under(at string, all ...error) {
	for _, err := range Split(errors.Join(all...)) {
		var field *partition.FieldError
		if errors.As(err, &field) {
			located := *field
			located.Field = at + field.Field
			err = f.FieldError(located.Field, &located)
		}
		f.add(err)
	}
}

// relatedSettings are, by setting, the others that bound it. An error about the one shows
// the values of the others, because either can be the wrong one.
var relatedSettings = map[string][]string{
	"backoff_max":        {"backoff_base"},
	"lease":              {"sink_timeout"},
	"linger":             {"max_age"},
	"max_decompressed":   {"max_body"},
	"max_entry":          {"max_decompressed"},
	"max_inflight_bytes": {"max_body", "max_decompressed"},
}

// relatedTo says what the settings are set to that bound the one of err, and where. A
// setting that the error does not mention is not what is wrong.
func (c *Config) relatedTo(key string, err error) string {
	var field *partition.FieldError
	if !errors.As(err, &field) {
		return ""
	}
	dot := strings.LastIndexByte(key, '.') + 1
	settings := SettingsOf(c)
	if name := strings.TrimPrefix(strings.TrimSuffix(key[:dot], "."), "namespaces."); dot > 0 {
		ns := c.Namespaces[name]
		settings = SettingsOf(&ns)
	}
	var texts []string
	for _, other := range relatedSettings[key[dot:]] {
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key() == other })
		if i < 0 || !strings.Contains(field.Want, other) {
			continue
		}
		origin := c.origin(key[:dot] + other)
		if origin == "" {
			origin = "the default"
		}
		texts = append(texts, other+" is "+settings[i].text()+" ("+origin+")")
	}
	return strings.Join(texts, ", ")
}

// Warnings are about settings that work, and together do not do what they say.
func (c *Config) Warnings() (texts []string) {
	warn := func(key string, value any, than string, other any, advice string) {
		text := key + ": " + Setting{value: value}.text() + " is " + than + ", " + Setting{value: other}.text() + ": " + advice
		if origin := c.origin(key); origin != "" {
			text = origin + ": " + text
		}
		texts = append(texts, text)
	}
	if int64(c.MaxEntry) > int64(c.MaxBody) {
		warn("max_entry", &c.MaxEntry, "more than max_body", &c.MaxBody,
			"larger entries can be sent compressed only; raise max_body or lower max_entry")
	}
	for _, name := range c.Names() {
		ns, at := c.Namespaces[name], "namespaces."+name+"."
		if ns.Batch > ns.Capacity {
			warn(at+"capacity", &ns.Capacity, "less than batch", &ns.Batch,
				"no batch gets full, each waits for linger; raise capacity or lower batch")
		}
		if ns.Linger > ns.MaxAge/2 {
			warn(at+"linger", &ns.Linger, "more than half of max_age", &ns.MaxAge,
				"entries may expire before their first attempt; lower linger or raise max_age")
		}
		if ns.MaxAge < c.SinkTimeout {
			warn(at+"max_age", &ns.MaxAge, "less than sink_timeout", &c.SinkTimeout,
				"entries may expire during one slow write; raise max_age or lower sink_timeout")
		}
		if ns.BackoffMax > ns.MaxAge {
			warn(at+"backoff_max", &ns.BackoffMax, "more than max_age", &ns.MaxAge,
				"entries may expire before their next attempt; lower backoff_max or raise max_age")
		}
		if int64(ns.MaxDeadBytes) < int64(c.MaxEntry) {
			warn(at+"max_dead_bytes", &ns.MaxDeadBytes, "less than max_entry", &c.MaxEntry,
				"a large dead letter is not kept; raise max_dead_bytes or lower max_entry")
		}
	}
	return texts
}
