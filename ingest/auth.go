package ingest

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
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
	// Limiters are the rates that the token has over all processes; default none. Mounts
	// take from them.
	Limiters control.Limiters
	// Rights are what the token may do in queues of PHP's; default everything.
	Rights Rights
}

// Rights are what a token may do where to publish runs code: in queues of PHP's. The zero Rights
// allow everything, as in all other namespaces. They are comparable.
type Rights struct {
	Limited          bool // only what follows
	Produce, Consume bool
	Raw              bool   // payloads with what PHP unserializes
	Classes          string // of the jobs that it publishes, a line each; a '*' at the end for any text; "": all
}

// MayRun reports whether the token may publish a job of this class.
func (r Rights) MayRun(class string) bool {
	if !r.Limited || r.Classes == "" {
		return true
	}
	for pattern := range strings.SplitSeq(r.Classes, "\n") {
		if before, wild := strings.CutSuffix(pattern, "*"); pattern == class || wild &&
			strings.HasPrefix(class, before) {
			return true
		}
	}
	return false
}

// keyring holds every token. It never changes, so a lookup takes no lock and
// allocates nothing. SetTokens makes another.
type keyring struct {
	protected map[string]bool // namespaces with tokens, and closed ones; the others need none
	// keys are by the first 8 bytes of their hash. The time of a lookup tells at
	// most about hashes, and nobody can choose the hash of a token. Whole hashes
	// are compared in constant time.
	keys map[uint64][]*key
}

// key is a token in its namespace.
type key struct {
	Token
	namespace string
	tenant    *memory.Tenant // nil: the namespace
	limits
}

// SetTokens takes the place of Config.Tokens and Config.Closed, for all requests that
// begin afterwards. A token that does not change keeps what it has used of its limits.
// It returns a *partition.FieldError for a namespace that the server does not have, and
// then changes nothing. Calls must not be concurrent.
func (s *Server) SetTokens(tokens map[string][]Token, closed []string) error {
	k, err := s.newKeyring(tokens, closed)
	if err != nil {
		return err
	}
	before := s.keyring.Swap(k)
	before.forget(k, s.metrics)
	return nil
}

// forget ends the metrics of the names that the next keyring has no more.
func (k *keyring) forget(next *keyring, m *metrics) {
	type name struct{ namespace, token string }
	stays := map[name]bool{}
	for of := range next.all() {
		stays[name{of.namespace, of.Token.Name}] = true
	}
	for of := range k.all() {
		if !stays[name{of.namespace, of.Token.Name}] {
			m.limited.DeletePartialMatch(prometheus.Labels{"namespace": of.namespace, "token": of.Token.Name})
		}
	}
}

// all are the keys, in any order.
func (k *keyring) all() iter.Seq[*key] {
	return func(yield func(*key) bool) {
		if k == nil {
			return
		}
		for _, keys := range k.keys {
			for _, of := range keys {
				if !yield(of) {
					return
				}
			}
		}
	}
}

func (s *Server) newKeyring(tokens map[string][]Token, closed []string) (*keyring, error) {
	k, before := &keyring{protected: map[string]bool{}, keys: map[uint64][]*key{}}, s.keyring.Load()
	for name, tokens := range tokens {
		if !s.hasNamespace(name) {
			return nil, partition.Wrong("tokens", name, "a namespace that the store has")
		}
		k.protected[name] = len(tokens) > 0
		all := s.memory.Tenant(name)
		all.Divide(len(tokens) > 1)
		for _, t := range tokens {
			at := hashPrefix(t.Hash)
			of := before.find(name, t)
			if of == nil {
				of = &key{t, name, all.Token(), newLimits(t, name, s.cfg.MaxEntries, s.metrics)}
			}
			k.keys[at] = append(k.keys[at], of)
		}
	}
	for _, name := range closed {
		k.protected[name] = true
	}
	return k, nil
}

// tenantOf finds who pays for a request of a namespace that exists. k may be nil.
func (s *Server) tenantOf(namespace string, k *key) *memory.Tenant {
	if k != nil && k.tenant != nil {
		return k.tenant
	}
	return s.memory.Tenant(namespace)
}

// find returns the key of a token as it is; nil: there is none.
func (k *keyring) find(namespace string, t Token) *key {
	if k == nil {
		return nil
	}
	for _, candidate := range k.keys[hashPrefix(t.Hash)] {
		if candidate.namespace == namespace && candidate.Token == t {
			return candidate
		}
	}
	return nil
}

// holds reports whether a namespace has a token, whatever its limits are.
func (k *keyring) holds(namespace string, hash [sha256.Size]byte) bool {
	return slices.ContainsFunc(k.keys[hashPrefix(hash)], func(candidate *key) bool {
		return candidate.namespace == namespace && candidate.Hash == hash
	})
}

func hashPrefix(hash [sha256.Size]byte) uint64 { return binary.LittleEndian.Uint64(hash[:]) }

// authenticate finds the key of a request; nil where the namespace has no tokens. If
// any namespace has tokens, the answer does not tell whether this one exists.
func (k *keyring) authenticate(namespace string, exists bool, token []byte) (*key, *rejection) {
	switch {
	case !exists && len(k.keys) == 0:
		return nil, reject(wire.CodeNoSuchNamespace)
	case exists && !k.protected[namespace]:
		return nil, nil
	}
	if len(token) == 0 {
		return nil, reject(wire.CodeUnauthorized)
	}
	sum := sha256.Sum256(token)
	code := wire.CodeUnauthorized
	for _, candidate := range k.keys[hashPrefix(sum)] {
		switch {
		case subtle.ConstantTimeCompare(candidate.Hash[:], sum[:]) != 1:
		case candidate.namespace == namespace && exists:
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
