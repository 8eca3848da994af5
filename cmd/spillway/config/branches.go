package config

import (
	"net/url"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/branches"
)

// branchesOf returns the namespaces that a namespace's sinks feed. A URL with an
// error feeds none: package app reports it.
func (c *Config) branchesOf(name string) (names []string) {
	for _, raw := range c.Namespaces[name].Sinks() {
		if u, err := url.Parse(raw); err == nil && u.Scheme == "namespaces" {
			more, _ := branches.Names(u)
			names = append(names, more...)
		}
	}
	return names
}

// closed are the namespaces that get their entries from another one and admit no
// clients, because they have no tokens.
func (c *Config) closed() (names []string) {
	for _, name := range c.Names() {
		for _, branch := range c.branchesOf(name) {
			if len(c.Namespaces[branch].Tokens) == 0 && !slices.Contains(names, branch) {
				names = append(names, branch)
			}
		}
	}
	return names
}

// branches finds branches that do not exist, and those that feed, perhaps over others, the
// namespace that feeds them: their entries would go round until they expire.
func (f *findings) branches() {
	for _, name := range f.Names() {
		all := f.branchesOf(name)
		wrong := func(want string) {
			f.wrong("namespaces."+name+".sink", "namespaces://"+strings.Join(all, ","), want)
		}
		for _, branch := range all {
			if _, ok := f.Namespaces[branch]; !ok {
				wrong("names that namespaces has, and it has no " + branch)
			} else if way := f.wayBack(branch, name, map[string]bool{}); way != nil {
				wrong("no way back to " + name + ": " + strings.Join(append([]string{name}, way...), " feeds "))
			}
		}
	}
}

// wayBack returns the namespaces on a way of branches between two, with both; nil
// where there is none. It looks at each namespace once.
func (c *Config) wayBack(from, to string, seen map[string]bool) []string {
	if from == to {
		return []string{to}
	}
	seen[from] = true
	for _, next := range c.branchesOf(from) {
		if seen[next] {
			continue
		}
		if way := c.wayBack(next, to, seen); way != nil {
			return append([]string{from}, way...)
		}
	}
	return nil
}

// KeyOfTier is the setting that has the URL of a namespace's sink number i.
func KeyOfTier(i int) string {
	if i == 0 {
		return "sink"
	}
	return "fallback"
}

// Label is what the drain calls the sink of a namespace, for logs: with fallbacks it
// works as long as one of them does.
func (n Namespace) Label() string {
	if n.Fallback == "" {
		return sink.Redact(n.Sink)
	}
	return sink.Redact(n.Sink) + " with fallback " + redactSinks(n.Fallback)
}
