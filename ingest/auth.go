package ingest

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// Token lets whoever presents it into one namespace.
type Token struct {
	// Hash is the SHA-256 of the token's text. The token itself is kept
	// nowhere, so who reads the configuration cannot send.
	Hash [sha256.Size]byte
	// Name stands for the token in metrics. It is the operator's, never a
	// client's.
	Name string
	// Rate is how many entries it may send; none is no limit. Entries are what
	// costs the store, so a request counts by how many it brings; a read counts
	// as one.
	Rate Quota
	// NewPartitions is how many partitions it may bring in that it did not use
	// for the last 10 minutes; none is no limit.
	NewPartitions Quota
}

// keyring knows every token. It never changes, so looking one up takes no lock
// and allocates nothing.
type keyring struct {
	protected map[*partition.Namespace]bool // those that have tokens; the others are open
	// keys by the first 8 bytes of their hash. Who measures how long a look-up
	// takes learns about hashes at most, and cannot choose what a token hashes
	// to; whole hashes are compared in constant time.
	keys map[uint64][]*key
}

// key is a token in its namespace.
type key struct {
	hash      [sha256.Size]byte
	namespace *partition.Namespace
	limits
}

func newKeyring(cfg Config, store Store, m *metrics) (*keyring, error) {
	k := &keyring{protected: map[*partition.Namespace]bool{}, keys: map[uint64][]*key{}}
	for name, tokens := range cfg.Tokens {
		ns := store.Namespace(name)
		if ns == nil {
			return nil, &partition.FieldError{Field: "tokens", Value: name, Want: "a namespace that the store has"}
		}
		k.protected[ns] = len(tokens) > 0
		for _, t := range tokens {
			at := hashPrefix(t.Hash)
			k.keys[at] = append(k.keys[at], &key{t.Hash, ns, newLimits(t, ns, cfg.MaxEntries, m)})
		}
	}
	return k, nil
}

func hashPrefix(hash [sha256.Size]byte) uint64 { return binary.LittleEndian.Uint64(hash[:]) }

// check finds the key that a request comes with; nil where the namespace is
// open. ns is nil when there is none of that name: among namespaces with
// tokens nobody is told which ones there are.
func (k *keyring) check(ns *partition.Namespace, h *fasthttp.RequestHeader) (*key, *rejection) {
	switch {
	case ns == nil && len(k.keys) == 0:
		return nil, reject(wire.CodeNoSuchNamespace)
	case ns != nil && !k.protected[ns]:
		return nil, nil
	}
	token := bearer(h)
	if len(token) == 0 {
		return nil, reject(wire.CodeUnauthorized)
	}
	sum := sha256.Sum256(token)
	code := wire.CodeUnauthorized
	for _, candidate := range k.keys[hashPrefix(sum)] {
		switch {
		case subtle.ConstantTimeCompare(candidate.hash[:], sum[:]) != 1:
		case candidate.namespace == ns:
			return candidate, nil
		default:
			code = wire.CodeForbidden
		}
	}
	return nil, reject(code)
}

// bearer is the token of a request; empty when there is none, or not exactly
// one: of two headers a proxy might have judged the other. The URL is never
// looked at, for it ends up in logs.
func bearer(h *fasthttp.RequestHeader) []byte {
	values := h.PeekAll(fasthttp.HeaderAuthorization)
	if len(values) != 1 {
		return nil
	}
	scheme, token, _ := bytes.Cut(values[0], []byte{' '})
	if !bytes.EqualFold(scheme, []byte("Bearer")) {
		return nil
	}
	return bytes.Trim(token, " ")
}
