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

// Token admits the requests that carry it to one namespace.
type Token struct {
	// Hash is the SHA-256 of the token's text. The text itself is stored nowhere,
	// so nobody can send with what the configuration holds.
	Hash [sha256.Size]byte
	// Name stands for the token in metrics. The operator chooses it.
	Name string
	// Rate is how many entries the token may send; default none, no limit. A
	// request counts as many as its entries, because entries are what the store
	// pays for. A request for stats counts as one.
	Rate Quota
	// NewPartitions is how many partitions the token may use that it did not use
	// in the last 10 to 20 minutes; default none, no limit.
	NewPartitions Quota
}

// keyring holds every token. It never changes, so a lookup takes no lock and
// allocates nothing.
type keyring struct {
	protected map[*partition.Namespace]bool // namespaces with tokens, and closed ones; the others need none
	// keys are by the first 8 bytes of their hash. The time of a lookup tells at
	// most about hashes, and nobody can choose the hash of a token. Whole hashes
	// are compared in constant time.
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
	for _, name := range cfg.Closed {
		k.protected[store.Namespace(name)] = true
	}
	return k, nil
}

func hashPrefix(hash [sha256.Size]byte) uint64 { return binary.LittleEndian.Uint64(hash[:]) }

// authenticate finds the key of a request; nil where the namespace has no tokens.
// ns is nil for a namespace that does not exist. If any namespace has tokens, the
// answer does not tell which namespaces exist.
func (k *keyring) authenticate(ns *partition.Namespace, token []byte) (*key, *rejection) {
	switch {
	case ns == nil && len(k.keys) == 0:
		return nil, reject(wire.CodeNoSuchNamespace)
	case ns != nil && !k.protected[ns]:
		return nil, nil
	}
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

// bearer is the token of a request. It is empty unless there is exactly one
// header: of two, a proxy in front may have checked the other. Only a beacon has its
// token in the URL, because URLs end up in logs.
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
