package operate

import (
	"cmp"
	"context"
	"errors"
	"strings"

	sdk "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/move"
	"github.com/spillway-io/spillway/partition"
)

// DataPort are the flags of commands that are clients of the data port.
type DataPort struct {
	Server string `name:"server" default:"http://127.0.0.1:8080" help:"URL of the service's data port."`
	Token  string `name:"token" placeholder:"TOKEN" help:"Token of the jobs' namespace. The environment variable SPILLWAY_TOKEN hides it from the process list."`
}

// Settings are those flags, which have an environment variable.
func (d *DataPort) Settings() any { return d }

// open opens the queues of a namespace. The caller closes them.
func open(server, namespace, token string) (*sdk.Queues, error) {
	queues, err := sdk.NewQueues(server, sdk.QueuesConfig{Namespace: namespace, Token: token})
	if err != nil {
		return nil, usageError{err}
	}
	return queues, nil
}

// JobsMove moves jobs: who may not publish cannot move.
type JobsMove struct {
	Namespace string `arg:"" help:"Namespace of the jobs."`
	Queue     string `arg:"" help:"Their queue."`
	To        string `required:"" placeholder:"NAMESPACE/QUEUE" help:"Where they go."`
	DataPort  `embed:""`
	ToServer  string         `name:"to-server" placeholder:"URL" help:"URL of the data port of the service that they go to; default that of --server."`
	ToToken   string         `name:"to-token" placeholder:"TOKEN" help:"Token of the other namespace; default that of --token. In a namespace of kind php it needs the right to produce."`
	Rate      partition.Rate `placeholder:"RATE" help:"Jobs to move in a time, such as 500/s; default as fast as they are taken."`
	Follow    bool           `help:"Go on, and move what becomes ready, until it is interrupted."`
	DryRun    bool           `help:"Count the jobs and move none."`
}

// Settings are the flags with a name, which have an environment variable.
func (c *JobsMove) Settings() any { return c }

// Run moves until there are no more.
func (c *JobsMove) Run(ctx context.Context, s Streams) error {
	namespace, queue, found := strings.Cut(c.To, "/")
	if !found || namespace == "" || queue == "" {
		return misuse("to: want NAMESPACE/QUEUE, such as orders/mails")
	}
	target := cmp.Or(c.ToServer, c.Server)
	if target == c.Server && c.Namespace == namespace && c.Queue == queue {
		return misuse("to: it is the queue itself")
	}
	from, err := open(c.Server, c.Namespace, c.Token)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := open(target, namespace, cmp.Or(c.ToToken, c.Token))
	if err != nil {
		return err
	}
	defer to.Close()
	counts, err := from.Counts(ctx, c.Queue)
	if err != nil {
		return err
	}
	if c.DryRun {
		return s.tell("%d jobs are ready and would be moved; %d are delayed, leased or held by PHP's workers, %d are dead, and stay",
			counts.Ready, counts.Pending+counts.Reserved, counts.Dead)
	}
	m := &move.Move{
		From:   from,
		To:     to,
		Queue:  c.Queue,
		Target: queue,
		Count:  c.Rate.Count,
		Per:    c.Rate.Per,
		Follow: c.Follow,
	}
	err = m.Run(ctx)
	if c.Follow && ctx.Err() != nil {
		err = nil // that is how it ends
	}
	return errors.Join(s.tell("moved %d jobs; %d were moved before", m.Moved.Load(), m.Before.Load()), err)
}
