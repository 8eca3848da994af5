package config

import (
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/drain/sink"
)

// Print writes the effective configuration in the form of the file, without passwords.
func (c *Config) Print(w io.Writer) error {
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return encoder.Encode(c.node())
}

// node is the Config in the form of the file, without passwords.
func (c *Config) node() *yaml.Node {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range SettingsOf(c) {
		if s.Flag != "config" {
			c.appendSetting(root, s, s.Key())
		}
	}
	c.appendOwn(root, "", c)
	spaces := &yaml.Node{Kind: yaml.MappingNode}
	root.Content = append(root.Content, plain("namespaces"), spaces)
	add := func(name, kind string, of any) {
		node := &yaml.Node{Kind: yaml.MappingNode}
		if kind != "" {
			node.Content = []*yaml.Node{plain("kind"), plain(kind)}
		}
		spaces.Content = append(spaces.Content, plain(name), c.namespaceNode(name, of, node))
	}
	for _, name := range c.Names() {
		ns := c.Namespaces[name]
		add(name, "", &ns)
	}
	for _, name := range c.QueueNames() {
		q := c.QueueNamespaces[name]
		add(name, "queue", &q)
	}
	for _, name := range c.PHPNames() {
		n := c.PHPNamespaces[name]
		add(name, "php", &n)
	}
	return root
}

// namespaceNode adds a namespace of any kind to node.
func (c *Config) namespaceNode(name string, of any, node *yaml.Node) *yaml.Node {
	at := "namespaces." + name + "."
	for _, s := range SettingsOf(of) {
		if _, buffer := of.(*Namespace); buffer || s.text() != "" {
			c.appendSetting(node, s, at+s.Key())
		}
	}
	c.appendOwn(node, at, of)
	return node
}

// appendSetting adds key and value to a map, with the origin as a comment.
func (c *Config) appendSetting(to *yaml.Node, s Setting, path string) {
	text := s.shown()
	if s.Flag == "admin-token" {
		text = s.text() // a hash, which is no secret
	}
	value := plain(text)
	if _, isText := s.value.(*string); isText {
		value.SetString(text) // quotes what would read as another type
	}
	if value.LineComment = c.origin(path); value.LineComment == "" {
		value.LineComment = "default"
	}
	to.Content = append(to.Content, plain(s.Key()), value)
}

// textNode quotes what would read as another type.
func textNode(text string) *yaml.Node {
	node := plain("")
	node.SetString(text)
	return node
}

func plain(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// Shown are the settings of each namespace as the admin port shows them.
func (c *Config) Shown() map[string][]admin.Setting {
	shown := map[string][]admin.Setting{}
	for name, ns := range c.Namespaces {
		ns.Sink, ns.Fallback = sink.Redact(ns.Sink), redactSinks(ns.Fallback)
		for _, s := range SettingsOf(&ns) {
			shown[name] = append(shown[name], admin.Setting{Key: s.Key(),
				Value: reflect.ValueOf(s.value).Elem().Interface()})
		}
	}
	return shown
}

// RedactStore returns a store's URL for logs: without user, password and options.
// net/url rejects the several hosts of Sentinel and Cluster URLs, so RedactStore
// splits the text, and shows less where the split is ambiguous.
func RedactStore(raw string) string {
	scheme, rest, _ := strings.Cut(raw, ":")
	if strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz-") != "" || scheme == raw {
		return "(malformed URL)"
	}
	rest, found := strings.CutPrefix(rest, "//")
	if !found {
		return scheme + ":"
	}
	end := strings.IndexAny(rest+"?", "?#")
	hosts := rest[:end]
	options := rest[end:]
	hasOptions := end < len(rest)
	if strings.Contains(options, "@") {
		return scheme + "://…"
	}
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		hosts = "…@" + hosts[at+1:]
	}
	if hasOptions {
		hosts += "?…"
	}
	return scheme + "://" + hosts
}

// redactSinks returns sink URLs, separated by spaces, fit for logs.
func redactSinks(urls string) string {
	list := strings.Fields(urls)
	for i := range list {
		list[i] = sink.Redact(list[i])
	}
	return strings.Join(list, " ")
}
