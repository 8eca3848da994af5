package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/ingest"
)

// corsOrigins parses the origins whose pages may read a namespace's answers: a list, or
// "*" for every page.
func (r *fileReader) corsOrigins(node *yaml.Node, path string) (list []string) {
	const want = `write ["https://game.example"], or "*" for every page`
	node = target(node)
	r.config.origins[path] = r.position(node)
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
