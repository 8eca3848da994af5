package config

import (
	"fmt"

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
		for i, item := range r.items(value, path+key) {
			to.WriteKeys = append(to.WriteKeys, r.writeKey(item, path+key, i))
		}
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

// writeKey reads item i of a list: a key, or a mapping of key, rate and new_partitions.
func (r *fileReader) writeKey(node *yaml.Node, path string, i int) (k ingest.WriteKey) {
	node = target(node)
	if node.Kind != yaml.MappingNode {
		return ingest.WriteKey{Key: r.text(node, path)}
	}
	at := fmt.Sprintf("%s[%d]", path, i)
	r.mapping(node, at+".", []string{"key", "rate", "new_partitions"}, func(key string, value *yaml.Node) {
		value = target(value)
		quota := &k.Rate
		switch key {
		case "key":
			k.Key = r.text(value, at+".key")
			return
		case "new_partitions":
			quota = &k.NewPartitions
		}
		if err := quota.UnmarshalText([]byte(value.Value)); err != nil {
			r.fail(value, at+"."+key, err.Error())
		}
	})
	return k
}

// texts reads a list of texts.
func (r *fileReader) texts(node *yaml.Node, path string) (list []string) {
	for _, item := range r.items(node, path) {
		list = append(list, r.text(item, path))
	}
	return list
}

// items are those of a list that has some.
func (r *fileReader) items(node *yaml.Node, path string) []*yaml.Node {
	node = target(node)
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.fail(node, path, `not a list, or empty: write ["one", "two"] or remove the key`)
		return nil
	}
	return node.Content
}

func (r *fileReader) text(node *yaml.Node, path string) string {
	node = target(node)
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" || node.Value == "" {
		r.fail(node, path, "not text: write it in quotes")
	}
	return node.Value
}

// appendSDK adds the keys of an SDK to a namespace in the form of the file.
func (c *Config) appendSDK(to *yaml.Node, sdk ingest.SDK, path string) {
	add := c.adder(to, path)
	keys := &yaml.Node{Kind: yaml.SequenceNode}
	for _, k := range sdk.WriteKeys {
		item := textNode(k.Key)
		pair := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{plain("key"), item}}
		if k.Rate.Count > 0 {
			pair.Content = append(pair.Content, plain("rate"), plain(k.Rate.String()))
		}
		if k.NewPartitions.Count > 0 {
			pair.Content = append(pair.Content, plain("new_partitions"), plain(k.NewPartitions.String()))
		}
		if len(pair.Content) > 2 {
			item = pair
		}
		keys.Content = append(keys.Content, item)
	}
	if len(sdk.WriteKeys) > 0 {
		add("write_keys", keys)
	}
	paths := &yaml.Node{Kind: yaml.SequenceNode}
	for _, path := range sdk.PartitionPaths {
		paths.Content = append(paths.Content, textNode(path))
	}
	if len(sdk.PartitionPaths) > 0 {
		add("partition_paths", paths)
	}
	if sdk.PartitionFallback != "" {
		add("partition_fallback", textNode(sdk.PartitionFallback))
	}
}
