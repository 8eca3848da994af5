package app

import (
	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/ingest"
)

// sdkKeys are the keys of a namespace for other vendors' SDKs. They come from the file
// only, and are not inherited.
var sdkKeys = []string{"write_keys", "partition_paths", "partition_fallback"}

// sdk reads one of sdkKeys; it is false for any other key.
func (r *fileReader) sdk(to *ingest.SDK, key, path string, value *yaml.Node) bool {
	switch key {
	case "write_keys":
		to.WriteKeys = r.texts(value, path+key)
	case "partition_paths":
		to.PartitionPaths = r.texts(value, path+key)
	case "partition_fallback":
		to.PartitionFallback = r.text(value, path+key)
	default:
		return false
	}
	r.config.origins[path+key] = r.position(value)
	return true
}

// texts reads a list of texts.
func (r *fileReader) texts(node *yaml.Node, path string) (list []string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.fail(node, path, `not a list, or empty: write ["one", "two"] or remove the key`)
		return nil
	}
	for _, item := range node.Content {
		list = append(list, r.text(item, path))
	}
	return list
}

func (r *fileReader) text(node *yaml.Node, path string) string {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" || node.Value == "" {
		r.fail(node, path, "not text: write it in quotes")
	}
	return node.Value
}

// appendSDK adds the keys of an SDK to a namespace in the form of the file.
func (c *Config) appendSDK(to *yaml.Node, sdk ingest.SDK, path string) {
	add := func(key string, value *yaml.Node) {
		name := plain(key)
		name.LineComment = c.origins[path+key]
		to.Content = append(to.Content, name, value)
	}
	list := func(texts []string) *yaml.Node {
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for _, text := range texts {
			item := plain(text)
			item.SetString(text)
			node.Content = append(node.Content, item)
		}
		return node
	}
	if len(sdk.WriteKeys) > 0 {
		add("write_keys", list(sdk.WriteKeys))
	}
	if len(sdk.PartitionPaths) > 0 {
		add("partition_paths", list(sdk.PartitionPaths))
	}
	if sdk.PartitionFallback != "" {
		value := plain("")
		value.SetString(sdk.PartitionFallback)
		add("partition_fallback", value)
	}
}
