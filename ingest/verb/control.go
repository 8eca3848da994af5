package verb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// Control is what verbs need that change namespaces, tokens and rules at run time. What they ask is
// the body of a POST, with the JSON keys of its struct: a hash, or what somebody takes for one, is in no URL.
type Control struct {
	*control.Control
	Of   *control.Namespace // that the path names
	Jobs Queues             // of it; nil: it is not in use
	By   string             // who asks

	// What the audit trail says, once the verb acts.
	Namespace, Detail string
	Entries           *int64
}

// Queues are the jobs of one namespace.
type Queues interface {
	// Jobs is how many there are, in every state.
	Jobs(ctx context.Context) (int64, error)
	// Schedules is how many it has.
	Schedules(ctx context.Context) (int64, error)
	// Purge deletes all jobs.
	Purge(ctx context.Context) (deleted int64, err error)
}

// controls is of, of a verb of Control. none is what the command says of an empty list.
func controls[Q, A any](name, role, route, command, help, text, none string, do func(context.Context, *Control, *Q) (A, error)) *Row {
	r := New(name, role, route, command, help, text, func(ctx context.Context, c *Call, q *Q) (A, error) { return do(ctx, c.Control, q) })
	r.None, r.Root, r.JSON = none, true, true
	return r
}

type inControl struct {
	Namespace string `arg:"" json:"-" help:"The namespace, of kind queue."`
}

// made is where something comes from.
type made struct {
	CreatedAtMS int64  `json:"created_at_ms" help:"0: the file has it."`
	CreatedBy   string `json:"created_by" help:"A token of this port. After \"SQS client\", one whose client said it."`
	FromFile    bool   `json:"from_file"`
}

// rule is a job.Rule. What is zero or empty is not said.
type rule struct {
	Match       job.Pattern   `arg:"" json:"match" help:"A queue, or a pattern in which each * stands for any characters."`
	Rate        job.RateLimit `json:"rate" placeholder:"RATE" help:"Jobs that are claimed, over all processes and workers: 50/s, 1000/min, 20/h, or none."`
	Burst       int           `json:"burst" placeholder:"N" bounds:"1..10000" help:"Jobs at once after a rest. Without it, those of a tenth of a second, 1 at least."`
	Concurrency int           `json:"concurrency" placeholder:"N" bounds:"1..10000" help:"Jobs that are leased at once, over all processes and workers: 1 to 10000."`
	Tries       int           `json:"tries" placeholder:"N" bounds:"1..65535" help:"How often a job is tried, where its publish does not say."`
	TTR         job.Span      `json:"ttr" placeholder:"TIME" help:"How long a claim leases a job, where it does not say: such as 10m."`
	Delay       job.Span      `json:"delay" placeholder:"TIME" help:"How long a job waits until it is ready, where its publish does not say: such as 5s."`
	KeepTrace   job.Span      `json:"keep_trace" placeholder:"TIME" help:"How long what happened to a job is kept, after it happened: such as 24h."`
	KeepAcked   job.Span      `json:"keep_acked" placeholder:"TIME" help:"How long acked jobs are kept, with the results of their acks: such as 1h."`
}

type madeRule struct {
	rule
	made
	Unused string `json:"unused,omitempty" help:"Why it does not count."`
}

type ruleList struct {
	Rules []madeRule `json:"rules"`
}

func rules(_ context.Context, c *Control, _ *inControl) (ruleList, error) {
	now, list := c.Snapshot(), []madeRule{}
	for _, r := range slices.Concat(now.Rules(c.Namespace), now.UnusedRules(c.Namespace)) {
		by := r.CreatedBy
		if r.Client {
			by = "SQS client " + by
		}
		list = append(list, madeRule{rule(r.Rule), made{r.CreatedMS, by, r.FromFile}, r.Unused})
	}
	return ruleList{list}, nil
}

type putRule struct {
	inControl
	rule
}

type rulePut struct {
	rule
	Replaced json.RawMessage `json:"replaced,omitempty" help:"What the rule of the same pattern said, where that is something else."`
}

func setRule(ctx context.Context, c *Control, q *putRule) (rulePut, error) {
	r := control.Rule{Namespace: c.Namespace, Rule: job.Rule(q.rule), CreatedBy: c.By}
	says, _ := json.Marshal(r.Rule) // strings and numbers cannot fail
	c.Detail = fmt.Sprintf("match %s %s", q.Match, says)
	answer := rulePut{rule: q.rule}
	for _, old := range c.Snapshot().Rules(c.Namespace) {
		if old.Match == r.Match && !old.FromFile && !old.Client && old.Rule != r.Rule {
			answer.Replaced, _ = json.Marshal(old.Rule)
		}
	}
	return answer, c.PutRule(ctx, r)
}

