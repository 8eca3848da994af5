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

// A Rule is what holds for queues of a namespace. Rules made at run time come before those of the
// file: names before patterns, longer before shorter ones, then in the order of the alphabet.
type Rule struct {
	Namespace string `json:"-"`
	job.Rule
	CreatedMS int64  `json:"created_ms"`           // Unix ms
	CreatedBy string `json:"created_by,omitempty"` // the name of the admin token
	FromFile  bool   `json:"-"`                    // the file has it; it cannot be deleted at run time
	Unused    string `json:"-"`                    // why it does not count; empty: it does
}

// Validate returns a *partition.FieldError for each value outside its bounds, joined.
func (r *Rule) Validate() error {
	var v partition.Validation
	v.Check(partition.ValidNamespace(r.Namespace), "namespace", r.Namespace, wantName)
	checkCommon(&v, "", r.CreatedBy)
	return errors.Join(v.Err(), r.Rule.Validate())
}

// before orders rules made at run time.
func (r *Rule) before(other *Rule) int {
	wild := func(r *Rule) int { return strings.Count(string(r.Match), "*") }
	return cmp.Or(cmp.Compare(min(1, wild(r)), min(1, wild(other))),
		cmp.Compare(len(other.Match), len(r.Match)),
		cmp.Compare(r.Match, other.Match))
}

func (r *Rule) entry() string { return ruleEntry + r.Namespace + ":" + string(r.Match) }

func decodeRule(name, value string) (*Rule, error) {
	r := &Rule{}
	if err := decodeForm(value, r); err != nil {
		return nil, err
	}
	namespace, match, _ := strings.Cut(name, ":")
	r.Namespace, r.Match = namespace, job.Pattern(match)
	return r, r.Validate()
}

// addRules puts the rules made at run time before those of the file, in the policies too.
func (s *Snapshot) addRules(rules []*Rule, ignore func(name, format string, args ...any)) {
	slices.SortFunc(rules, (*Rule).before)
	for _, r := range rules {
		n, why := s.namespaces[r.Namespace], ""
		switch {
		case n == nil:
			why = "there is no such namespace of kind queue in use"
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
		for _, r := range made {
			ruled.Policy.Rules = append(ruled.Policy.Rules, r.Rule)
		}
		for _, r := range n.Policy.Rules {
			ruled.Policy.Rules = append(ruled.Policy.Rules, r)
			s.rules[name] = append(s.rules[name], &Rule{Namespace: name, Rule: r, FromFile: true})
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

// ChangeRule changes the rule made at run time for exactly one queue, which may say nothing yet: what
// an operator said there stays. by says who does. An error of change is returned as it is. Half of what
// the file leaves of MaxRules is for operators: callers name queues as they like.
func (c *Control) ChangeRule(ctx context.Context, namespace, queue, by string,
	change func(*Rule) error) error {
	return c.change(ctx, func(v view) (edit, error) {
		r := Rule{Namespace: namespace, CreatedBy: by}
		r.Match = job.Pattern(queue)
		if made, exists := v.entries[r.entry()].(*Rule); exists {
			r = *made
		}
		before := r.Rule
		if err := change(&r); err != nil || r.Rule == before {
			return nil, err
		}
		if !r.Says() {
			return edit{r.entry(): ""}, nil
		}
		if err := r.Validate(); err != nil {
			return nil, err
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

// putRule makes a rule, where its namespace has fewer than most, or replaces that of the same pattern.
func (v view) putRule(r Rule, most int) (edit, error) {
	r.CreatedMS = time.Now().UnixMilli()
	_, exists := v.entries[r.entry()]
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

// DeleteRule deletes a rule that was made at run time.
func (c *Control) DeleteRule(ctx context.Context, namespace, match string) error {
	return c.change(ctx, func(v view) (edit, error) {
		r := &Rule{Namespace: namespace, Rule: job.Rule{Match: job.Pattern(match)}}
		if _, exists := v.entries[r.entry()]; exists {
			return edit{r.entry(): ""}, nil
		}
		for _, r := range v.snapshot.Rules(namespace) {
			if string(r.Match) == match {
				return nil, ErrInFile
			}
		}
		return nil, fmt.Errorf("rule %s: %w", match, ErrNotFound)
	})
}
