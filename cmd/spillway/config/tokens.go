package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
)

const hashScheme = "sha256:"

// errNotAHash does not show the value, which may be the token itself.
var errNotAHash = errors.New("not a hash: write sha256: and 64 hex digits, as printed by `spillway token`, never the token itself")

// errEmptyToken catches a script that hashed a variable that was not set.
var errEmptyToken = errors.New("hash of an empty token, which anybody can send: write another, as printed by `spillway token`")

// parseHash reads the hash of a token.
func parseHash(text string) (hash [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(text, hashScheme)
	if !ok || len(digits) != hex.EncodedLen(len(hash)) {
		return hash, errNotAHash
	}
	if _, err := hex.Decode(hash[:], []byte(digits)); err != nil {
		return hash, errNotAHash
	}
	if hash == sha256.Sum256(nil) {
		return hash, errEmptyToken
	}
	return hash, nil
}

func FormatHash(hash [sha256.Size]byte) string { return hashScheme + hex.EncodeToString(hash[:]) }

// shortName is the name of a token without one: the first 8 digits of its hash.
func shortName(hash [sha256.Size]byte) string { return hex.EncodeToString(hash[:4]) }

// tokens parses the list of the tokens of a buffer. Each is a hash, or a map of hash, name
// and limits.
func (r *fileReader) tokens(node *yaml.Node, path string) (tokens []ingest.Token) {
	for _, t := range r.fileTokens(node, path, "rate", "new_partitions") {
		tokens = append(tokens, t.Token)
	}
	return tokens
}

// queueTokens parses the list of the tokens of queues, whose rates all processes share.
func (r *fileReader) queueTokens(node *yaml.Node, path string) (tokens []control.Token) {
	for _, t := range r.fileTokens(node, path, "produce", "consume") {
		tokens = append(tokens, control.Token{Hash: t.Hash, Name: t.Name, Produce: t.produce, Consume: t.consume})
	}
	return tokens
}

// fileToken is a token of either kind.
type fileToken struct {
	ingest.Token
	produce, consume control.Rate
}

// fileTokens parses a list of tokens that may have these limits.
func (r *fileReader) fileTokens(node *yaml.Node, path string, limits ...string) (tokens []fileToken) {
	node = target(node)
	switch {
	case node.Kind != yaml.SequenceNode:
		r.fail(node, path, `not a list: write ["sha256:…"], as printed by `+"`spillway token`")
	case len(node.Content) == 0:
		r.fail(node, path, "empty list: add a token, or remove the key to need no authentication")
	}
	r.config.origins[path] = r.position(node)
	if node.Kind != yaml.SequenceNode {
		return []fileToken{{}} // nothing starts, and no other error shall say that there is none
	}
	hashes, names := map[[sha256.Size]byte]int{}, map[string]int{}
	for i, item := range node.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		t, ok := r.token(item, at, limits)
		if !ok {
			tokens = append(tokens, fileToken{})
			continue
		}
		for _, line := range []int{hashes[t.Hash], names[t.Name]} {
			if line > 0 {
				r.fail(item, at, fmt.Sprintf("duplicate hash or name, first on line %d: change or remove one", line))
				break
			}
		}
		hashes[t.Hash], names[t.Name] = item.Line, item.Line
		tokens = append(tokens, t)
	}
	return tokens
}

func (r *fileReader) token(node *yaml.Node, path string, limits []string) (t fileToken, ok bool) {
	node = target(node)
	before := len(r.errs)
	var err error
	if node.Kind != yaml.MappingNode {
		if t.Hash, err = parseHash(node.Value); err != nil {
			r.fail(node, path, err.Error())
		}
		t.Name = shortName(t.Hash)
		return t, len(r.errs) == before
	}
	hashed := false
	r.mapping(node, path+".", append([]string{"hash", "name"}, limits...), func(key string, value *yaml.Node) {
		value = target(value)
		var err error
		switch key {
		case "hash":
			hashed = true
			t.Hash, err = parseHash(value.Value)
		case "name":
			if t.Name = value.Value; !partition.ValidNamespace(t.Name) {
				err = errors.New("not a name: write 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
			}
		case "rate":
			err = t.Rate.UnmarshalText([]byte(value.Value))
		case "new_partitions":
			err = t.NewPartitions.UnmarshalText([]byte(value.Value))
		case "produce":
			err = t.produce.UnmarshalText([]byte(value.Value))
		case "consume":
			err = t.consume.UnmarshalText([]byte(value.Value))
		}
		if err != nil {
			r.fail(value, path+"."+key, err.Error())
		}
	})
	if !hashed {
		r.fail(node, path, "no hash: write one, as printed by `spillway token`")
	}
	if t.Name == "" {
		t.Name = shortName(t.Hash)
	}
	return t, len(r.errs) == before
}

// tokensNode is a list of tokens in the form of the file. It shows the hashes,
// which are no secrets: the token cannot be computed from its hash.
func tokensNode(tokens []ingest.Token) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, t := range tokens {
		limits := map[string]string{}
		if t.Rate.Count > 0 {
			limits["rate"] = t.Rate.String()
		}
		if t.NewPartitions.Count > 0 {
			limits["new_partitions"] = t.NewPartitions.String()
		}
		list.Content = append(list.Content, tokenNode(t.Hash, t.Name, limits))
	}
	return list
}

// queueTokensNode is tokensNode for the tokens of queues.
func queueTokensNode(tokens []control.Token) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, t := range tokens {
		list.Content = append(list.Content, tokenNode(t.Hash, t.Name, map[string]string{"produce": t.Produce.String(), "consume": t.Consume.String()}))
	}
	return list
}

// tokenNode is one token with those of its limits that are not empty.
func tokenNode(hash [sha256.Size]byte, name string, limits map[string]string) *yaml.Node {
	fields := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	add := func(key, value string) { fields.Content = append(fields.Content, plain(key), plain(value)) }
	add("hash", FormatHash(hash))
	if name != shortName(hash) {
		add("name", name)
		fields.Content[len(fields.Content)-1].SetString(name)
	}
	for _, key := range []string{"rate", "new_partitions", "produce", "consume"} {
		if limits[key] != "" {
			add(key, limits[key])
		}
	}
	if len(fields.Content) == 2 { // the hash only
		return fields.Content[1]
	}
	return fields
}
