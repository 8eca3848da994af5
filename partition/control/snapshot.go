package control

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-io/spillway/partition"
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
	r := clientRule(namespace, queue)
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

// Bounds of what can be made at run time. The script that changes the document keeps the
// first two.
const (
	MaxEntries     = 10_000  // namespaces, tokens, rules and admin tokens together
	MaxBytes       = 8 << 20 // of all of them, with their names
	MaxTokens      = 1000    // of a namespace, so that one change deletes all of it
	MaxDescription = 512     // bytes
	maxSpread      = 32      // queues of a namespace that lie on several shards
	maxText        = 256     // bytes of a readable token
	maxEntryBytes  = 16 << 10
	maxBy          = 64 // bytes of CreatedBy
)

// DefaultPool is the pool of the process's own store.
const DefaultPool = "default"

// A Token admits requests to one namespace.
type Token struct {
	Namespace   string            `json:"-"`
	Hash        [sha256.Size]byte `json:"-"`                     // of the token's text
	Name        string            `json:"name"`                  // stands for it in metrics; default the first 8 digits of the hash
	Description string            `json:"description,omitempty"` // at most MaxDescription bytes
	// Text is the token itself. Only tokens of lmstfy's admin API have it, because that
	// lists them. Others are stored as hashes.
	Text      string         `json:"text,omitempty"`
	Produce   partition.Rate `json:"produce,omitzero"` // jobs, over all processes; default none
	Consume   partition.Rate `json:"consume,omitzero"`
	Limit     *Limit         `json:"limit,omitempty"`      // requests, as lmstfy's API sets it; default nil, none
	CreatedMS int64          `json:"created_ms"`           // Unix ms
	CreatedBy string         `json:"created_by,omitempty"` // the name of the admin token
	FromFile  bool           `json:"-"`                    // the file has it; it cannot be deleted at run time

	Limiters Limiters `json:"-"` // of the rates; set in a Snapshot
}

// A Limit is how many requests a token may make in Interval seconds, over all processes: Read that
// consume and Write that publish. 0 is no limit; one of them is more.
type Limit struct {
	Read     int64 `json:"read"`
	Write    int64 `json:"write"`
	Interval int64 `json:"interval"`
}

// An Admin is a token of the admin port.
type Admin struct {
	Name      string            `json:"name"`
	Role      string            `json:"role"`                 // viewer, operator or admin
	Hash      [sha256.Size]byte `json:"-"`                    // of the token's text
	CreatedMS int64             `json:"created_ms"`           // Unix ms
	CreatedBy string            `json:"created_by,omitempty"` // the name of the admin token
	FromFile  bool              `json:"-"`                    // the file has it; it cannot be deleted at run time
}

// HashToken is the hash of a token's text.
func HashToken(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// ShortName is the name of a token without one: the first 8 digits of its hash.
func ShortName(hash [sha256.Size]byte) string { return hex.EncodeToString(hash[:4]) }

const wantName = "1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"

// checkCommon checks what every entry has.
func checkCommon(v *partition.Validation, description, by string) {
	v.Check(len(description) <= MaxDescription && utf8.ValidString(description), "description", "the text",
		"at most 512 bytes of UTF-8")
	v.Check(len(by) <= maxBy && utf8.ValidString(by), "created_by", "the text", "at most 64 bytes of UTF-8")
}

// Validate returns a *partition.FieldError for each value outside its bounds, joined.
func (t *Token) Validate() error {
	var v partition.Validation
	v.Check(partition.ValidNamespace(t.Namespace), "namespace", t.Namespace, wantName)
	v.Check(partition.ValidNamespace(t.Name), "name", t.Name, wantName)
	v.Check(t.Hash != HashToken(""), "hash", "that of an empty token", "one that not everybody can send")
	v.Check(t.Text == "" || validText(t.Text) && HashToken(t.Text) == t.Hash, "token", "the text",
		"at most 256 printable ASCII characters without spaces")
	for field, r := range map[string]partition.Rate{"produce": t.Produce, "consume": t.Consume} {
		v.Check(r == partition.Rate{} || r.String() != "" && r.Count <= partition.MaxRate, field, r.Count,
			"a rate such as 5000/s, 1000/min or 20/h")
	}
	checkCommon(&v, t.Description, t.CreatedBy)
	if t.Limit != nil {
		return errors.Join(v.Err(), t.Limit.Validate())
	}
	return v.Err()
}

func validText(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return len(text) <= maxText
}

// Validate returns a *partition.FieldError for each value outside its bounds, joined.
func (l *Limit) Validate() error {
	var v partition.Validation
	v.Check(l.Read >= 0 && l.Read <= partition.MaxRate, "read", l.Read, "0 to 1000000000 requests; 0 is no limit")
	v.Check(l.Write >= 0 && l.Write <= partition.MaxRate, "write", l.Write,
		"0 to 1000000000 requests; 0 is no limit")
	v.Check(l.Read != 0 || l.Write != 0, "read", l.Read, "more than 0, or write more than 0")
	v.Check(l.Interval >= 1 && l.Interval <= int64(24*time.Hour/time.Second), "interval", l.Interval,
		"1 to 86400 seconds")
	return v.Err()
}

// Validate returns a *partition.FieldError for each value outside its bounds, joined.
func (a *Admin) Validate() error {
	var v partition.Validation
	v.Check(partition.ValidNamespace(a.Name), "name", a.Name, wantName)
	v.Check(a.Role == "viewer" || a.Role == "operator" || a.Role == "admin", "role", a.Role,
		"viewer, operator or admin")
	v.Check(a.Hash != HashToken(""), "hash", "that of an empty token", "one that not everybody can send")
	checkCommon(&v, "", a.CreatedBy)
	return v.Err()
}

// tokenPrefix lets people and secret scanners recognize a leaked token.
const tokenPrefix = "sw_"

// NewToken returns the text of a new random token.
func NewToken() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails: the runtime ends the process instead
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
}

const hashScheme = "sha256:"

// FormatHash is a hash as it is written: sha256: and 64 digits.
func FormatHash(hash [sha256.Size]byte) string { return hashScheme + hex.EncodeToString(hash[:]) }

// ParseHash reads what FormatHash writes, in either case of letters.
func ParseHash(text string) (hash [sha256.Size]byte, ok bool) {
	digits, scheme := strings.CutPrefix(text, hashScheme)
	hash, ok = parseHash(strings.ToLower(digits))
	return hash, scheme && ok
}
