package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// A Namespace is one of kind queue. Nothing of it changes after it was made.
type Namespace struct {
	Name        string
	Pool        string // a pool that the file names; default "default"
	Description string // at most MaxDescription bytes
	Policy      job.Policy
	CreatedMS   int64  // Unix ms
	CreatedBy   string // the name of the admin token
	FromFile    bool   // the file names it; it cannot be deleted at run time
}

// NewNamespace is a namespace with the default policy.
func NewNamespace(name, pool, createdBy string) Namespace {
	return Namespace{Name: name, Pool: pool, Policy: job.DefaultPolicy(), CreatedBy: createdBy}
}

// Validate returns a *partition.FieldError for each value outside its bounds, joined.
func (n *Namespace) Validate() error {
	var v partition.Validation
	v.Check(partition.ValidNamespace(n.Name), "name", n.Name, wantName)
	v.Check(partition.ValidNamespace(n.Pool), "pool", n.Pool, wantName)
	v.Check(len(n.Policy.Spread) <= maxSpread, "spread", len(n.Policy.Spread), "at most 32 queues")
	checkCommon(&v, n.Description, n.CreatedBy)
	return errors.Join(v.Err(), n.Policy.Validate())
}

// A Rule is what holds for queues of a namespace. Rules that operators make at run time come before those of the
// file: names before patterns, longer before shorter ones, then in the order of the alphabet. What clients say of
// their queues comes last: it fills what no rule sets.
type Rule struct {
	Namespace string `json:"-"`
	job.Rule
	CreatedMS int64  `json:"created_ms"`           // Unix ms
	CreatedBy string `json:"created_by,omitempty"` // the name of the admin token
	FromFile  bool   `json:"-"`                    // the file has it; it cannot be deleted at run time
	Client    bool   `json:"-"`                    // a client said it, of the one queue that Match names
	Gone      bool   `json:"gone,omitempty"`       // the client deleted the queue; the rule says nothing
	Unused    string `json:"-"`                    // why it does not count; empty: it does
}

// Validate returns a *partition.FieldError for each value outside its bounds, joined.
func (r *Rule) Validate() error {
	var v partition.Validation
	v.Check(partition.ValidNamespace(r.Namespace), "namespace", r.Namespace, wantName)
	checkCommon(&v, "", r.CreatedBy)
	v.Check(!r.Client || partition.ValidQueue(string(r.Match)), "match", string(r.Match), "the name of a queue")
	if r.Client && r.Gone && r.saysNothing() {
		return v.Err()
	}
	v.Check(!r.Gone, "gone", r.Gone, "nothing beside it")
	return errors.Join(v.Err(), r.Rule.Validate())
}

// clientRule is the rule of a queue of which clients have said nothing.
func clientRule(namespace, queue string) Rule {
	return Rule{Namespace: namespace, Rule: job.Rule{Match: job.Pattern(queue)}, Client: true}
}

// Span is a time in a rule; 0 says nothing.
type Span = job.Span

// saysNothing reports whether a rule is as Clear leaves it.
func (r *Rule) saysNothing() bool { return r.Rule == (job.Rule{Match: r.Match}) }

// Clear makes a rule say nothing.
func (r *Rule) Clear() { r.Rule = job.Rule{Match: r.Match} }

// before orders rules made at run time.
func (r *Rule) before(other *Rule) int {
	rank := func(r *Rule) int {
		if r.Client {
			return 2
		}
		return min(1, strings.Count(string(r.Match), "*"))
	}
	return cmp.Or(cmp.Compare(rank(r), rank(other)),
		cmp.Compare(len(other.Match), len(r.Match)),
		cmp.Compare(r.Match, other.Match))
}

// clientSuffix ends the names of clients' rules. No pattern has its '@'.
const clientSuffix = "@client"

func (r *Rule) entry() string {
	name := ruleEntry + r.Namespace + ":" + string(r.Match)
	if r.Client {
		name += clientSuffix
	}
	return name
}

func decodeRule(name, value string) (*Rule, error) {
	r := &Rule{}
	if err := decodeForm(value, r); err != nil {
		return nil, err
	}
	namespace, match, _ := strings.Cut(name, ":")
	match, r.Client = strings.CutSuffix(match, clientSuffix)
	r.Namespace, r.Match = namespace, job.Pattern(match)
	return r, r.Validate()
}

