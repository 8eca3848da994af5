package main

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

	"github.com/spillway-io/spillway/partition"
)

// fileReader applies the file to a Config. It goes over the nodes itself,
// because decoding into a struct takes "5" for 5 and null for nothing, and
// names no field when it complains.
type fileReader struct {
	config *Config
	fixed  map[string]string // origins of what a flag or the environment gave
	errs   []error
}

// readFile fills the settings that neither a flag nor the environment gave,
// and the namespaces. It reports everything wrong with the file at once.
func (c *Config) readFile(settings []setting) error {
	raw, err := os.ReadFile(c.File)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // nothing but comments
	case err != nil:
		return fmt.Errorf("%s: not YAML: %s; a value that ends with a colon, such as \"stdout:\", needs quotes", c.File, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: a second document: keep everything in one, without ---", c.File)
	}
	r := fileReader{config: c, fixed: maps.Clone(c.origins)}
	settings = slices.DeleteFunc(settings, func(s setting) bool { return s.flag == "config" })
	var namespaces *yaml.Node
	r.mapping(doc.Content[0], "", append(keysOf(settings), "namespaces"), func(key string, value *yaml.Node) {
		if key == "namespaces" {
			namespaces = value // they inherit, so they come when all else is known
			return
		}
		r.set(settings, key, "", value)
	})
	if namespaces != nil {
		r.namespaces(namespaces)
	}
	return errors.Join(r.errs...)
}

// namespaces reads the map of namespaces.
func (r *fileReader) namespaces(node *yaml.Node) {
	c := r.config
	c.Namespaces = map[string]Namespace{}
	c.origins["namespaces"] = r.place(node)
	r.mapping(node, "namespaces.", nil, func(name string, value *yaml.Node) {
		path := "namespaces." + name + "."
		if !partition.ValidNamespace(name) {
			r.wrong(value, strings.TrimSuffix(path, "."), "not a name: write up to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
			return
		}
		ns := c.Default
		settings := settingsOf(&ns)
		r.mapping(value, path, append(keysOf(settings), "tokens"), func(key string, value *yaml.Node) {
			if key == "tokens" {
				ns.Tokens = r.tokens(value, path+key)
				return
			}
			r.set(settings, key, path, value)
		})
		c.Namespaces[name] = ns
	})
}

// set parses one value into the setting of that key. path is that of its
// mapping, "" or "namespaces.kart.".
func (r *fileReader) set(settings []setting, key, path string, value *yaml.Node) {
	s := settings[slices.IndexFunc(settings, func(s setting) bool { return s.key() == key })]
	field := reflect.ValueOf(s.value).Elem()
	before := reflect.ValueOf(field.Interface())
	if err := s.setNode(value); err != nil {
		r.wrong(value, path+key, err.Error())
	}
	// The flags are the policy of the default namespace, so they beat the
	// file there too. What the file says is judged all the same.
	if _, fixed := r.fixed[key]; fixed && (path == "" || path == "namespaces.default.") {
		field.Set(before)
		return
	}
	r.config.origins[path+key] = r.place(value)
}

// setNode parses a plain value of the type that the setting wants.
func (s setting) setNode(value *yaml.Node) error {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	switch {
	case value.Tag == "!!null":
		return errors.New("no value: give it one or remove the line")
	case value.Kind != yaml.ScalarNode:
		return errors.New("a map or a list is not usable: write one plain value")
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

// mapping calls each for every key of node, known or not where known is nil.
func (r *fileReader) mapping(node *yaml.Node, path string, known []string, each func(key string, value *yaml.Node)) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Tag == "!!null" && path != "" {
		return // `kart:` alone is a namespace that says nothing
	}
	if node.Kind != yaml.MappingNode {
		r.wrong(node, strings.TrimSuffix(path, "."), "not a map: write keys with values, such as `capacity: 5000`")
		return
	}
	seen := map[string]int{}
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch line, twice := seen[key.Value]; {
		case twice:
			r.wrong(key, path+key.Value, fmt.Sprintf("given before, on line %d: remove one", line))
			continue
		case known != nil && !slices.Contains(known, key.Value):
			r.wrong(key, path+key.Value, "unknown key: it is none of "+strings.Join(known, ", "))
			continue
		}
		seen[key.Value] = key.Line
		each(key.Value, value)
	}
}

func (r *fileReader) wrong(node *yaml.Node, path, problem string) {
	if path != "" {
		path += ": "
	}
	r.errs = append(r.errs, fmt.Errorf("%s: %s%s", r.place(node), path, problem))
}

// place is file:line of a node.
func (r *fileReader) place(node *yaml.Node) string {
	return fmt.Sprintf("%s:%d", r.config.File, node.Line)
}

func keysOf(settings []setting) []string {
	keys := make([]string, len(settings))
	for i, s := range settings {
		keys[i] = s.key()
	}
	return keys
}
