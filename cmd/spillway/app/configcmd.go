package app

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
)

// configCmd shows a configuration without starting the service.
type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Check whether serve would accept the configuration. Opens no port, and no connection unless --online."`
	Print configPrintCmd `cmd:"" help:"Print the effective configuration in the form of the file, with the source of each value and without passwords."`
}

type configCheckCmd struct {
	Online bool   `name:"online" help:"Connect to the store and to the sinks, too, and write nothing to them."`
	Config Config `embed:""`
}

func (c *configCheckCmd) Run(ctx context.Context, p process) error {
	_, err := fromEnv([]setting{{"online", &c.Online}}, p)
	if loaded := c.Config.loadAndTry(p, sinkRegistry()); loaded != nil {
		err = loaded // with the same unknown variables
	}
	if err != nil {
		return err
	}
	// The same App as serve builds; it opens nothing before Start.
	app, err := NewApp(&c.Config, sinkRegistry(), zap.NewNop())
	if err != nil {
		return usageError{err}
	}
	if err := app.Stop(ctx); err != nil {
		return err
	}
	warnings, contacted := c.Config.warnings(), "sinks and store not contacted"
	if c.Online {
		more, err := c.Config.checkOnline(ctx, sinkRegistry())
		if err != nil {
			return err
		}
		warnings, contacted = append(warnings, more...), "store and sinks answer"
	}
	for _, text := range warnings {
		fmt.Fprintln(p.stdout, "warning:", text)
	}
	fmt.Fprintf(p.stdout, "configuration valid: namespaces %v; %s\n", c.Config.allNames(), contacted)
	return nil
}

type configPrintCmd struct {
	Config Config `embed:""`
}

func (c *configPrintCmd) Run(p process) error {
	if err := c.Config.load(p); err != nil {
		return err
	}
	encoder := yaml.NewEncoder(p.stdout)
	encoder.SetIndent(2)
	if err := encoder.Encode(c.Config.node()); err != nil {
		return fmt.Errorf("print config: %w", err)
	}
	return nil
}

// node is the Config in the form of the file, without passwords.
func (c *Config) node() *yaml.Node {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range settingsOf(c) {
		if s.flag != "config" {
			c.appendSetting(root, s, s.key())
		}
	}
	c.appendAdmin(root)
	c.appendPools(root)
	c.appendPushSinks(root)
	spaces := &yaml.Node{Kind: yaml.MappingNode}
	root.Content = append(root.Content, plain("namespaces"), spaces)
	for _, name := range c.names() {
		ns, node, at := c.Namespaces[name], &yaml.Node{Kind: yaml.MappingNode}, "namespaces."+name+"."
		add := c.adder(node, at)
		for _, s := range settingsOf(&ns) {
			c.appendSetting(node, s, at+s.key())
		}
		if ns.Pool != "" {
			pool := textNode(ns.Pool)
			pool.LineComment = c.origins[at+"pool"]
			node.Content = append(node.Content, plain("pool"), pool)
		}
		if ns.SinkCommand != nil {
			list := textsNode(ns.SinkCommand)
			list.LineComment = c.origins[at+"sink_command"]
			node.Content = append(node.Content, plain("sink_command"), list)
		}
		if len(ns.Tokens) > 0 {
			add("tokens", tokensNode(ns.Tokens))
		}
		if len(ns.CORSOrigins) > 0 {
			add("cors_origins", textsNode(ns.CORSOrigins))
		}
		c.appendSDK(node, ns.SDK, at)
		spaces.Content = append(spaces.Content, plain(name), node)
	}
	c.appendQueues(spaces)
	return root
}

// appendSetting adds key and value to a map, with the origin as a comment.
func (c *Config) appendSetting(to *yaml.Node, s setting, path string) {
	text := s.shown()
	if s.flag == "admin-token" {
		text = s.text() // a hash, which is no secret
	}
	value := plain(text)
	if _, isText := s.value.(*string); isText {
		value.SetString(text) // quotes what would read as another type
	}
	if value.LineComment = c.origin(path); value.LineComment == "" {
		value.LineComment = "default"
	}
	to.Content = append(to.Content, plain(s.key()), value)
}

// adder returns what adds a key that has no flag to a map, with the origin as a comment.
func (c *Config) adder(to *yaml.Node, at string) func(key string, value *yaml.Node) {
	return func(key string, value *yaml.Node) {
		name := plain(key)
		name.LineComment = c.origins[at+key]
		to.Content = append(to.Content, name, value)
	}
}

// textNode quotes what would read as another type.
func textNode(text string) *yaml.Node {
	node := plain("")
	node.SetString(text)
	return node
}

func textsNode(texts []string) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, text := range texts {
		list.Content = append(list.Content, textNode(text))
	}
	return list
}

func plain(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }
