package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/drain/push"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// Queues holds the settings of a namespace of `kind: queue`. They come from the file
// only, and nothing is inherited: a queue has no capacity and no age.
type Queues struct {
	Pool      string        `name:"pool"`
	Shards    int           `name:"shards"`
	MaxJobs   int           `name:"max-jobs"`
	MaxQueues int           `name:"max-queues"`
	MaxKeys   int           `name:"max-keys"`
	Dead      string        `name:"dead"` // keep or drop
	ReplyTTL  time.Duration `name:"reply-ttl"`

	Spread map[string]int // queue → shards
	Tokens []control.Token
	Push   []Push
}

// Push is one rule that hands the jobs of queues to a sink.
type Push struct {
	Match       string       `name:"match"` // names of queues, with * for any text
	Sink        string       `name:"sink"`  // a key of the sinks of the file
	Concurrency int          `name:"concurrency"`
	Rate        ingest.Quota `name:"rate"`
	Batch       int          `name:"batch"`
	Backoff     Backoff      `name:"backoff"`
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
	return Setting{"", &b.Base}.text() + ".." + Setting{"", &b.Max}.text()
}

// queueKeys are the keys of a namespace of kind queue.
func queueKeys() []string {
	return append(KeysOf(SettingsOf(&Queues{})), "kind", "spread", "tokens", "push")
}

// kindOfNamespace is the value of the key kind, buffer where there is none.
func (r *fileReader) kindOfNamespace(node *yaml.Node, path string) string {
	node = target(node)
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value != "kind" {
			continue
		}
		switch kind := node.Content[i+1]; kind.Value {
		case "buffer", "queue":
			return kind.Value
		default:
			r.fail(kind, path+"kind", fmt.Sprintf("%q is neither buffer nor queue", kind.Value))
		}
	}
	return "buffer"
}

// queues reads a namespace of kind queue.
func (r *fileReader) queues(node *yaml.Node, path string) Queues {
	q := defaultQueues()
	settings := SettingsOf(&q)
	r.mapping(node, path, queueKeys(), func(key string, value *yaml.Node) {
		switch key {
		case "kind":
		case "spread":
			q.Spread = r.spread(value, path+key)
		case "tokens":
			q.Tokens = r.queueTokens(value, path+key)
		case "push":
			for i, item := range r.items(value, path+key) {
				q.Push = append(q.Push, r.push(item, fmt.Sprintf("%s%s[%d]", path, key, i)))
			}
			r.config.origins[path+key] = r.position(value)
		default:
			r.setOwn(settings, key, path, value)
		}
	})
	for _, s := range settings {
		if _, given := r.config.origins[path+s.Key()]; !given {
			r.config.origins[path+s.Key()] = "" // not inherited from the setting of that name at the top
		}
	}
	return q
}

// setOwn is set for keys that no flag and no other level has.
func (r *fileReader) setOwn(settings []Setting, key, path string, value *yaml.Node) {
	s := settings[slices.IndexFunc(settings, func(s Setting) bool { return s.Key() == key })]
	if err := s.setNode(value); err != nil {
		r.fail(value, path+key, err.Error())
	}
	r.config.origins[path+key] = r.position(value)
}

// spread reads the map of queues that lie on several shards.
func (r *fileReader) spread(node *yaml.Node, path string) map[string]int {
	spread := map[string]int{}
	r.mapping(node, path+".", nil, func(queue string, value *yaml.Node) {
		var shards int
		if err := (Setting{"spread", &shards}).setNode(value); err != nil {
			r.fail(value, path+"."+queue, err.Error())
		}
		spread[queue] = shards
		r.config.origins[path+"."+queue] = r.position(value)
	})
	r.config.origins[path] = r.position(node)
	return spread
}

func (r *fileReader) push(node *yaml.Node, path string) Push {
	p := defaultPush()
	settings := SettingsOf(&p)
	for _, s := range settings {
		r.config.origins[path+"."+s.Key()] = r.position(node)
	}
	r.mapping(node, path+".", KeysOf(settings), func(key string, value *yaml.Node) {
		r.setOwn(settings, key, path+".", value)
	})
	return p
}

