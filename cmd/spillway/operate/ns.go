package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/partition"
)

// Ns has the commands for namespaces of kind queue that are made at run time.
type Ns struct {
	Create NsCreate `cmd:"" help:"Make a namespace. Every process serves it within a second."`
	Ls     NsLs     `cmd:"" help:"List the namespaces of kind queue, with those that the file names."`
	Rm     NsRm     `cmd:"" help:"Delete a namespace and its tokens. One with jobs is refused without --force, which counts them and asks."`
}

// NsCreate makes a namespace.
type NsCreate struct {
	Connection `embed:""`
	output     `embed:""`

	Name        string         `arg:"" help:"Its name."`
	Description string         `placeholder:"TEXT" help:"What it is for, at most 512 bytes."`
	Pool        string         `default:"default" help:"Pool of the file that holds its jobs, for ever."`
	Shards      int            `default:"1" help:"Groups of keys, each in one Redis Cluster slot."`
	Spread      map[string]int `placeholder:"QUEUE=SHARDS" help:"Queues whose jobs lie on several shards, such as bulk=4."`
	MaxJobs     int64          `default:"10000000" help:"Jobs that it may hold, dead ones included."`
	MaxQueues   int64          `default:"10000" help:"Queues that may have jobs."`
	Dead        string         `enum:"keep,drop" default:"keep" help:"What becomes of a job whose tries are used up: keep it as a dead letter, or drop it."`
	ReplyTTL    time.Duration  `default:"10m" help:"How long jobs of reply queues live at most."`
}

type queueNamespace struct {
	Namespace   string         `json:"namespace"`
	Pool        string         `json:"pool"`
	Description string         `json:"description"`
	Shards      int            `json:"shards"`
	Spread      map[string]int `json:"spread"`
	MaxJobs     int64          `json:"max_jobs"`
	MaxQueues   int64          `json:"max_queues"`
	Dead        string         `json:"dead"`
	ReplyTTLMS  int64          `json:"reply_ttl_ms"`
}

const controlNamespaces = "/api/v1/control/namespaces"

// Run makes it.
func (c *NsCreate) Run(ctx context.Context, s Streams) error {
	api, _, err := c.openAt(c.Name)
	if err != nil {
		return err
	}
	var made queueNamespace
	raw, err := api.post(ctx, controlNamespaces, queueNamespace{
		c.Name, c.Pool, c.Description, c.Shards, c.Spread, c.MaxJobs, c.MaxQueues, c.Dead, c.ReplyTTL.Milliseconds(),
	}, &made)
	if err != nil {
		return err
	}
	return c.print(s, raw, fmt.Sprintf("%s: made; nobody can use it before it has a token: spillway token create %s", c.Name, c.Name))
}

// NsLs lists.
type NsLs struct {
	Connection `embed:""`
	output     `embed:""`
}

// Run prints the list.
func (c *NsLs) Run(ctx context.Context, s Streams) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	var answer struct {
		Namespaces []admin.QueueNamespace `json:"namespaces"`
	}
	if done, err := c.read(ctx, s, api, controlNamespaces, nil, &answer); done {
		return err
	}
	if len(answer.Namespaces) == 0 {
		fmt.Fprintln(s.Err, "there is no namespace of kind queue; spillway ls --namespaces lists those of kind buffer")
		return nil
	}
	t := newTable("NAMESPACE", "POOL", ">SHARDS", ">MAX JOBS", ">MAX QUEUES", "DEAD", ">TOKENS", "MADE", "BY", "DESCRIPTION")
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
	Connection `embed:""`
	output     `embed:""`
	consent    `embed:""`

	Name  string `arg:"" help:"Its name."`
	Force bool   `help:"Delete its jobs, too, for good. They count as deleted."`
}

// Run counts its jobs, asks if there are any, and deletes it.
func (c *NsRm) Run(ctx context.Context, s Streams) error {
	api, path, err := c.openControl(c.Name)
	if err != nil {
		return err
	}
	var found, done admin.DeletedNamespace
	raw, err := api.post(ctx, path+"/delete", map[string]bool{"force": c.Force, "dry_run": true}, &found)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "%s: found %s\n", c.Name, some(found.Jobs, "job", "jobs"))
	if c.DryRun {
		return c.print(s, raw, c.Name+": nothing was changed")
	}
	if found.Jobs > 0 {
		if err := c.ask(ctx, s, found.Jobs, "delete them, those that arrive meanwhile, and the namespace with its tokens"); err != nil {
			return err
		}
	}
	if raw, err = api.post(ctx, path+"/delete", map[string]bool{"force": c.Force}, &done); err != nil {
		return err
	}
	return c.print(s, raw, fmt.Sprintf("%s: deleted, with %s", c.Name, some(done.Jobs, "job", "jobs")))
}

// openControl is open for a command about a namespace of kind queue; path is its route.
func (c *Connection) openControl(namespace string) (api *client, path string, err error) {
	if !partition.ValidNamespace(namespace) {
		return nil, "", usageError{fmt.Errorf("%s is not the name of a namespace", quote(namespace))}
	}
	api, err = c.open()
	return api, controlNamespaces + "/" + namespace, err
}
