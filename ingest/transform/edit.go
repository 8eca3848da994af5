package transform

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// node is a key of paths, and those below it; a leaf is where a path ends.
type node struct {
	key    string
	quoted string // the key in JSON
	leaf   bool
	below  []*node
}

func newTree(paths []string) (*node, error) {
	parsed, err := protocol.ParsePaths(paths)
	if err != nil {
		return nil, err
	}
	if len(parsed) == 0 {
		return nil, protocol.ErrPath
	}
	root := &node{}
	for _, path := range parsed {
		at := root
		for _, key := range path {
			_, next := at.of(key)
			if next == nil {
				next = &node{key: key, quoted: string(quoted(key))}
				at.below = append(at.below, next)
			}
			at = next
		}
		at.leaf = true
	}
	return root, nil
}

// of is the node of a key below n, and its place there; nil: there is none.
func (n *node) of(key string) (place int, below *node) {
	for i, b := range n.below {
		if b.key == key {
			return i, b
		}
	}
	return -1, nil
}

// verb is what happens at the leaves of a tree.
type verb int

const (
	keep verb = iota
	remove
	rename
	stars
	hash
	set
)

type edit struct {
	do   verb
	text []byte // what is written: the new key, or the value
	key  string // the new key, or that of hashes
}

// object appends an object with the edit done. Each of several equal keys is edited.
func (e *edit) object(dst []byte, object string, at *node) []byte {
	dst = append(dst, '{')
	start := len(dst)
	member := func(key string) {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(append(dst, key...), ':')
	}
	replaced := e.do == rename && len(at.below) == 1 && at.below[0].leaf && child(object, at.below[0].key) != ""
	met := 0 // of at.below, as bits
	for key, value := range wire.Values(object) {
		name := wire.Text(key)
		place, next := at.of(name)
		switch {
		case next == nil && (e.do == keep || replaced && name == e.key):
		case next == nil, next.leaf && e.do == keep:
			member(key)
			dst = append(dst, value...)
		case !next.leaf && value[0] == '{':
			if e.do != keep || next.within(value) {
				member(key)
				dst = e.object(dst, value, next)
				met |= 1 << place
			}
		case !next.leaf:
			if e.do != keep && e.do != set {
				member(key)
				dst = append(dst, value...)
			}
		case e.do == remove:
		case e.do == rename:
			member(protocol.TextOf(e.text))
			dst = append(dst, value...)
		default:
			member(key)
			met |= 1 << place
			dst = e.value(dst, value)
		}
	}
	if e.do == set {
		for i, next := range at.below {
			if met&(1<<i) == 0 {
				member(next.quoted)
				if next.leaf {
					dst = append(dst, e.text...)
				} else {
					dst = e.object(dst, "{}", next)
				}
			}
		}
	}
	return append(dst, '}')
}

// value appends what takes the place of a value.
func (e *edit) value(dst []byte, value string) []byte {
	switch {
	case e.do == set:
		return append(dst, e.text...)
	case value == "null":
		return append(dst, value...)
	case e.do == stars:
		return append(dst, `"***"`...)
	}
	text := value
	if value[0] == '"' {
		text = wire.Text(value) // the same however it was escaped
	}
	sum := hmac.New(sha256.New, []byte(e.key))
	sum.Write([]byte(text))
	var room [sha256.Size]byte
	dst = append(dst, '"')
	dst = hex.AppendEncode(dst, sum.Sum(room[:0])[:hashBytes])
	return append(dst, '"')
}

// hashBytes is the length of a masked value, before it is written in hexadecimal: two of a billion
// values are the same with a chance of 1 in 10^20.
const hashBytes = 16

// within reports whether an object has something at a path of a tree.
func (n *node) within(object string) bool {
	for key, value := range wire.Values(object) {
		if _, next := n.of(wire.Text(key)); next != nil && (next.leaf || value[0] == '{' && next.within(value)) {
			return true
		}
	}
	return false
}

func (m *Mask) check(namespace string) (e edit, err error) {
	switch {
	case len(m.Key) > maxText:
		return e, fmt.Errorf("mask: key has %d bytes at most", maxText)
	case m.As == "stars" && m.Key == "":
		return edit{do: stars}, nil
	case m.As == "hash" && m.Key == "":
		return edit{do: hash, key: namespace}, nil
	case m.As == "hash":
		return edit{do: hash, key: m.Key}, nil
	}
	return e, errors.New("mask: as is hash or stars, and key is of hash")
}

func (s *Set) check() (e edit, err error) {
	switch s.Value.(type) {
	case string, bool, int, int64, uint64, float64:
	default:
		return e, errors.New("set: value is a text, a number or a boolean")
	}
	text, err := json.Marshal(s.Value)
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("set: value has %d bytes at most", maxText)
	}
	return edit{do: set, text: text}, err
}

// child is the value of a key of an object; of equal keys, the last one's, which most readers take.
// Empty: there is none.
func child(object, name string) (found string) {
	if object[0] == '{' {
		for key, value := range wire.Values(object) {
			if wire.Text(key) == name {
				found = value
			}
		}
	}
	return found
}

// quoted is a text as a JSON string.
func quoted(text string) []byte {
	raw, _ := json.Marshal(text) // of a text
	return raw
}
