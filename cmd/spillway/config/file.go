package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/ingest"
)

// fileReader applies the file to a Config. It walks the YAML nodes itself, because
// decoding into a struct accepts "5" as 5 and null as unset, and its errors name no
// field.
type fileReader struct {
	config  *Config
	fixed   map[string]string // origins of the values from flags and environment
	topKeys []string          // keys that stand outside of namespaces
	errs    []error
}

// parseFile reads the file. The node has no content if the file has none.
func parseFile(path string) (doc yaml.Node, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return doc, fmt.Errorf("config: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return doc, nil // no content, or only comments
	case err != nil:
		return doc, fmt.Errorf("%s: not YAML: %s; indent with spaces, not tabs, and quote a value that ends with a colon, such as \"stdout:\"",
			path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return doc, fmt.Errorf("%s: more than one YAML document: remove ---", path)
	}
	return doc, nil
}

// apply sets the namespaces, and the settings that come neither from a flag nor from the
// environment.
func (c *Config) apply(doc yaml.Node, settings []Setting) []error {
	if len(doc.Content) == 0 {
		return nil
	}
	settings = slices.DeleteFunc(settings, func(s Setting) bool { return s.Flag == "config" })
	own := ownKeysOf(c)
	r := fileReader{config: c, fixed: maps.Clone(c.origins),
		topKeys: slices.Concat(KeysOf(settings), KeysOf(own), []string{"namespaces"})}
	var namespaces *yaml.Node
	r.mapping(target(doc.Content[0]), "", r.topKeys, func(key string, value *yaml.Node) {
		if key == "namespaces" {
			namespaces = value // they inherit, so all other settings are read first
		} else if !r.ownKey(own, key, "", value) {
			r.set(settings, key, "", value)
		}
	})
	if namespaces != nil {
		r.namespaces(namespaces)
	}
	return r.errs
}

// ownKey reads a key of the file alone; it is false for any other.
func (r *fileReader) ownKey(own []Setting, key, path string, value *yaml.Node) bool {
	s := settingOf(own, key)
	if s.value != nil {
		r.own(s, path, value)
	}
	return s.value != nil
}

// namespaces reads the map of namespaces.
func (r *fileReader) namespaces(node *yaml.Node) {
	c := r.config
	c.Namespaces = map[string]Namespace{}
	r.named(node, "namespaces", func(name string, value *yaml.Node) {
		path := "namespaces." + name + "."
		switch r.kindOfNamespace(value, path) {
		case "php":
			if c.PHPNamespaces == nil {
				c.PHPNamespaces = map[string]PHPNamespace{}
			}
			c.PHPNamespaces[name] = r.phpNamespace(value, path)
			return
		case "queue":
			if c.QueueNamespaces == nil {
				c.QueueNamespaces = map[string]QueueNamespace{}
			}
			q := defaultQueueNamespace()
			r.ownNamespace(value, path, &q)
			c.QueueNamespaces[name] = q
			return
		}
		ns := c.Default
		r.namespace(value, path, &ns, r.set)
		c.Namespaces[name] = ns
	})
	c.origins["namespaces"] = r.position(node)
}

// ownNamespace reads a namespace whose settings are its own: what it does not say comes from none at the top.
func (r *fileReader) ownNamespace(node *yaml.Node, path string, to any) {
	r.namespace(node, path, to, r.setOwn)
	for _, key := range KeysOf(SettingsOf(to)) {
		if _, given := r.config.origins[path+key]; !given {
			r.config.origins[path+key] = ""
		}
	}
}

// valueOf is the value of a key of a map; nil: it has none.
func valueOf(node *yaml.Node, key string) *yaml.Node {
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// kindOfNamespace is the value of the key kind, buffer where there is none.
func (r *fileReader) kindOfNamespace(node *yaml.Node, path string) string {
	kind := valueOf(node, "kind")
	if kind == nil {
		return "buffer"
	}
	switch kind.Value {
	case "buffer", "queue", "php":
		return kind.Value
	}
	r.fail(kind, path+"kind", fmt.Sprintf("%q is neither buffer nor queue nor php", kind.Value))
	return "buffer"
}

// namespace reads a namespace of any kind; set is for the keys that are settings.
func (r *fileReader) namespace(node *yaml.Node, path string, to any, set func([]Setting, string, string, *yaml.Node)) {
	settings, own := SettingsOf(to), ownKeysOf(to)
	r.mapping(node, path, keysOfKind(to), func(key string, value *yaml.Node) {
		if key != "kind" && !r.ownKey(own, key, path, value) {
			set(settings, key, path, value)
		}
	})
}

// namespaceKeys are the keys of a namespace, queueKeys and phpKeys those of the other kinds.
func namespaceKeys() []string { return keysOfKind(&Namespace{}) }
func queueKeys() []string     { return keysOfKind(&QueueNamespace{}) }
func phpKeys() []string       { return keysOfKind(&PHPNamespace{}) }

func keysOfKind(of any) []string {
	return slices.Concat(KeysOf(SettingsOf(of)), []string{"kind"}, KeysOf(ownKeysOf(of)))
}

// unknownKey says where a key belongs, or which one it probably means.
func (r *fileReader) unknownKey(key, path string, known []string) string {
	inNamespace, inQueue, inPHP := slices.Contains(known, "kind"), slices.Contains(known, "push"), slices.Contains(known, "flavor")
	ofBuffers, ofQueues := slices.Contains(namespaceKeys(), key), slices.Contains(queueKeys(), key)
	switch near := sink.Nearest(key, known); {
	case inPHP && (ofBuffers || ofQueues):
		return "unknown key: it is for another kind, and this namespace is of kind php: remove it"
	case inNamespace && !ofBuffers && !ofQueues && slices.Contains(phpKeys(), key):
		return "unknown key: it is for queues of PHP's: add kind: php to this namespace, and remove it from the others"
	case inQueue && (key == "sink" || key == "sink_command"):
		return "unknown key: it is for buffers, and this namespace is of kind queue: its push names one of the sinks at the top of the file"
	case inQueue && ofBuffers:
		return "unknown key: it is for buffers, and this namespace is of kind queue: remove it"
	case inNamespace && ofQueues:
		return "unknown key: it is for queues: add kind: queue to this namespace"
	case inQueue && key == "rules":
		return "unknown key: rules are the entries of queues: write queues"
	case inNamespace && slices.Contains(r.topKeys, key):
		return "unknown key: it is for all namespaces together: write it at the top of the file, not indented"
	case path == "" && (ofBuffers || ofQueues):
		return "unknown key: each namespace has its own: write it below the name of one, in namespaces"
	case near != "":
		return "unknown key: did you mean " + near + "?"
	}
	return "unknown key: want one of " + strings.Join(known, ", ")
}

// set parses one value into the setting of that key. path is that of its
// mapping, "" or "namespaces.kart.".
func (r *fileReader) set(settings []Setting, key, path string, value *yaml.Node) {
	s := settingOf(settings, key)
	field := reflect.ValueOf(s.value).Elem()
	before := reflect.ValueOf(field.Interface())
	if err := s.setNode(value); err != nil {
		r.fail(value, path+key, err.Error())
	}
	// The flags set the policy of the default namespace, so they take precedence
	// over the file there too. The file's value must be valid all the same.
	if _, fixed := r.fixed[key]; fixed && (path == "" || path == "namespaces.default.") {
		field.Set(before)
		return
	}
	r.config.origins[path+key] = r.position(value)
}

// setOwn is set for keys that no flag and no other level has.
func (r *fileReader) setOwn(settings []Setting, key, path string, value *yaml.Node) {
	s := settingOf(settings, key)
	if err := s.setNode(value); err != nil {
		r.fail(value, path+key, err.Error())
	}
	r.config.origins[path+key] = r.position(value)
}

// setNode parses a plain value of the type that the setting wants.
func (s Setting) setNode(value *yaml.Node) error {
	switch {
	case value.Tag == "!!null":
		return errors.New("no value: write one or remove the line")
	case s.takesList() && value.Kind == yaml.SequenceNode:
		return s.setList(value)
	case value.Kind != yaml.ScalarNode:
		return errors.New("a map or a list: write a single value")
	}
	_, wantsText := s.value.(*string)
	if wantsText && value.Tag != "!!str" {
		return fmt.Errorf("%s is not text: put it in quotes", value.Value)
	}
	if err := s.set(value.Value); err != nil {
		return err
	}
	switch s.value.(type) {
	case *int, *bool:
		if value.Tag == "!!str" {
			return fmt.Errorf("%q is text: remove the quotes", value.Value)
		}
	}
	return nil
}

// takesList reports whether the setting is texts without spaces.
func (s Setting) takesList() bool {
	_, words := s.value.(*Words)
	return words || s.Flag == "fallback"
}

// setList sets a text to the texts of a list, separated by spaces.
func (s Setting) setList(list *yaml.Node) error {
	var all []string
	for _, item := range list.Content {
		if item.Kind != yaml.ScalarNode || item.Tag != "!!str" || len(strings.Fields(item.Value)) != 1 {
			return errors.New("not a list of texts without spaces")
		}
		all = append(all, item.Value)
	}
	return s.set(strings.Join(all, " "))
}

// texts reads a list of texts, as its key wants it.
func (r *fileReader) texts(node *yaml.Node, path, key string) (list []string) {
	switch {
	case key == "cors_origins":
		return r.corsOrigins(node, path)
	case key == "mask_fields" && node.Kind == yaml.SequenceNode && len(node.Content) == 0:
		return []string{} // nothing is masked
	case key == "sink_command" && (node.Kind != yaml.SequenceNode || len(node.Content) == 0):
		r.fail(node, path, `not a list: write a program and its arguments, such as ["/usr/bin/python3", "/opt/plugin.py"]`)
		return nil
	}
	for i, item := range r.items(node, path) {
		switch {
		case key != "sink_command":
			r.text(item, path)
		case item.Kind != yaml.ScalarNode || item.Tag != "!!str": // an argument may be empty
			r.fail(item, fmt.Sprintf("%s[%d]", path, i), "not text: put it in quotes")
		}
		list = append(list, item.Value)
	}
	return list
}

// corsOrigins parses the origins whose pages may read a namespace's answers: a list, or
// "*" for every page.
func (r *fileReader) corsOrigins(node *yaml.Node, path string) (list []string) {
	const want = `write ["https://game.example"], or "*" for every page`
	switch {
	case node.Kind == yaml.ScalarNode && node.Value == ingest.AnyOrigin:
		return []string{ingest.AnyOrigin}
	case node.Kind != yaml.SequenceNode:
		r.fail(node, path, "not a list: "+want)
		return nil
	case len(node.Content) == 0:
		r.fail(node, path, "empty list: "+want+", or remove the key to allow no page")
	}
	lines := map[string]int{}
	for i, item := range node.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		item = target(item)
		switch err := ingest.CheckOrigin(item.Value); {
		case item.Kind != yaml.ScalarNode || item.Tag != "!!str":
			r.fail(item, at, "not text: "+want)
		case err != nil:
			r.fail(item, at, err.Error())
		case lines[item.Value] > 0:
			r.fail(item, at, fmt.Sprintf("duplicate origin, first on line %d: remove one", lines[item.Value]))
		case item.Value == ingest.AnyOrigin && len(node.Content) > 1:
			r.fail(item, at, `"*" beside other origins: remove either`)
		default:
			lines[item.Value] = item.Line
			list = append(list, item.Value)
		}
	}
	return list
}

// items are those of a list that has some.
func (r *fileReader) items(node *yaml.Node, path string) (items []*yaml.Node) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.fail(node, path, `not a list, or empty: write ["one", "two"] or remove the key`)
		return nil
	}
	for _, item := range node.Content {
		items = append(items, target(item))
	}
	return items
}

