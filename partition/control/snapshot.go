package control

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/partition/job"
)

// File is what the configuration file says about what can be made at run time, too. It
// takes precedence.
type File struct {
	Namespaces []Namespace // of kind queue
	Buffers    []string    // namespaces of kind buffer
	// Open are the namespaces of kind queue that need no token. They get none at run time:
	// the first would close them, and the end of the last would open them again.
	Open   []string
	Tokens []Token
	Admins []Admin  // none: the admin port is open, and so it stays
	Pools  []string // beside DefaultPool
	// Volatile are the pools that may have queues although a crash of Redis loses jobs.
	Volatile []string
}

type tokenKey struct {
	namespace string
	hash      [sha256.Size]byte
}

// A Snapshot is everything in use: what the file names and what was made at run time. It
// never changes.
type Snapshot struct {
	Version int64 // of the document; 0: there is none, or it was not read yet
	// Ignored are the entries of the document that are not in use, and why. No line shows a
	// token.
	Ignored []string

	namespaces map[string]*Namespace
	tokens     map[string][]*Token // by namespace
	byHash     map[tokenKey]*Token
	admins     []*Admin
	rules      map[string][]*Rule // by namespace, in the order in which they count
	unused     map[string][]*Rule
	gone       map[string]bool // queues that clients deleted, by the names of their entries
}

// Rules returns the rules for queues of a namespace, the first that counts first. The caller must
// not change the list.
func (s *Snapshot) Rules(namespace string) []*Rule { return s.rules[namespace] }

// UnusedRules returns the rules made at run time that do not count, and say why.
func (s *Snapshot) UnusedRules(namespace string) []*Rule { return s.unused[namespace] }

// Gone reports whether a client deleted a queue, and none has made it again.
func (s *Snapshot) Gone(namespace, queue string) bool {
	r := Rule{Namespace: namespace, Rule: job.Rule{Match: job.Pattern(queue)}, Client: true}
	return s.gone[r.entry()]
}

// Namespace returns the namespace of kind queue of that name, nil when there is none.
func (s *Snapshot) Namespace(name string) *Namespace { return s.namespaces[name] }

// Namespaces returns the namespaces of kind queue in the order of their names.
func (s *Snapshot) Namespaces() []*Namespace {
	all := make([]*Namespace, 0, len(s.namespaces))
	for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
		all = append(all, s.namespaces[name])
	}
	return all
}

// NamespacesOf returns those of a pool.
func (s *Snapshot) NamespacesOf(pool string) []*Namespace {
	return slices.DeleteFunc(s.Namespaces(), func(n *Namespace) bool { return n.Pool != pool })
}

// Tokens returns the tokens of a namespace of kind queue, the oldest first. The caller
// must not change the list.
func (s *Snapshot) Tokens(namespace string) []*Token { return s.tokens[namespace] }

// Token returns one token of a namespace, nil when there is none.
func (s *Snapshot) Token(namespace string, hash [sha256.Size]byte) *Token {
	return s.byHash[tokenKey{namespace, hash}]
}

// Admins returns the tokens of the admin port, those of the file first. The caller must
// not change the list.
func (s *Snapshot) Admins() []*Admin { return s.admins }

// newSnapshot puts the file and the document together. Its tokens have no limiters yet.
func newSnapshot(d *document, file *File) *Snapshot {
	s := &Snapshot{
		Version:    d.version,
		namespaces: map[string]*Namespace{},
		tokens:     map[string][]*Token{},
		byHash:     map[tokenKey]*Token{},
		rules:      map[string][]*Rule{},
		unused:     map[string][]*Rule{},
		gone:       map[string]bool{},
	}
	ignore := func(name, format string, args ...any) {
		s.Ignored = append(s.Ignored, fmt.Sprintf("%s: %.200s", shownName(name), fmt.Sprintf(format, args...)))
	}
	for _, n := range file.Namespaces {
		n.FromFile = true
		s.namespaces[n.Name] = &n
	}
	for _, t := range file.Tokens {
		t.FromFile = true
		s.add(t)
	}
	for _, a := range file.Admins {
		a.FromFile = true
		s.admins = append(s.admins, &a)
	}
	var tokens []*Token
	var rules []*Rule
	for _, name := range slices.Sorted(maps.Keys(d.entries)) {
		switch e := d.entries[name].(type) {
		case error:
			ignore(name, "%v", e)
		case *Namespace:
			switch {
			case s.namespaces[e.Name] != nil || slices.Contains(file.Buffers, e.Name):
				ignore(name, "the file names this namespace, too")
			case e.Pool != DefaultPool && !slices.Contains(file.Pools, e.Pool):
				ignore(name, "the file has no pool %s", e.Pool)
			default:
				s.namespaces[e.Name] = e
			}
		case *Token:
			tokens = append(tokens, e) // once all namespaces are known
		case *Rule:
			rules = append(rules, e)
		case *Admin:
			switch {
			case len(file.Admins) == 0:
				ignore(name, "the file has no token of the admin port, so nobody needs one")
			case slices.ContainsFunc(s.admins, func(a *Admin) bool {
				return a.Hash == e.Hash ||
					a.Name == e.Name
			}):
				ignore(name, "another admin token has this name or hash")
			default:
				s.admins = append(s.admins, e)
			}
		}
	}
	for _, t := range tokens {
		switch {
		case s.namespaces[t.Namespace] == nil:
			ignore(t.entry(), "there is no such namespace of kind queue in use")
		case slices.Contains(file.Open, t.Namespace):
			ignore(t.entry(), "the file has this namespace without tokens, so nobody needs one")
		case s.Token(t.Namespace, t.Hash) != nil:
			ignore(t.entry(), "the file has this token, too")
		default:
			s.add(*t)
		}
	}
	s.addRules(rules, ignore)
	for _, list := range s.tokens {
		slices.SortStableFunc(list, func(a, b *Token) int {
			return cmp.Or(cmp.Compare(a.CreatedMS, b.CreatedMS), cmp.Compare(a.Name, b.Name))
		})
	}
	return s
}

// add adds a copy of a token: those of the document are shared by snapshots.
func (s *Snapshot) add(t Token) {
	s.tokens[t.Namespace] = append(s.tokens[t.Namespace], &t)
	s.byHash[tokenKey{t.Namespace, t.Hash}] = &t
}

// shownName is the name of an entry for people. A hash is cut as in the name of a token.
func shownName(name string) string {
	i := strings.LastIndexByte(name, ':') + 1
	if _, isHash := parseHash(name[i:]); isHash {
		return name[:i+8]
	}
	return fmt.Sprintf("%.100q", name)
}
