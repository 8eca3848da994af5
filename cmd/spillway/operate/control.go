package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// Ns has the commands for namespaces of kind queue that are made at run time.
type Ns struct {
	Create NsCreate `cmd:"" help:"Make a namespace. Every process serves it within a second."`
	Ls     NsLs     `cmd:"" help:"List the namespaces of kind queue, with those that the file names."`
	Rm     NsRm     `cmd:"" help:"Delete a namespace and its tokens. One with jobs needs --force, which counts them and asks."`
}

// NsCreate makes a namespace.
type NsCreate struct {
	command `embed:""`

	Name         string         `arg:"" help:"Its name."`
	Description  string         `placeholder:"TEXT" help:"What it is for, at most 512 bytes."`
	Pool         string         `default:"default" help:"Pool of the file that holds its jobs, for ever."`
	Shards       int            `default:"1" help:"Groups of keys, each in one Redis Cluster slot."`
	Spread       map[string]int `placeholder:"QUEUE=SHARDS" help:"Queues whose jobs lie on several shards, such as bulk=4."`
	MaxJobs      int64          `default:"10000000" help:"Jobs that it may hold, dead ones included."`
	MaxQueues    int64          `default:"10000" help:"Queues that may have jobs."`
	MaxSchedules int64          `default:"100000" help:"Schedules that it may have; 0: none."`
	Dead         string         `enum:"keep,drop" default:"keep" help:"What becomes of a job whose tries are used up: keep it as a dead letter, or drop it."`
	ReplyTTL     time.Duration  `default:"10m" help:"How long jobs of reply queues live at most."`
}

const controlNamespaces = "/api/v1/control/namespaces"

// Run makes it.
func (c *NsCreate) Run(ctx context.Context, s Streams) error {
	var made struct{}
	raw, err := c.call(controlNamespaces).check(validNamespace(c.Name)).post(ctx, admin.CreateNamespace{
		Namespace:    c.Name,
		Pool:         c.Pool,
		Description:  c.Description,
		Shards:       c.Shards,
		Spread:       c.Spread,
		MaxJobs:      c.MaxJobs,
		MaxQueues:    c.MaxQueues,
		MaxSchedules: c.MaxSchedules,
		Dead:         c.Dead,
		ReplyTTLMS:   c.ReplyTTL.Milliseconds(),
	}, &made)
	if err != nil {
		return err
	}
	return c.print(s, raw, fmt.Sprintf("%s: made; nobody can use it before it has a token: spillway token create %s", c.Name, c.Name))
}

// NsLs lists.
type NsLs struct {
	command `embed:""`
}

// Run prints the list.
func (c *NsLs) Run(ctx context.Context, s Streams) error {
	var answer struct {
		Namespaces []admin.QueueNamespace `json:"namespaces"`
	}
	if done, err := c.read(ctx, s, c.call(controlNamespaces), &answer); done {
		return err
	}
	if len(answer.Namespaces) == 0 {
		return s.tell("there is no namespace of kind queue; spillway ls --namespaces lists those of kind buffer")
	}
	t := newTable("NAMESPACE", "POOL", ">SHARDS", ">MAX JOBS", ">MAX QUEUES", "DEAD", ">TOKENS", "MADE",
		"BY", "DESCRIPTION")
	for _, n := range answer.Namespaces {
		t.add(n.Namespace, n.Pool, digits(n.Shards), digits(n.MaxJobs), digits(n.MaxQueues), n.Dead,
			digits(n.Tokens), made(n.FromFile, n.CreatedAtMS), n.CreatedBy, n.Description)
	}
	return t.print(s.Out)
}

// made says when something was made at run time.
func made(fromFile bool, atMS int64) string {
	if fromFile {
		return "in the file"
	}
	return time.UnixMilli(atMS).UTC().Format("2006-01-02")
}

