package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition/php"
)

// PHPNamespace holds the settings of a namespace of `kind: php`: queues of a PHP application on its
// own Redis. They come from the file only; the defaults are those of its flavor.
type PHPNamespace struct {
	Pool        string        `name:"pool"`
	Flavor      php.Flavor    `name:"flavor"`
	KeyPrefix   string        `name:"key-prefix"`
	CachePrefix string        `name:"cache-prefix"`
	Tries       int           `name:"tries"`
	RetryAfter  OrNever       `name:"retry-after"`
	TTR         time.Duration `name:"ttr"`
	Poll        OrNone        `name:"poll"`
	MaxKeys     int           `name:"max-keys"`

	Queues []PHPQueue `file:"queues"`
	Tokens []Token    `file:"tokens" keys:"hash name rights classes raw"`
	Push   []Push     `file:"push"`
}

// PHPQueue names queues that are served, and what holds for them.
type PHPQueue struct {
	Match string        `name:"match"` // a name, with * for any text
	Tries int           `name:"tries"`
	TTR   time.Duration `name:"ttr"`
}

// OrNever is a duration, or never, which is 0.
type OrNever time.Duration

// UnmarshalText reads a duration with its unit, or never.
func (d *OrNever) UnmarshalText(text []byte) error {
	return orWord((*time.Duration)(d), string(text), "never")
}

func (d OrNever) String() string { return cmp.Or(spanText(time.Duration(d)), "never") }

// OrNone is a duration, or none, which is 0.
type OrNone time.Duration

// UnmarshalText reads a duration with its unit, or none.
func (d *OrNone) UnmarshalText(text []byte) error {
	return orWord((*time.Duration)(d), string(text), "none")
}

func (d OrNone) String() string { return cmp.Or(spanText(time.Duration(d)), "none") }

func orWord(to *time.Duration, text, word string) error {
	*to = 0
	if text == word {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d == 0 {
		return fmt.Errorf("%.40q is not a duration: write one with its unit, such as 90s, or %s", text, word)
	}
	*to = d
	return nil
}

// PHPNames returns the namespaces of kind php in alphabetical order.
func (c *Config) PHPNames() []string { return slices.Sorted(maps.Keys(c.PHPNamespaces)) }

// PHPIn are the policies of the namespaces of kind php in a pool.
func (c *Config) PHPIn(pool string) map[string]php.Policy {
	policies := map[string]php.Policy{}
	for name, n := range c.PHPNamespaces {
		if c.PoolOf(name) == pool {
			policies[name] = n.Policy()
		}
	}
	return policies
}

// defaultPHPNamespace has the defaults of a flavor.
func defaultPHPNamespace(flavor php.Flavor) PHPNamespace {
	n := PHPNamespace{}
	CopyFields(&n, php.DefaultPolicy(flavor))
	return n
}

// Policy is the part of the settings that the store needs.
func (n PHPNamespace) Policy() php.Policy {
	var p php.Policy
	CopyFields(&p, n)
	p.Rules = rulesOf(n.Queues)
	return p
}

// php finds each setting of a namespace of kind php that cannot work.
func (f *findings) php() {
	for _, name := range f.PHPNames() {
		n, at := f.PHPNamespaces[name], "namespaces."+name+"."
		f.under(at, n.Policy().Validate())
		if pool := f.PoolOf(name); pool == DefaultPool || len(f.PoliciesIn(pool))+len(f.QueuesIn(pool)) > 0 {
			f.wrong(at+"pool", pool,
				"a pool of its own, the Redis and database of the PHP application, which no namespace of another kind uses")
		}
		for i, t := range n.Tokens {
			if _, err := t.rights(); err != nil {
				f.add(f.FieldError(fmt.Sprintf("%stokens[%d]", at, i), err))
			}
		}
		f.push(at, n.Push, true)
	}
}

// rights are what a token may do in queues of PHP's.
func (t Token) rights() (r ingest.Rights, err error) {
	r = ingest.Rights{Limited: true, Raw: t.Raw,
		Classes: strings.Join(t.Classes.list(), "\n"), Consume: t.Rights == ""}
	for _, right := range t.Rights.list() {
		switch right {
		case "produce":
			r.Produce = true
		case "consume":
			r.Consume = true
		default:
			return r, fmt.Errorf("rights: %.40q is no right: write some of [produce, consume]; the default is [consume]", right)
		}
	}
	for _, class := range t.Classes.list() {
		if strings.Contains(strings.TrimSuffix(class, "*"), "*") {
			return r, fmt.Errorf(`classes: %.100q is no class: write a name, with * at the end for any text, such as App\Jobs\*`, class)
		}
	}
	if !r.Produce && (r.Raw || r.Classes != "") {
		return r, fmt.Errorf("classes and raw are of who may publish: add rights: [produce]")
	}
	return r, nil
}

// tokens are the tokens of the data port.
func (n PHPNamespace) tokens() (tokens []ingest.Token) {
	for _, t := range n.Tokens {
		rights, _ := t.rights() // it was checked before
		tokens = append(tokens, ingest.Token{Hash: t.Hash, Name: t.name(), Rights: rights})
	}
	return tokens
}

// Words are texts without spaces: a list, or one text with spaces between them.
type Words string

// UnmarshalText takes any text.
func (w *Words) UnmarshalText(text []byte) error {
	*w = Words(text)
	return nil
}

func (w Words) list() []string { return strings.Fields(string(w)) }

// phpNamespace reads a namespace of kind php: its flavor first, whose defaults it has.
func (r *fileReader) phpNamespace(node *yaml.Node, path string) PHPNamespace {
	flavor := php.Flavor("")
	if value := valueOf(node, "flavor"); value != nil {
		flavor = php.Flavor(value.Value)
	}
	n := defaultPHPNamespace(flavor)
	r.ownNamespace(node, path, &n)
	return n
}
