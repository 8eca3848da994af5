package job

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// Pattern names queues: it is a name, or has a '*' for any characters. One with a '*' matches no
// reply queue (IsReplyQueue), and not the outbox: a rate would hold follow-ups up.
type Pattern string

// Valid reports whether the pattern can match a queue.
func (p Pattern) Valid() bool { return partition.ValidQueue(strings.ReplaceAll(string(p), "*", "-")) }

// Wild reports whether it may match queues that it does not name.
func (p Pattern) Wild() bool { return strings.Contains(string(p), "*") }

// Matches reports whether it stands for a queue.
func (p Pattern) Matches(queue string) bool {
	if !p.Wild() {
		return string(p) == queue
	}
	// Of path's patterns only '*' has characters that a queue's name or a Pattern can have.
	ok, _ := path.Match(string(p), queue)
	return ok && !IsReplyQueue(queue) && queue != outbox
}

// Rule is what holds for some queues, over all processes and workers. A queue has each setting from
// the first rule that matches it and has that setting; Burst comes with Rate. As JSON it is without Match.
type Rule struct {
	Match Pattern `json:"-"`
	// Rate is how many jobs of a queue are claimed in a span of time, by workers and by push.
	// Default: the rule does not say. A queue with Policy.Spread splits it evenly over its
	// shards.
	Rate RateLimit `json:"rate,omitzero"`
	// Burst is how many jobs are claimed at once after a rest: 1 to 10,000; default those of a
	// tenth of a second, 1 at least.
	Burst int `json:"burst,omitempty"`
	// Concurrency is how many jobs of a queue are leased at once, to workers and to push: 1 to
	// MaxConcurrency. Default: the rule does not say, and where none does there is no limit. A lease
	// counts from its claim under the rule until it ends. It is for queues without Policy.Spread.
	Concurrency int `json:"concurrency,omitempty"`
	// Tries is the default of Publish.Tries: 1 to MaxTries. Default: the rule does not say, and
	// where none does it is DefaultTries.
	Tries int `json:"tries,omitempty"`
	// TTR is the default of Claim.TTR, and Delay that of Publish.Delay: 1s to MaxRuleSpan. Default:
	// the rule does not say, and where none does it is a minute, and no delay.
	TTR   Span `json:"ttr,omitempty"`
	Delay Span `json:"delay,omitempty"`
	// KeepTrace is how long the trace of a job is kept after what happened to it last: 1m to
	// MaxRuleSpan. Default: the rule does not say; where none does, there are no traces.
	KeepTrace Span `json:"keep_trace,omitempty"`
	// KeepAcked is how long acked jobs are kept, with the results of their acks: 1s to MaxRuleSpan. Default: the
	// rule does not say; where none does, they are gone. A namespace keeps Policy.MaxJobs at most, the newest,
	// and a queue four times as many as it leaves of those to others.
	KeepAcked Span `json:"keep_acked,omitempty"`
}

// MaxRuleSpan is the upper bound of the times of a Rule.
const MaxRuleSpan = 30 * 24 * time.Hour

// Span is a time as a rule says it, such as 24h. The zero Span says nothing.
type Span time.Duration

