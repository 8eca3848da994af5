package control

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Every Redis key of the control document is spelled in this file only.
//
//	sw:{control}:doc           hash    the document; lua/control/read.lua names its fields
//	sw:{control}:changes       zset    names of entries by the version that changed them last
//	sw:{rate:<hash>}:<verb>    string  window of a shared rate
//
// No namespace has a name with a colon, and the tag of a shard has a dot and a number, so
// none of these is a key of a namespace.
func documentKeys(prefix string) []string {
	return []string{prefix + ":{control}:doc", prefix + ":{control}:changes"}
}

// rateKey is the window of one rate of a token. Each has a slot of its own.
func rateKey(prefix, namespace string, token [sha256.Size]byte, verb string) string {
	sum := sha256.Sum256(append([]byte(namespace+"\x00"), token[:]...))
	return prefix + ":{rate:" + hex.EncodeToString(sum[:16]) + "}:" + verb
}

// The names of entries.
//
//	ns:<name>                       a namespace
//	token:<namespace>:<64 digits>   a token, by the SHA-256 of its text
//	admin:<64 digits>               a token of the admin port
//	rule:<namespace>:<pattern>      a rule for queues of a namespace
const (
	namespaceEntry = "ns:"
	tokenEntry     = "token:"
	adminEntry     = "admin:"
	ruleEntry      = "rule:"
)

func (n *Namespace) entry() string { return namespaceEntry + n.Name }
func (t *Token) entry() string {
	return tokenEntry + t.Namespace + ":" + hex.EncodeToString(t.Hash[:])
}
func (a *Admin) entry() string { return adminEntry + hex.EncodeToString(a.Hash[:]) }

// parseHash reads 64 lower-case digits: each entry has one name only.
func parseHash(text string) (hash [sha256.Size]byte, ok bool) {
	if len(text) != hex.EncodedLen(len(hash)) || strings.ToLower(text) != text {
		return hash, false
	}
	_, err := hex.Decode(hash[:], []byte(text))
	return hash, err == nil
}
