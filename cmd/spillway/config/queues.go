package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/drain/push"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition/job"
)

// QueueNamespace holds the settings of a namespace of `kind: queue`. They come from the file
// only, and nothing is inherited: a queue has no capacity and no age.
type QueueNamespace struct {
	Pool         string        `name:"pool"`
	Shards       Shards        `name:"shards"`
	MaxJobs      int           `name:"max-jobs"`
	MaxQueues    int           `name:"max-queues"`
	MaxKeys      int           `name:"max-keys"`
	MaxSchedules int           `name:"max-schedules"`
	MaxTraces    int           `name:"max-traces"`
	Dead         string        `name:"dead"` // keep or drop
	ReplyTTL     time.Duration `name:"reply-ttl"`

	Spread map[string]int `file:"spread"` // queue → shards
	Tokens []Token        `file:"tokens" keys:"hash name produce consume"`
	Keys   []AccessKey    `file:"access-keys"`
	Rules  []QueueRule    `file:"queues"`
	Push   []Push         `file:"push"`
}

// AccessKey is one for AWS's SDKs: a token of the namespace by another name.
type AccessKey struct {
	ID     name   `name:"id"`
	Secret string `name:"secret"` // a placeholder, such as {file:/path}

	Value string // of the secret
}

// read reads the secret. ids are those of the keys before.
func (k *AccessKey) read(secrets sink.Secrets, ids map[name]bool) error {
	filled, err := secrets.Fill(k.Secret)
	if k.Value, _ = url.PathUnescape(filled); err != nil {
		return err
	}
	if k.ID == "" || ids[k.ID] || len(k.Value) < minSecret || k.Secret[0] != '{' {
		return errAccessKey
	}
	ids[k.ID] = true
	return nil
}

const minSecret = 16 // bytes

var errAccessKey = errors.New(`write an id that no other key has, and a secret of 16 bytes or more such as "{file:/run/secrets/sqs}"`)

// QueueRule is what holds for some queues, over all processes.
type QueueRule struct {
	Match       string        `name:"match"` // names of queues, with * for any text
	Rate        job.RateLimit `name:"rate"`
	Burst       int           `name:"burst"`
	Concurrency int           `name:"concurrency"`
	Tries       int           `name:"tries"`
	TTR         job.Span      `name:"ttr"`
	Delay       job.Span      `name:"delay"`
	KeepTrace   job.Span      `name:"keep-trace"`
	KeepAcked   job.Span      `name:"keep-acked"`
}

// Push is one rule that hands the jobs of queues to a sink.
type Push struct {
	Match   string        `name:"match"` // names of queues, with * for any text
	Sink    string        `name:"sink"`  // a key of the sinks of the file
	Writes  Writes        `name:"writes"`
	Target  time.Duration `name:"target"` // response time; with a range of writes only
	Batch   int           `name:"batch"`
	Defer   time.Duration `name:"defer_for"` // of a job answered with 202; 0: that acks it
	Accept  string        `name:"accept"`    // all: those of PHP's, too, that its own code has to run
	Backoff Backoff       `name:"backoff"`
}

// Writes is how many writes run at once: a number, or a range such as 1..64, of which Least is
// above 0.
type Writes struct{ Least, Most int }

// UnmarshalText reads a number, or two with two dots between them.
func (w *Writes) UnmarshalText(text []byte) error {
	first, last, isRange := strings.Cut(string(text), "..")
	if !isRange {
		first, last = "0", first
	}
	least, err := strconv.Atoi(first)
	most, errMost := strconv.Atoi(last)
	if err != nil || errMost != nil || isRange && (least < 1 || most <= least) {
		return fmt.Errorf("%.40q is not a number of writes: write one such as 8, "+
			"or the least, from 1, and the most, such as 1..64", text)
	}
	w.Least, w.Most = least, most
	return nil
}

func (w Writes) String() string {
	if w.Least == 0 {
		return strconv.Itoa(w.Most)
	}
	return fmt.Sprintf("%d..%d", w.Least, w.Most)
}

// Backoff is the span of waits between the attempts of a job, as in 1s..10m.
type Backoff struct{ Base, Max time.Duration }