type ofRule struct {
	inControl
	Match string `arg:"" json:"match" help:"Its pattern, as it was set."`
}

type deletedRule struct {
	Match string `json:"match"`
}

func deleteRule(ctx context.Context, c *Control, q *ofRule) (deletedRule, error) {
	c.Detail = fmt.Sprintf("match %.255s", q.Match)
	return deletedRule{q.Match}, c.DeleteRule(ctx, c.Namespace, q.Match)
}

const (
	admitted  = "token ${token}|name ${name}|hash ${hash}"
	forgotten = "${name}: revoked; no process admits it a second from now"
)

// Controls are the verbs of what is made at run time. Their paths are below /api/v1.
var Controls = []*Row{
	controls("queue_namespaces", "viewer", "GET /control/namespaces", "ns ls",
		"List the namespaces of kind queue, with those that the file names.",
		"namespaces -> NAMESPACE ${namespace}|POOL ${pool}|>SHARDS ${shards}|>MAX JOBS ${max_jobs}|>MAX QUEUES ${max_queues}|"+
			"DEAD ${dead}|>TOKENS ${tokens}|MADE ${made}|BY ${created_by or }|DESCRIPTION ${description or }",
		"there is no namespace of kind queue; spillway ls --namespaces lists those of kind buffer", namespaces),
	controls("create_namespace", "admin", "POST /control/namespaces", "ns create",
		"Make a namespace. Every process serves it within a second.",
		"${namespace}: made; nobody can use it before it has a token: spillway token create ${namespace}", "", createNamespace),
	controls("delete_namespace", "admin", "POST /control/namespaces/{namespace}/delete", "ns rm",
		"Delete a namespace and its tokens. One with jobs needs --force, which counts them and asks.",
		"${namespace}: deleted, with ${jobs job}", "", removeNamespace).Confirms("delete them, those that arrive meanwhile, and the namespace with its tokens", ""),
	controls("tokens", "viewer", "GET /control/namespaces/{namespace}/tokens", "token ls",
		"List the tokens of a namespace of kind queue.",
		"tokens -> NAME ${name}|PRODUCE ${produce}|CONSUME ${consume}|REQUESTS ${requests}|STORED AS ${stored}|MADE ${made}|"+
			"BY ${created_by or }|DESCRIPTION ${description or }", "${namespace} has no tokens", tokens),
	controls("create_token", "admin", "POST /control/namespaces/{namespace}/tokens", "token create",
		"Make a token of a namespace of kind queue in a running service. Every process admits it within a second.", admitted, "", makeToken),
	controls("revoke_token", "admin", "POST /control/namespaces/{namespace}/tokens/revoke", "token revoke",
		"End a token that was made at run time. No process admits it a second later.", forgotten, "", revokeToken),
	controls("limit_token", "admin", "POST /control/namespaces/{namespace}/tokens/limit", "",
		"Set or end the limit of requests of a token that was made at run time.", "", "", setLimit),
	controls("rules", "viewer", "GET /control/namespaces/{namespace}/rules", "rules ls",
		"List the rules of a namespace in the order in which they count, with those of the file.",
		"rules -> MATCH ${match}|>RATE ${rate}|>BURST ${burst or -}|>LEASES ${concurrency or -}|>TRIES ${tries or -}|>TTR ${ttr}|"+
			">DELAY ${delay}|>TRACE ${keep_trace}|>KEPT ${keep_acked}|MADE ${made}|BY ${created_by or }",
		"${namespace} has no rules: nothing limits its queues", rules),
	controls("set_rule", "operator", "POST /control/namespaces/{namespace}/rules", "rules set",
		"Make a rule, or replace that of the same pattern as a whole. Every process follows it within a second.",
		"${match}: set; every process follows it a second from now", "", setRule),
	controls("delete_rule", "operator", "POST /control/namespaces/{namespace}/rules/delete", "rules rm",
		"Delete a rule that was made at run time.", "${match}: deleted", "", deleteRule),
	controls("admin_tokens", "admin", "GET /control/admin-tokens", "admin-token ls", "List the tokens of the admin port.",
		"admin_tokens -> NAME ${name}|ROLE ${role}|MADE ${made}|BY ${created_by or }",
		"the admin port has no tokens: everybody who reaches it may do everything", admins),
	controls("create_admin_token", "admin", "POST /control/admin-tokens", "admin-token create",
		"Make a token of the admin port, with a role.", admitted, "", makeAdmin),
	controls("revoke_admin_token", "admin", "POST /control/admin-tokens/revoke", "admin-token revoke",
		"End a token of the admin port.", forgotten, "", revokeAdmin),
}