// NsRm deletes.
type NsRm struct {
	acting `embed:""`

	Name  string `arg:"" help:"Its name."`
	Force bool   `help:"Delete its jobs, too, for good. They count as deleted."`
}

// Run counts its jobs, asks if there are any, and deletes it.
func (c *NsRm) Run(ctx context.Context, s Streams) error {
	var found, done admin.DeletedNamespace
	call := c.control(c.Name).at("/delete")
	raw, err := call.post(ctx, map[string]bool{"force": c.Force, "dry_run": true}, &found)
	if err != nil {
		return err
	}
	_ = s.tell("%s: found %s", c.Name, human.Some(found.Jobs, "job", "jobs"))
	if c.DryRun {
		return c.print(s, raw, c.Name+": nothing was changed")
	}
	if found.Jobs > 0 {
		if err := c.ask(ctx, s, found.Jobs, "delete them, those that arrive meanwhile, and the namespace with its tokens"); err != nil {
			return err
		}
	}
	if raw, err = call.post(ctx, map[string]bool{"force": c.Force}, &done); err != nil {
		return err
	}
	return c.print(s, raw, fmt.Sprintf("%s: deleted, with %s", c.Name, human.Some(done.Jobs, "job", "jobs")))
}

// TokenCreate makes a token of a namespace of kind queue.
type TokenCreate struct {
	command `embed:""`

	Namespace   string `arg:"" help:"The namespace, of kind queue."`
	Name        string `placeholder:"NAME" help:"Name that stands for it in lists and metrics. Without one, the first 8 digits of its hash."`
	Description string `placeholder:"TEXT" help:"Who has it, at most 512 bytes."`
	Produce     string `placeholder:"RATE" help:"Jobs that it may publish, over all processes: 5000/s, 1000/min or 20/h. Without one, no limit."`
	Consume     string `placeholder:"RATE" help:"Jobs that it may claim, over all processes. Without one, no limit."`
	Hash        string `placeholder:"HASH" help:"Hash of a token that only you know: sha256:…, as printed by spillway token. Without one, the service makes a token."`
}

// printToken shows a token. It goes to Out alone, so that a script can keep it.
func (c *command) printToken(s Streams, t admin.CreatedToken, raw json.RawMessage) error {
	text := fmt.Sprintf("name   %s\nhash   %s", escape(t.Name), escape(t.Hash))
	if t.Token != "" {
		text = "token  " + t.Token + "\n" + text
	}
	if err := c.print(s, raw, text); err != nil || c.Output == "json" || t.Token == "" {
		return err
	}
	return s.tell("The client sends the token (Authorization: Bearer). It is not shown again.")
}

// Run makes it.
func (c *TokenCreate) Run(ctx context.Context, s Streams) error {
	return c.create(ctx, s, c.control(c.Namespace).at("/tokens"), map[string]string{
		"name": c.Name, "description": c.Description, "produce": c.Produce, "consume": c.Consume, "hash": c.Hash,
	})
}

// create makes a token.
func (c *command) create(ctx context.Context, s Streams, call *call, body map[string]string) error {
	var made admin.CreatedToken
	raw, err := call.check(checkHash(body["hash"])).post(ctx, body, &made)
	if err != nil {
		return err
	}
	return c.printToken(s, made, raw)
}

// checkHash keeps a token that was given for its hash from being sent.
func checkHash(hash string) error {
	if hash != "" && !strings.HasPrefix(hash, "sha256:") {
		return misuse("hash: want sha256: and 64 hex digits, as printed by spillway token, never the token itself")
	}
	return nil
}

// TokenLs lists the tokens of a namespace.
type TokenLs struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
}