// UnmarshalText reads a time with its unit. The empty text says nothing.
func (d *Span) UnmarshalText(text []byte) error {
	*d = 0
	if len(text) == 0 {
		return nil
	}
	span, err := time.ParseDuration(string(text))
	if err != nil || span == 0 {
		return fmt.Errorf("%.40q is not a time that a rule can say: write one such as 10m or 24h", text)
	}
	*d = Span(span)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (d Span) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is the time as it is written, "" where it says nothing.
func (d Span) String() string {
	if d == 0 {
		return ""
	}
	// Go prints 3m0s and 24h0m0s; the documentation says 3m and 24h.
	text := time.Duration(d).String()
	if short, cut := strings.CutSuffix(text, "m0s"); cut {
		text = short + "m"
	}
	if short, cut := strings.CutSuffix(text, "h0m"); cut {
		text = short + "h"
	}
	return text
}

// within reports whether it says nothing, or least to MaxRuleSpan.
func (d Span) within(least time.Duration) bool {
	return d == 0 || d >= Span(least) && d <= Span(MaxRuleSpan)
}

// RateLimit is a rate, up to 100,000 jobs a second, or none: no limit, whatever later rules say.
// The zero RateLimit says nothing.
type RateLimit struct {
	partition.Rate
	None bool
}

// UnmarshalText reads a rate, or none. The empty text says nothing.
func (r *RateLimit) UnmarshalText(text []byte) error {
	if *r = (RateLimit{None: string(text) == "none"}); r.None {
		return nil
	}
	if err := r.Rate.UnmarshalText(text); err != nil || r.Rate.Count > 0 && r.pause() < minRatePause {
		return fmt.Errorf("%.40q is not what a rule can say: write %s", text, wantRate)
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (r RateLimit) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String is the rate as it is written.
func (r RateLimit) String() string {
	if r.None {
		return "none"
	}
	return r.Rate.String()
}

// IsZero reports whether it says nothing.
func (r RateLimit) IsZero() bool { return r == RateLimit{} }

// pause is the time between two jobs, in ns.
func (r RateLimit) pause() int64 { return int64(r.Per) / max(1, r.Count) }

// MaxRules is how many rules a namespace may have: a claim walks them.
const MaxRules = 256

// Validate returns a *partition.FieldError for each unusable setting, joined.
func (r Rule) Validate() error {
	var v partition.Validation
	r.check(&v, "")
	return v.Err()
}

// check checks the settings, whose names begin with at.
func (r Rule) check(v *partition.Validation, at string) {
	v.Check(r.Match.Valid(), at+"match", string(r.Match),
		"the name of a queue, in which each * stands for any characters")
	v.Check(r.Rate.Count == 0 || r.Rate.String() != "" && r.Rate.pause() >= minRatePause &&
		!r.Rate.None, at+"rate",
		r.Rate.Count, wantRate)
	v.Check(r.Burst == 0 || r.Burst >= 1 && r.Burst <= 10_000 && r.Rate.Count > 0, at+"burst", r.Burst,
		"1 to 10000 jobs, beside a rate")
	v.Check(r.Concurrency == 0 || r.Concurrency >= 1 && r.Concurrency <= MaxConcurrency, at+"concurrency",
		r.Concurrency, "1 to 10000 leases")
	v.Check(r.Tries == 0 || r.Tries >= 1 && r.Tries <= MaxTries, at+"tries", r.Tries, "1 to 65535")
	v.Check(r.TTR.within(time.Second), at+"ttr", r.TTR, wantSpan)
	v.Check(r.Delay.within(time.Second), at+"delay", r.Delay, wantSpan)
	v.Check(r.KeepTrace.within(time.Minute), at+"keep_trace", r.KeepTrace, wantKeep)
	v.Check(r.KeepAcked.within(time.Second), at+"keep_acked", r.KeepAcked, wantSpan)
	v.Check(r.Says(), at+"match", string(r.Match),
		"rate, concurrency, tries, ttr, delay, keep_trace or keep_acked beside it. To lift a limit, delete the rule or make it without the limit")
}

// Says reports whether the rule has any setting.
func (r Rule) Says() bool {
	return !r.Rate.IsZero() || r.Concurrency != 0 || r.Tries > 0 || r.TTR > 0 || r.Delay > 0 || r.KeepTrace > 0 ||
		r.KeepAcked > 0
}

// minRatePause is that of the highest rate, in ns.
const minRatePause = 10_000

const (
	wantKeep = "1m to 720h, such as 24h"
	wantSpan = "1s to 720h, such as 10m"
)

const wantRate = "a rate such as 50/s, 1000/min or 20/h, at most 100000/s, or none"

// DefaultTries is how often a job is claimed at most where neither its publish nor a rule says. With the waits of
// workers and of push, a random time of up to 1 s, doubled to 10 min, that outlives an outage of an hour.
const DefaultTries = 25

// rule is the first that matches a queue and has a setting; a rule that says nothing where none
// does.
func (n *Namespace) rule(queue string, has func(*Rule) bool) *Rule {
	for i := range n.Policy.Rules {
		if r := &n.Policy.Rules[i]; has(r) && r.Match.Matches(queue) {
			return r
		}
	}
	return &noRule
}

var noRule Rule

// RuledTries is what rules say of Publish.Tries for a queue; 0: none does.
func (n *Namespace) RuledTries(queue string) int {
	return n.rule(queue, func(r *Rule) bool { return r.Tries > 0 }).Tries
}

// Tries is the default of Publish.Tries for a queue.
func (n *Namespace) Tries(queue string) int { return cmp.Or(n.RuledTries(queue), DefaultTries) }

// Delay is the default of Publish.Delay for a queue.
func (n *Namespace) Delay(queue string) time.Duration {
	return time.Duration(n.rule(queue, func(r *Rule) bool { return r.Delay > 0 }).Delay)
}

// Lease is the default of Claim.TTR for a claim from queues: the longest of theirs. A queue of
// which no rule says any has otherwise.
func (n *Namespace) Lease(otherwise time.Duration, queues ...string) (longest time.Duration) {
	for _, queue := range queues {
		r := n.rule(queue, func(r *Rule) bool { return r.TTR > 0 })
		longest = max(longest, cmp.Or(time.Duration(r.TTR), n.TTR, otherwise))
	}
	return longest
}

// keepTrace is how long traces of a queue's jobs are kept; 0: it has none.
func (n *Namespace) keepTrace(queue string) time.Duration {
	return time.Duration(n.rule(queue, func(r *Rule) bool { return r.KeepTrace > 0 }).KeepTrace)
}

// keepAcked is the first rule that keeps acked jobs of a queue; one that does not where none does.
func (n *Namespace) keepAcked(queue string) *Rule {
	return n.rule(queue, func(r *Rule) bool { return r.KeepAcked > 0 })
}

// MaxConcurrency is the upper bound of Rule.Concurrency.
const MaxConcurrency = 10_000

// concurrency is the first rule for a queue that bounds its leases; one that does not where none does.
func (n *Namespace) concurrency(queue string) *Rule {
	return n.rule(queue, func(r *Rule) bool { return r.Concurrency > 0 })
}

// A limit is what holds back the claims of a queue, as a shard keeps it.
type limit struct {
	pause, burst int64 // of its rate: ns between two jobs, jobs; 0: none
	leases       int   // 0: any
}

// SameLimit reports whether rules hold a queue back as those of another policy of the namespace did.
func (n *Namespace) SameLimit(other *Namespace, queue string) bool {
	return n.limit(queue) == other.limit(queue)
}

// limit is that of a queue in each of its shards; the zero limit is none.
func (n *Namespace) limit(queue string) (l limit) {
	if len(n.Policy.Rules) == 0 {
		return l
	}
	l.leases = n.concurrency(queue).Concurrency
	r := n.rule(queue, func(r *Rule) bool { return !r.Rate.IsZero() })
	if r.Rate.IsZero() || r.Rate.None {
		return l
	}
	shards := int64(len(n.Shards(queue)))
	burst := cmp.Or(int64(r.Burst), int64(time.Second/10)/r.Rate.pause())
	l.pause, l.burst = r.Rate.pause()*shards, max(1, burst/shards)
	return l
}