// addRules puts the rules made at run time before those of the file, those of clients behind them, in the policies too.
func (s *Snapshot) addRules(rules []*Rule, ignore func(name, format string, args ...any)) {
	slices.SortFunc(rules, (*Rule).before)
	for _, r := range rules {
		n, why := s.namespaces[r.Namespace], ""
		switch {
		case n == nil:
			why = "there is no such namespace of kind queue in use"
		case r.Gone:
			s.gone[r.entry()] = true
			continue
		case len(s.rules[r.Namespace])+len(n.Policy.Rules) >= job.MaxRules:
			why = fmt.Sprintf("%d rules are the most, with those of the file", job.MaxRules)
		case n.Policy.Admit(r.Rule) != nil:
			why = n.Policy.Admit(r.Rule).Error()
		default:
			s.rules[r.Namespace] = append(s.rules[r.Namespace], r)
			continue
		}
		ignore(r.entry(), "%s", why)
		unused := *r // the document's rules are shared by snapshots
		unused.Unused = why
		s.unused[r.Namespace] = append(s.unused[r.Namespace], &unused)
	}
	for name, n := range s.namespaces {
		made, ruled := s.rules[name], *n // the document's namespaces are shared by snapshots
		ruled.Policy.Rules = nil
		var filed []*Rule
		for _, r := range n.Policy.Rules {
			filed = append(filed, &Rule{Namespace: name, Rule: r, FromFile: true})
		}
		last := slices.IndexFunc(made, func(r *Rule) bool { return r.Client })
		if last < 0 {
			last = len(made)
		}
		s.rules[name] = slices.Insert(made, last, filed...)
		for _, r := range s.rules[name] {
			ruled.Policy.Rules = append(ruled.Policy.Rules, r.Rule)
		}
		s.namespaces[name] = &ruled
	}
}

// PutRule makes a rule, or replaces that of the same pattern. CreatedMS is set.
func (c *Control) PutRule(ctx context.Context, r Rule) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return c.change(ctx, func(v view) (edit, error) { return v.putRule(r, job.MaxRules) })
}

// ChangeRule changes what clients say of a queue, which may be nothing yet. by says who does. An error of
// change is returned as it is. Half of what the file leaves of MaxRules is for operators: clients name queues as
// they like. A namespace remembers the last maxGone queues that clients deleted.
func (c *Control) ChangeRule(ctx context.Context, namespace, queue, by string,
	change func(*Rule) error) error {
	return c.change(ctx, func(v view) (edit, error) {
		r := clientRule(namespace, queue)
		r.CreatedBy = by
		if made, exists := v.entries[r.entry()].(*Rule); exists {
			r = *made
		}
		before := r
		if err := change(&r); err != nil || r == before {
			return nil, err
		}
		if r.saysNothing() && !r.Gone {
			return edit{r.entry(): ""}, nil
		}
		r.CreatedBy = by
		if err := r.Validate(); err != nil {
			return nil, err
		}
		if r.Gone {
			return v.putGone(r)
		}
		filed := 0
		for _, r := range v.snapshot.Rules(namespace) {
			if r.FromFile {
				filed++
			}
		}
		return v.putRule(r, (job.MaxRules+filed)/2)
	})
}

const maxGone = 100

// putGone remembers a queue that a client deleted, instead of the one that was deleted first.
func (v view) putGone(r Rule) (edit, error) {
	if v.snapshot.Namespace(r.Namespace) == nil {
		return nil, fmt.Errorf("namespace %s of kind queue: %w", r.Namespace, ErrNotFound)
	}
	r.CreatedMS = time.Now().UnixMilli()
	e := edit{r.entry(): r.encode()}
	var gone []*Rule
	for _, name := range v.of(ruleEntry, r.Namespace) {
		if old, ok := v.entries[name].(*Rule); ok && old.Gone && old.Match != r.Match {
			gone = append(gone, old)
		}
	}
	if len(gone) >= maxGone {
		first := slices.MinFunc(gone, func(a, b *Rule) int { return cmp.Compare(a.CreatedMS, b.CreatedMS) })
		e[first.entry()] = ""
	}
	return e, nil
}

// putRule makes a rule, where its namespace has fewer than most, or replaces that of the same pattern.
func (v view) putRule(r Rule, most int) (edit, error) {
	r.CreatedMS = time.Now().UnixMilli()
	old, exists := v.entries[r.entry()].(*Rule)
	exists = exists && !old.Gone
	n := v.snapshot.Namespace(r.Namespace)
	switch {
	case n != nil && n.Policy.Admit(r.Rule) != nil:
		return nil, n.Policy.Admit(r.Rule)
	case n == nil:
		return nil, fmt.Errorf("namespace %s of kind queue: %w", r.Namespace, ErrNotFound)
	case !exists && len(v.snapshot.Rules(r.Namespace)) >= most:
		return nil, fmt.Errorf("namespace %s: %d rules are the most: %w", r.Namespace, most, ErrTooMany)
	}
	return edit{r.entry(): r.encode()}, nil
}

// DeleteRule deletes a rule that was made at run time: that of operators before that of clients.
func (c *Control) DeleteRule(ctx context.Context, namespace, match string) error {
	return c.change(ctx, func(v view) (edit, error) {
		for _, client := range []bool{false, true} {
			r := &Rule{Namespace: namespace, Rule: job.Rule{Match: job.Pattern(match)}, Client: client}
			if _, exists := v.entries[r.entry()]; exists {
				return edit{r.entry(): ""}, nil
			}
		}
		for _, r := range v.snapshot.Rules(namespace) {
			if string(r.Match) == match {
				return nil, ErrInFile
			}
		}
		return nil, fmt.Errorf("rule %s: %w", match, ErrNotFound)
	})
}
