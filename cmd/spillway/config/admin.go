package config

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/partition"
)

// adminTokens parses the list of the admin port's tokens. They come from the file only,
// as maps of name, role and hash.
func (r *fileReader) adminTokens(node *yaml.Node) (tokens []admin.Token) {
	const path = "admin_tokens"
	node = target(node)
	r.config.origins[path] = r.position(node)
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.fail(node, path, `not a list, or empty: write [{name: alice, role: operator, hash: "sha256:…"}], the hash as printed by `+"`spillway token`")
		return []admin.Token{{}} // nothing starts, and no other error shall say that there is none
	}
	hashes, names := map[[sha256.Size]byte]int{}, map[string]int{}
	for i, item := range node.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		t, ok := r.adminToken(item, at)
		if !ok {
			tokens = append(tokens, admin.Token{})
			continue
		}
		if line := max(hashes[t.Hash], names[t.Name]); line > 0 {
			r.fail(item, at, fmt.Sprintf("duplicate hash or name, first on line %d: change or remove one", line))
		}
		hashes[t.Hash], names[t.Name] = item.Line, item.Line
		tokens = append(tokens, t)
	}
	return tokens
}

func (r *fileReader) adminToken(node *yaml.Node, path string) (t admin.Token, ok bool) {
	before := len(r.errs)
	given := map[string]bool{}
	r.mapping(node, path+".", []string{"name", "role", "hash"}, func(key string, value *yaml.Node) {
		value = target(value)
		given[key] = true
		var err error
		switch key {
		case "name":
			if t.Name = value.Value; !partition.ValidNamespace(t.Name) {
				err = errors.New("not a name: write 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
			}
		case "role":
			err = t.Role.UnmarshalText([]byte(value.Value))
		case "hash":
			t.Hash, err = parseHash(value.Value)
		}
		if err != nil {
			r.fail(value, path+"."+key, err.Error())
		}
	})
	if len(r.errs) == before && len(given) < 3 {
		r.fail(node, path, "incomplete: write name, role and hash")
	}
	return t, len(r.errs) == before
}

// maskFields parses a list of keys of JSON objects. An empty list masks nothing.
func (r *fileReader) maskFields(node *yaml.Node) []string {
	const path = "mask_fields"
	node = target(node)
	r.config.origins[path] = r.position(node)
	if node.Kind == yaml.SequenceNode && len(node.Content) == 0 {
		return []string{}
	}
	return r.texts(node, path)
}

// adminAccess are the tokens of the admin port: that of admin_token has the role admin.
func (c *Config) AdminAccess() (tokens []admin.Token, err error) {
	if c.AdminToken != "" {
		hash, err := parseHash(c.AdminToken)
		if err != nil {
			return nil, c.Locate(&SettingError{"admin_token", err})
		}
		tokens = append(tokens, admin.Token{Name: "admin_token", Role: admin.Admin, Hash: hash})
	}
	for _, t := range c.AdminTokens {
		if c.AdminToken != "" && tokens[0].Hash == t.Hash {
			return nil, c.Locate(&SettingError{"admin_tokens", errors.New("the token of " + t.Name + " is that of admin_token, too: remove one")})
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// appendAdmin adds the tokens of the admin port and the masked fields in the form of the file.
func (c *Config) appendAdmin(to *yaml.Node) {
	add := c.adder(to, "")
	if len(c.AdminTokens) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, t := range c.AdminTokens {
			list.Content = append(list.Content, &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{
				plain("name"), textNode(t.Name), plain("role"), plain(t.Role.String()), plain("hash"), plain(FormatHash(t.Hash)),
			}})
		}
		add("admin_tokens", list)
	}
	add("mask_fields", textsNode(c.MaskFields))
}
