package config

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/ingest/transform"
)

// strictly reads a node into a struct, and rejects keys that it does not have.
func strictly(node *yaml.Node, to any) error {
	text, err := yaml.Marshal(node)
	if err != nil {
		return fmt.Errorf("read a map: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(to); err != nil {
		var wrong *yaml.TypeError
		if errors.As(err, &wrong) {
			_, text, _ := strings.Cut(wrong.Errors[0], ": ") // after a line, which is not the file's
			text, _, _ = strings.Cut(text, " in type ")
			return errors.New(text)
		}
		return err
	}
	return nil
}

// steps reads a list of steps.
func (r *fileReader) steps(node *yaml.Node, at string) (list []transform.Step) {
	for i, item := range r.items(node, at) {
		var step transform.Step
		if err := strictly(item, &step); err != nil {
			r.fail(item, fmt.Sprintf("%s[%d]", at, i), err.Error())
			continue
		}
		list = append(list, step)
	}
	return list
}

// transform is that of the namespace of a name, nil where it has none.
func (n Namespace) transform(name string, secrets sink.Secrets) (*transform.Transform, error) {
	if len(n.Transform) == 0 {
		return nil, nil
	}
	steps := slices.Clone(n.Transform)
	for i, s := range steps {
		if s.Mask == nil || s.Mask.Key == "" {
			continue
		}
		mask := *s.Mask
		filled, err := secrets.Fill(mask.Key)
		if mask.Key[0] != '{' || err != nil {
			return nil, errors.Join(fmt.Errorf(`step %d: mask: write a key such as "{file:/run/secrets/mask}"`, i+1), err)
		}
		mask.Key, _ = url.PathUnescape(filled)
		steps[i].Mask = &mask
	}
	return transform.New(name, steps)
}

// TransformOf is what a namespace of kind buffer does to its entries; nil: nothing.
func (c *Config) TransformOf(name string) (*transform.Transform, error) {
	ns, ok := c.Namespaces[name]
	if !ok {
		return nil, fmt.Errorf("the configuration has no buffer %s: it has %s", name, strings.Join(c.Names(), ", "))
	}
	return ns.transform(name, c.Secrets)
}