// Run prints the list.
func (c *TokenLs) Run(ctx context.Context, s Streams) error {
	var answer struct {
		Tokens []admin.QueueToken `json:"tokens"`
	}
	if done, err := c.read(ctx, s, c.control(c.Namespace).at("/tokens"), &answer); done {
		return err
	}
	if len(answer.Tokens) == 0 {
		return s.tell("%s has no tokens", c.Namespace)
	}
	t := newTable("NAME", "PRODUCE", "CONSUME", "REQUESTS", "STORED AS", "MADE", "BY", "DESCRIPTION")
	for _, k := range answer.Tokens {
		limit, stored := "-", "hash"
		if l := k.Limit; l != nil {
			limit = fmt.Sprintf("read %d, write %d in %ds", l.Read, l.Write, l.Interval)
		}
		if k.Readable {
			stored = "text"
		}
		t.add(
			k.Name,
			cmp.Or(k.Produce.String(), "-"),
			cmp.Or(k.Consume.String(), "-"),
			limit,
			stored,
			made(k.FromFile, k.CreatedAtMS),
			k.CreatedBy,
			k.Description,
		)
	}
	return t.print(s.Out)
}

// TokenRevoke ends a token.
type TokenRevoke struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
	Token     string `arg:"" help:"Name or hash of the token."`
}

// Run ends it.
func (c *TokenRevoke) Run(ctx context.Context, s Streams) error {
	return c.revoke(ctx, s, c.control(c.Namespace).at("/tokens/revoke"), "token", c.Token)
}

// revoke ends what a route names by a key.
func (c *command) revoke(ctx context.Context, s Streams, call *call, key, which string) error {
	var done struct {
		Name string `json:"name"`
	}
	raw, err := call.post(ctx, map[string]string{key: which}, &done)
	if err != nil {
		return err
	}
	return c.print(s, raw, escape(done.Name)+": revoked; no process admits it a second from now")
}

// AdminToken has the commands for tokens of the admin port that are made at run time.
type AdminToken struct {
	Create AdminTokenCreate `cmd:"" help:"Make a token of the admin port, with a role."`
	Ls     AdminTokenLs     `cmd:"" help:"List the tokens of the admin port."`
	Revoke AdminTokenRevoke `cmd:"" help:"End a token of the admin port."`
}

// AdminTokenCreate makes one.
type AdminTokenCreate struct {
	command `embed:""`

	Name string `arg:"" help:"Name that stands for it in the audit trail."`
	Role string `enum:"viewer,operator,admin" required:"" help:"What it may do: viewer reads; operator also pauses, replays and sees payloads; admin does everything."`
	Hash string `placeholder:"HASH" help:"Hash of a token that only you know: sha256:…, as printed by spillway token. Without one, the service makes a token."`
}

const adminPeople = "/api/v1/control/admin-tokens"

// Run makes it.
func (c *AdminTokenCreate) Run(ctx context.Context, s Streams) error {
	return c.create(ctx, s, c.call(adminPeople),
		map[string]string{"name": c.Name, "role": c.Role, "hash": c.Hash})
}

// AdminTokenLs lists them.
type AdminTokenLs struct {
	command `embed:""`
}

// Run prints the list.
func (c *AdminTokenLs) Run(ctx context.Context, s Streams) error {
	var answer struct {
		Tokens []admin.AdminToken `json:"admin_tokens"`
	}
	if done, err := c.read(ctx, s, c.call(adminPeople), &answer); done {
		return err
	}
	if len(answer.Tokens) == 0 {
		return s.tell("the admin port has no tokens: everybody who reaches it may do everything")
	}
	t := newTable("NAME", "ROLE", "MADE", "BY")
	for _, a := range answer.Tokens {
		t.add(a.Name, a.Role, made(a.FromFile, a.CreatedAtMS), a.CreatedBy)
	}
	return t.print(s.Out)
}

// AdminTokenRevoke ends one.
type AdminTokenRevoke struct {
	command `embed:""`

	Name string `arg:"" help:"Its name."`
}

// Run ends it.
func (c *AdminTokenRevoke) Run(ctx context.Context, s Streams) error {
	return c.revoke(ctx, s, c.call(adminPeople+"/revoke"), "name", c.Name)
}
