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
	"github.com/spillway-io/spillway/partition"
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
		return doc, fmt.Errorf("%s: not YAML: %s; indent with spaces, not tabs, and quote a value that ends with a colon, such as \"stdout:\"", path, strings.TrimPrefix(err.Error(), "yaml: "))
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
	r := fileReader{config: c, fixed: maps.Clone(c.origins), topKeys: append(KeysOf(settings), "admin_tokens", "mask_fields", "pools", "sinks", "namespaces")}
	var namespaces *yaml.Node
	r.mapping(doc.Content[0], "", r.topKeys, func(key string, value *yaml.Node) {
		switch key {
		case "admin_tokens":
			c.AdminTokens = r.adminTokens(value)
		case "mask_fields":
			c.MaskFields = r.maskFields(value)
		case "pools":
			c.Pools = r.pools(value)
		case "sinks":
			c.PushSinks = r.sinkURLs(value)
		case "namespaces":
			namespaces = value // they inherit, so all other settings are read first
		default:
			r.set(settings, key, "", value)
		}
	})
	if namespaces != nil {
		r.namespaces(namespaces)
	}
	return r.errs
}

// namespaces reads the map of namespaces.
func (r *fileReader) namespaces(node *yaml.Node) {
	c := r.config
	c.Namespaces = map[string]Namespace{}
	c.origins["namespaces"] = r.position(node)
	r.mapping(node, "namespaces.", nil, func(name string, value *yaml.Node) {
		path := "namespaces." + name + "."
		if !partition.ValidNamespace(name) {
			r.fail(value, strings.TrimSuffix(path, "."), "not a name: write 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
			return
		}
		if r.kindOfNamespace(value, path) == "queue" {
			if c.Queues == nil {
				c.Queues = map[string]Queues{}
			}
			c.Queues[name] = r.queues(value, path)
			return
		}
		ns := c.Default
		settings := SettingsOf(&ns)
		r.mapping(value, path, namespaceKeys(), func(key string, value *yaml.Node) {
			switch key {
			case "kind":
			case "pool":
				ns.Pool = r.text(value, path+key)
				c.origins[path+key] = r.position(value)
			case "sink_command":
				ns.SinkCommand = r.command(value, path+key)
			case "tokens":
				ns.Tokens = r.tokens(value, path+key)
			case "cors_origins":
				ns.CORSOrigins = r.corsOrigins(value, path+key)
			default:
				if !r.sdk(&ns.SDK, key, path, value) {
					r.set(settings, key, path, value)
				}
			}
		})
		c.Namespaces[name] = ns
	})
}

// namespaceKeys are the keys of a namespace.
func namespaceKeys() []string {
	return slices.Concat(KeysOf(SettingsOf(&Namespace{})), []string{"kind", "pool", "sink_command", "tokens", "cors_origins"}, sdkKeys)
}

// unknownKey says where a key belongs, or which one it probably means.
func (r *fileReader) unknownKey(key, path string, known []string) string {
	inNamespace, inQueue := slices.Contains(known, "kind"), slices.Contains(known, "push")
	switch near := sink.Nearest(key, known); {
	case inQueue && (key == "sink" || key == "sink_command"):
		return "unknown key: it is for buffers, and this namespace is of kind queue: its push names one of the sinks at the top of the file"
	case inQueue && slices.Contains(namespaceKeys(), key):
		return "unknown key: it is for buffers, and this namespace is of kind queue: remove it"
	case inNamespace && slices.Contains(queueKeys(), key):
		return "unknown key: it is for queues: add kind: queue to this namespace"
	case inNamespace && slices.Contains(r.topKeys, key):
		return "unknown key: it is for all namespaces together: write it at the top of the file, not indented"
	case path == "" && (slices.Contains(namespaceKeys(), key) || slices.Contains(queueKeys(), key)):
		return "unknown key: each namespace has its own: write it below the name of one, in namespaces"
	case near != "":
		return "unknown key: did you mean " + near + "?"
	}
	return "unknown key: want one of " + strings.Join(known, ", ")
}

// set parses one value into the setting of that key. path is that of its
// mapping, "" or "namespaces.kart.".
func (r *fileReader) set(settings []Setting, key, path string, value *yaml.Node) {
	s := settings[slices.IndexFunc(settings, func(s Setting) bool { return s.Key() == key })]
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

// setNode parses a plain value of the type that the setting wants.
func (s Setting) setNode(value *yaml.Node) error {
	value = target(value)
	switch {
	case value.Tag == "!!null":
		return errors.New("no value: write one or remove the line")
	case s.Flag == "fallback" && value.Kind == yaml.SequenceNode:
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

// command reads a list of texts: a program and its arguments.
func (r *fileReader) command(node *yaml.Node, path string) (argv []string) {
	node = target(node)
	r.config.origins[path] = r.position(node)
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.fail(node, path, `not a list: write a program and its arguments, such as ["/usr/bin/python3", "/opt/plugin.py"]`)
		return nil
	}
	for i, item := range node.Content {
		item = target(item)
		if item.Kind != yaml.ScalarNode || item.Tag != "!!str" {
			r.fail(item, fmt.Sprintf("%s[%d]", path, i), "not text: put it in quotes")
		}
		argv = append(argv, item.Value)
	}
	return argv
}

// target is the node that an alias stands for, or the node itself.
func target(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// mapping calls each for every key of node. Keys that are not in known are errors;
// a nil known allows every key.
func (r *fileReader) mapping(node *yaml.Node, path string, known []string, each func(key string, value *yaml.Node)) {
	node = target(node)
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
		each(key.Value, value)
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

func KeysOf(settings []Setting) []string {
	keys := make([]string, len(settings))
	for i, s := range settings {
		keys[i] = s.Key()
	}
	return keys
}
