package config

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
)

// errNotAHash does not show the value, which may be the token itself.
var errNotAHash = errors.New("not a hash: write sha256: and 64 hex digits, as printed by `spillway token`, never the token itself")

// errEmptyToken catches a script that hashed a variable that was not set.
var errEmptyToken = errors.New("hash of an empty token, which anybody can send: write another, as printed by `spillway token`")

// parseHash reads the hash of a token.
func parseHash(text string) (tokenHash, error) {
	hash, ok := control.ParseHash(text)
	switch {
	case !ok:
		return tokenHash{}, errNotAHash
	case hash == sha256.Sum256(nil):
		return tokenHash{}, errEmptyToken
	}
	return hash, nil
}

// tokenHash is the hash of a token in the form of the file.
type tokenHash [sha256.Size]byte

func (h *tokenHash) UnmarshalText(text []byte) (err error) {
	*h, err = parseHash(string(text))
	return err
}

func (h tokenHash) String() string { return control.FormatHash(h) }

// name is a name in metrics and logs.
type name string

var errNotAName = errors.New("not a name: write 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")

func (n *name) UnmarshalText(text []byte) error {
	if *n = name(text); !partition.ValidNamespace(string(text)) {
		return errNotAName
	}
	return nil
}

// Token is a token of the data port or of the admin port: a hash, or a map of the keys that the
// list has in its tag.
type Token struct {
	Name          name           `name:"name"`
	Hash          tokenHash      `name:"hash"`
	Role          admin.Role     `name:"role"`
	Rate          ingest.Quota   `name:"rate"`
	NewPartitions ingest.Quota   `name:"new-partitions"`
	Produce       partition.Rate `name:"produce"`
	Consume       partition.Rate `name:"consume"`
	Rights        Words          `name:"rights"`
	Classes       Words          `name:"classes"`
	Raw           bool           `name:"raw"`
}

func (t Token) name() string { return cmp.Or(string(t.Name), control.ShortName(t.Hash)) }

// ingest is the form of the data port.
func (t Token) ingest() ingest.Token {
	return ingest.Token{Hash: t.Hash, Name: t.name(), Rate: t.Rate, NewPartitions: t.NewPartitions}
}

// Control is the form of the tokens of queues, whose rates all processes share.
func (t Token) Control(namespace string) control.Token {
	return control.Token{
		Namespace: namespace,
		Hash:      t.Hash,
		Name:      t.name(),
		Produce:   t.Produce,
		Consume:   t.Consume,
	}
}

// tokens reads a list of tokens whose maps may have these keys. A short form has no role.
func (r *fileReader) tokens(node *yaml.Node, path string, keys []string) (tokens []Token) {
	const printed = "as printed by `spillway token`"
	short := !slices.Contains(keys, "role")
	switch empty := len(node.Content) == 0; {
	case !short && (node.Kind != yaml.SequenceNode || empty):
		r.fail(node, path, `not a list, or empty: write [{name: alice, role: operator, hash: "sha256:…"}], the hash `+printed)
	case node.Kind != yaml.SequenceNode:
		r.fail(node, path, `not a list: write ["sha256:…"], `+printed)
	case empty:
		r.fail(node, path, "empty list: add a token, or remove the key to need no authentication")
	}
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		return []Token{{}} // nothing starts, and no other error shall say that there is none
	}
	hashes, names := map[tokenHash]int{}, map[string]int{}
	for i, item := range node.Content {
		item := target(item)
		at := fmt.Sprintf("%s[%d]", path, i)
		before := len(r.errs)
		var t Token
		if short && item.Kind != yaml.MappingNode {
			if err := t.Hash.UnmarshalText([]byte(item.Value)); err != nil {
				r.fail(item, at, err.Error())
			}
		} else {
			r.fields(item, at, &t, keys)
			given := func(key string) bool { return r.config.origins[at+"."+key] != "" }
			switch {
			case short && !given("hash"):
				r.fail(item, at, "no hash: write one, "+printed)
			case !short && len(r.errs) == before && !(given("name") && given("role") && given("hash")):
				r.fail(item, at, "incomplete: write name, role and hash")
			}
		}
		tokens = append(tokens, t)
		if len(r.errs) > before {
			continue
		}
		if line := max(hashes[t.Hash], names[t.name()]); line > 0 {
			r.fail(item, at, fmt.Sprintf("duplicate hash or name, first on line %d: change or remove one", line))
		}
		hashes[t.Hash], names[t.name()] = item.Line, item.Line
	}
	return tokens
}

// AdminAccess are the tokens of the admin port: that of admin_token has the role admin.
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
			return nil, c.Locate(&SettingError{"admin_tokens",
				errors.New("the token of " + t.name() + " is that of admin_token, too: remove one")})
		}
		tokens = append(tokens, admin.Token{Name: t.name(), Role: t.Role, Hash: t.Hash})
	}
	return tokens, nil
}
