package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/ingest/transform"
	"github.com/spillway-io/spillway/partition"
)

// ownKeysOf lists the fields of a struct that are keys of the file alone: there is no flag and
// no variable, and nothing is inherited. They have the tag file, and below a list of tokens
// those of its items' keys that count, in the tag keys. One walk over them reads, prints and
// compares.
func ownKeysOf(config any) (list []Setting) {
	v := reflect.ValueOf(config).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if key, ok := field.Tag.Lookup("file"); ok {
			list = append(list, Setting{key, v.Field(i).Addr().Interface(),
				strings.Fields(field.Tag.Get("keys"))})
		}
	}
	return list
}

// own reads the value of such a key.
func (r *fileReader) own(s Setting, path string, node *yaml.Node) {
	at := path + s.Key()
	switch to := s.value.(type) {
	case *map[string]Pool:
		*to = map[string]Pool{}
		r.named(node, at, func(name string, value *yaml.Node) {
			var p Pool
			if value.Kind == yaml.MappingNode {
				r.fields(value, at+"."+name, &p, KeysOf(SettingsOf(&p)))
			} else {
				p.URL = r.text(value, at+"."+name)
			}
			(*to)[name] = p
		})
		return
	case *map[string]string:
		*to = map[string]string{}
		r.named(node, at, func(name string, value *yaml.Node) { (*to)[name] = r.text(value, at+"."+name) })
		return
	case *map[string]int:
		*to = map[string]int{}
		r.mapping(node, at+".", nil, func(key string, value *yaml.Node) {
			var number int
			// The key is a name, in which a hyphen is no underscore.
			if err := (Setting{value: &number}).setNode(value); err != nil {
				r.fail(value, at+"."+key, err.Error())
			}
			r.config.origins[at+"."+key] = r.position(value)
			(*to)[key] = number
		})
	case *string:
		*to = r.text(node, at)
	case *[]string:
		*to = r.texts(node, at, s.Key())
	case *[]Token:
		*to = r.tokens(node, at, s.keys)
	case *[]WriteKey:
		*to = listOf(r, node, at, WriteKey{}, func(k *WriteKey) *string { return &k.Key })
	case *[]transform.Step:
		*to = r.steps(node, at)
	case *[]AccessKey:
		*to = listOf(r, node, at, AccessKey{}, nil)
	case *[]QueueRule:
		*to = listOf(r, node, at, QueueRule{Match: "*"}, nil)
	case *[]PHPQueue:
		*to = listOf(r, node, at, PHPQueue{}, func(q *PHPQueue) *string { return &q.Match })
	case *[]Push:
		*to = listOf(r, node, at, defaultPush(), nil)
	}
	r.config.origins[at] = r.position(node)
}

// named reads a map whose keys are names.
func (r *fileReader) named(node *yaml.Node, path string, each func(name string, value *yaml.Node)) {
	r.mapping(node, path+".", nil, func(name string, value *yaml.Node) {
		at := path + "." + name
		if !partition.ValidNamespace(name) {
			r.fail(value, at, errNotAName.Error())
			return
		}
		each(name, value)
		r.config.origins[at] = r.position(value)
	})
}

// listOf reads a list of maps. short is the field that an item has which is a text; nil: none may be.
func listOf[T any](r *fileReader, node *yaml.Node, at string, standard T, short func(*T) *string) (list []T) {
	for i, item := range r.items(node, at) {
		to, path := standard, fmt.Sprintf("%s[%d]", at, i)
		if short != nil && item.Kind != yaml.MappingNode {
			*short(&to) = r.text(item, path)
		} else {
			settings := SettingsOf(&to)
			for _, s := range settings {
				r.config.origins[path+"."+s.Key()] = r.position(item)
			}
			r.fields(item, path, &to, KeysOf(settings))
		}
		list = append(list, to)
	}
	return list
}