// sinkURLs reads the sinks that push rules name.
func (r *fileReader) sinkURLs(node *yaml.Node) map[string]string {
	sinks := map[string]string{}
	r.mapping(node, "sinks.", nil, func(name string, value *yaml.Node) {
		if !partition.ValidNamespace(name) {
			r.fail(value, "sinks."+name, "not a name: write 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
			return
		}
		sinks[name] = r.text(value, "sinks."+name)
		r.config.origins["sinks."+name] = r.position(value)
	})
	return sinks
}

// queueNames returns the namespaces of kind queue in alphabetical order.
func (c *Config) QueueNames() []string { return slices.Sorted(maps.Keys(c.Queues)) }

// allNames returns the namespaces of both kinds in alphabetical order.
func (c *Config) AllNames() []string {
	return slices.Sorted(slices.Values(slices.Concat(c.Names(), c.QueueNames())))
}

// validateQueues returns an error for each setting of a queue that cannot work.
func (c *Config) validateQueues() (errs []error) {
	for _, name := range c.QueueNames() {
		q, at := c.Queues[name], "namespaces."+name+"."
		fail := func(err error) {
			for _, err := range Split(err) {
				var field *partition.FieldError
				if errors.As(err, &field) {
					err = c.FieldError(at+field.Field, &partition.FieldError{Field: at + field.Field, Value: field.Value, Want: field.Want})
				}
				errs = append(errs, err)
			}
		}
		if q.Dead != "keep" && q.Dead != "drop" {
			fail(&partition.FieldError{Field: "dead", Value: q.Dead, Want: "keep or drop"})
		}
		fail(q.Policy().Validate())
		for i, p := range q.Push {
			key := fmt.Sprintf("push[%d].", i)
			if _, known := c.PushSinks[p.Sink]; !known {
				fail(&partition.FieldError{Field: key + "sink", Value: p.Sink, Want: "a name that sinks has at the top of the file"})
				continue
			}
			for _, err := range Split(p.Rule().Validate()) {
				var field *partition.FieldError
				if errors.As(err, &field) {
					err = &partition.FieldError{Field: key + field.Field, Value: field.Value, Want: field.Want}
				}
				fail(err)
			}
		}
	}
	return errs
}

// appendQueues adds the namespaces of kind queue in the form of the file.
func (c *Config) appendQueues(spaces *yaml.Node) {
	for _, name := range c.QueueNames() {
		q, at := c.Queues[name], "namespaces."+name+"."
		node := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{plain("kind"), plain("queue")}}
		for _, s := range SettingsOf(&q) {
			if s.text() != "" {
				c.appendSetting(node, s, at+s.Key())
			}
		}
		add := c.adder(node, at)
		if len(q.Spread) > 0 {
			spread := &yaml.Node{Kind: yaml.MappingNode}
			for _, queue := range slices.Sorted(maps.Keys(q.Spread)) {
				spread.Content = append(spread.Content, plain(queue), plain(fmt.Sprint(q.Spread[queue])))
			}
			add("spread", spread)
		}
		if len(q.Tokens) > 0 {
			add("tokens", queueTokensNode(q.Tokens))
		}
		rules := &yaml.Node{Kind: yaml.SequenceNode}
		for _, p := range q.Push {
			rule := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
			for _, s := range SettingsOf(&p) {
				if s.text() != "" && s.text() != "none" {
					value := plain(s.text())
					if _, isText := s.value.(*string); isText {
						value.SetString(s.text())
					}
					rule.Content = append(rule.Content, plain(s.Key()), value)
				}
			}
			rules.Content = append(rules.Content, rule)
		}
		if len(q.Push) > 0 {
			add("push", rules)
		}
		spaces.Content = append(spaces.Content, plain(name), node)
	}
}

// appendPushSinks adds the sinks of push rules in the form of the file.
func (c *Config) appendPushSinks(root *yaml.Node) {
	if len(c.PushSinks) == 0 {
		return
	}
	sinks := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range slices.Sorted(maps.Keys(c.PushSinks)) {
		value := textNode(redactSinks(c.PushSinks[name]))
		value.LineComment = c.origins["sinks."+name]
		sinks.Content = append(sinks.Content, plain(name), value)
	}
	root.Content = append(root.Content, plain("sinks"), sinks)
}

// queueChanges are the differences of the namespaces of kind queue. A namespace that
// changes its kind is removed and added, which the store refuses while it has data.
func queueChanges(before, after *Config) []Change {
	return mapChanges("namespaces.", before.Queues, after.Queues, func(at, _ string, old, now Queues) []Change {
		return append(settingChanges(at+".", &old, &now, nil), fieldChanges(at+".",
			field{"spread", old.Spread, now.Spread},
			field{"tokens", old.Tokens, now.Tokens},
			field{"push", old.Push, now.Push},
		)...)
	})
}

// defaultQueues are the defaults of a namespace of kind queue.
func defaultQueues() Queues {
	p := job.DefaultPolicy()
	return Queues{Shards: p.Shards, MaxJobs: int(p.MaxJobs), MaxQueues: int(p.MaxQueues), MaxKeys: int(p.MaxKeys), Dead: "keep", ReplyTTL: p.ReplyTTL}
}

// defaultPush are the defaults of a push rule.
func defaultPush() Push {
	return Push{Match: "*", Concurrency: 8, Batch: 1, Backoff: Backoff{time.Second, 10 * time.Minute}}
}

// Policy is the part of the settings that the store needs.
func (q Queues) Policy() job.Policy {
	return job.Policy{
		Shards: q.Shards, Spread: q.Spread, MaxJobs: int64(q.MaxJobs), MaxQueues: int64(q.MaxQueues), MaxKeys: int64(q.MaxKeys),
		DropDead: q.Dead == "drop", ReplyTTL: q.ReplyTTL,
	}
}

// rule is the form that the drain takes.
func (p Push) Rule() push.Rule {
	r := push.Rule{Match: p.Match, Sink: p.Sink, Concurrency: p.Concurrency, Batch: p.Batch, BackoffBase: p.Backoff.Base, BackoffMax: p.Backoff.Max}
	if p.Rate.Count > 0 {
		r.Rate = float64(p.Rate.Count) / p.Rate.Per.Seconds()
	}
	return r
}