func (r *fileReader) text(node *yaml.Node, path string) string {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" || node.Value == "" {
		r.fail(node, path, "not text: write it in quotes")
	}
	return node.Value
}

// target is the node that an alias stands for, or the node itself. Values of maps and items of
// lists pass it once, so nothing else knows of aliases.
func target(node *yaml.Node) *yaml.Node {
	if node.Kind != yaml.AliasNode {
		return node
	}
	meant := *node.Alias
	meant.Line = node.Line // where it is used
	return &meant
}

// mapping calls each for every key of node. Keys that are not in known are errors;
// a nil known allows every key.
func (r *fileReader) mapping(node *yaml.Node, path string, known []string,
	each func(key string, value *yaml.Node)) {
	if node.Tag == "!!null" && path != "" {
		return // `kart:` alone is a namespace without settings of its own
	}
	if node.Kind != yaml.MappingNode {
		r.fail(node, strings.TrimSuffix(path, "."), "not a map: write keys with values, such as `capacity: 5000`")
		return
	}
	seen := map[string]int{}
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch line, duplicate := seen[key.Value]; {
		case duplicate:
			r.fail(key, path+key.Value, fmt.Sprintf("duplicate key, first on line %d: remove one", line))
			continue
		case known != nil && !slices.Contains(known, key.Value):
			r.fail(key, path+key.Value, r.unknownKey(key.Value, path, known))
			continue
		}
		seen[key.Value] = key.Line
		each(key.Value, target(value))
	}
}

// fail records an error about the value at path.
func (r *fileReader) fail(node *yaml.Node, path, problem string) {
	if path != "" {
		path += ": "
	}
	r.errs = append(r.errs, fmt.Errorf("%s: %s%s", r.position(node), path, problem))
}

// position is file:line of a node.
func (r *fileReader) position(node *yaml.Node) string {
	return fmt.Sprintf("%s:%d", r.config.File, node.Line)
}

// settingOf is the setting of a key; without a value where there is none.
func settingOf(settings []Setting, key string) (found Setting) {
	for _, s := range settings {
		if s.Key() == key {
			found = s
		}
	}
	return found
}

func KeysOf(settings []Setting) []string {
	keys := make([]string, len(settings))
	for i, s := range settings {
		keys[i] = s.Key()
	}
	return keys
}