// UnmarshalText reads two durations with two dots between them.
func (b *Backoff) UnmarshalText(text []byte) error {
	first, last, found := strings.Cut(string(text), "..")
	base, err := time.ParseDuration(first)
	longest, errLast := time.ParseDuration(last)
	if !found || err != nil || errLast != nil || base <= 0 || longest < base {
		return fmt.Errorf("%q is not a span of waits: write the first and the longest, such as 1s..10m", text)
	}
	b.Base, b.Max = base, longest
	return nil
}

func (b Backoff) String() string {
	return Setting{value: &b.Base}.text() + ".." + Setting{value: &b.Max}.text()
}

// QueueNames returns the namespaces of kind queue in alphabetical order.
func (c *Config) QueueNames() []string { return slices.Sorted(maps.Keys(c.QueueNamespaces)) }

// AllNames returns the namespaces of all kinds in alphabetical order.
func (c *Config) AllNames() []string {
	return slices.Sorted(slices.Values(slices.Concat(c.Names(), c.QueueNames(), c.PHPNames())))
}

// queues finds each setting of a queue that cannot work.
func (f *findings) queues() {
	ids := map[name]bool{}
	for _, of := range f.QueueNames() {
		q, at := f.QueueNamespaces[of], "namespaces."+of+"."
		for i := range q.Keys {
			if err := q.Keys[i].read(f.Secrets, ids); err != nil {
				f.add(f.FieldError(at+"access_keys", fmt.Errorf("%saccess_keys[%d]: %w", at, i, err)))
			}
		}
		if q.Dead != "keep" && q.Dead != "drop" {
			f.wrong(at+"dead", q.Dead, "keep or drop")
		}
		f.under(at, q.Policy().Validate())
		f.push(at, q.Push, false)
	}
}

func (f *findings) push(at string, rules []Push, ofPHP bool) {
	for i, p := range rules {
		at := fmt.Sprintf("%spush[%d].", at, i)
		_, known := f.PushSinks[p.Sink]
		switch {
		case p.Accept != "" && !ofPHP || p.Defer > 0 && ofPHP:
			f.wrong(at+"accept", p.Accept, "accept in kind php alone, and defer_for in kind queue alone")
		case p.Accept != "" && p.Accept != "all":
			f.wrong(at+"accept", p.Accept, "all, or no such line")
		case !known:
			f.wrong(at+"sink", p.Sink, "a name that sinks has at the top of the file")
		default:
			f.under(at, p.Rule().Validate())
		}
	}
}

// PushOf are the push rules of a namespace of queues of any kind.
func (c *Config) PushOf(namespace string) []Push {
	if n, ok := c.PHPNamespaces[namespace]; ok {
		return n.Push
	}
	return c.QueueNamespaces[namespace].Push
}

// defaultQueueNamespace has the defaults of a namespace of kind queue.
func defaultQueueNamespace() QueueNamespace {
	q := QueueNamespace{Dead: "keep"}
	CopyFields(&q, job.DefaultPolicy())
	return q
}

// defaultPush are the defaults of a push rule.
func defaultPush() Push {
	r := push.DefaultRule()
	return Push{
		Match:   "*",
		Writes:  Writes{Most: r.Writes},
		Batch:   r.Batch,
		Backoff: Backoff{r.BackoffBase, r.BackoffMax},
	}
}

// Policy is the part of the settings that the store needs.
func (q QueueNamespace) Policy() job.Policy {
	p := job.Policy{DropDead: q.Dead == "drop"}
	CopyFields(&p, q)
	p.Rules = rulesOf(q.Rules)
	return p
}

// rulesOf are the rules of queues of either kind.
func rulesOf[T any](list []T) (rules []job.Rule) {
	for _, from := range list {
		var rule job.Rule
		CopyFields(&rule, from)
		rules = append(rules, rule)
	}
	return rules
}

// spanText is a duration in its shortest form, such as 1m; "" for 0.
func spanText(d time.Duration) string { return job.Span(d).String() }

// Rule is the form that the drain takes.
func (p Push) Rule() push.Rule {
	return push.Rule{
		Match:       job.Pattern(p.Match),
		Sink:        p.Sink,
		Writes:      p.Writes.Most,
		MinWrites:   p.Writes.Least,
		Target:      p.Target,
		Batch:       p.Batch,
		DeferFor:    p.Defer,
		AcceptAll:   p.Accept == "all",
		BackoffBase: p.Backoff.Base,
		BackoffMax:  p.Backoff.Max,
	}
}