// fields reads a map into the settings of a struct, of which keys may be given.
func (r *fileReader) fields(node *yaml.Node, path string, to any, keys []string) {
	r.mapping(node, path+".", keys,
		func(key string, value *yaml.Node) {
			r.setOwn(SettingsOf(to), key, path+".", value)
		})
}

// appendOwn adds the keys of ownKeysOf that are set to a map, with the origin as a comment.
func (c *Config) appendOwn(to *yaml.Node, at string, of any) {
	for _, s := range ownKeysOf(of) {
		if value := c.ownNode(s, at+s.Key()); value != nil {
			key := plain(s.Key())
			commented := key
			if value.Style == yaml.FlowStyle || value.Kind == yaml.ScalarNode {
				commented = value // on the same line
			}
			commented.LineComment = c.origins[at+s.Key()]
			to.Content = append(to.Content, key, value)
		}
	}
}

// ownNode is the value of such a key in the form of the file, nil where it is not set.
func (c *Config) ownNode(s Setting, at string) *yaml.Node {
	v := reflect.ValueOf(s.value).Elem()
	if v.IsZero() {
		return nil
	}
	switch of := s.value.(type) {
	case *string:
		return textNode(*of)
	case *[]string:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		if s.Key() == "partition_paths" {
			list.Style = 0
		}
		for _, text := range *of {
			list.Content = append(list.Content, textNode(text))
		}
		return list
	case *[]transform.Step:
		var list yaml.Node
		_ = list.Encode(*of) // of texts and numbers
		return &list
	case *map[string]Pool:
		return mapNode(c, at+".", *of, func(p Pool) *yaml.Node {
			if p.URL != "" {
				p.URL = RedactStore(p.URL)
			}
			return fieldsNode(&p, nil)
		})
	case *map[string]string:
		return mapNode(c, at+".", *of, func(urls string) *yaml.Node { return textNode(redactSinks(urls)) })
	case *map[string]int:
		return mapNode(&Config{}, "", *of, func(n int) *yaml.Node { return plain(fmt.Sprint(n)) })
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range v.Len() {
		item := fieldsNode(v.Index(i).Addr().Interface(), s.keys)
		if len(item.Content) == 2 { // the short form, which reads as the same
			item = item.Content[1]
		}
		list.Content = append(list.Content, item)
	}
	return list
}

// mapNode is a map in the order of its keys, with the origins of its values as comments.
func mapNode[V any](c *Config, at string, of map[string]V, form func(V) *yaml.Node) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		value := form(of[key])
		value.LineComment = c.origins[at+key]
		node.Content = append(node.Content, plain(key), value)
	}
	return node
}

// fieldsNode is a struct on one line: those of its settings that are set, in the order of keys.
func fieldsNode(of any, keys []string) *yaml.Node {
	node, settings := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}, SettingsOf(of)
	if len(keys) == 0 {
		keys = KeysOf(settings)
	}
	for _, key := range keys {
		s := settingOf(settings, key)
		if reflect.ValueOf(s.value).Elem().IsZero() {
			continue
		}
		value := plain(s.text())
		if reflect.ValueOf(s.value).Elem().Kind() == reflect.String {
			value.SetString(s.text()) // quotes what would read as another type
		}
		node.Content = append(node.Content, plain(key), value)
	}
	return node
}

// ownChanges compares the keys of ownKeysOf, but for pools. A reload applies them.
func ownChanges(at string, before, after any) (changes []Change) {
	now := ownKeysOf(after)
	for i, s := range ownKeysOf(before) {
		if _, pools := s.value.(*map[string]Pool); pools || reflect.DeepEqual(s.value, now[i].value) {
			continue
		}
		text := at + s.Key()
		if pool, ok := s.value.(*string); ok && s.Key() == "pool" {
			text += fmt.Sprintf(": %s → %s", cmp.Or(*pool, DefaultPool),
				cmp.Or(*now[i].value.(*string), DefaultPool))
		}
		changes = append(changes, Change{at + s.Key(), text, ReloadRuleOf(s.Key())})
	}
	return changes
}
