package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// Workers has the commands for workers of queues.
type Workers struct {
	Ls      WorkersLs      `cmd:"" help:"List the workers of a namespace that said what they are, as spillway work does, within the last 10 minutes and to this process."`
	Restart WorkersRestart `cmd:"" help:"Tell the workers of a PHP application to restart, each after its job: its own, and those of spillway work."`
}

// WorkersLs lists.
type WorkersLs struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue or php."`
}

// Run prints the list.
func (c *WorkersLs) Run(ctx context.Context, s Streams) error {
	var list admin.WorkerList
	if done, err := c.read(ctx, s, c.namespace(c.Namespace).at("/workers"), &list); done {
		return err
	}
	if len(list.Workers) == 0 {
		return s.tell("no worker said what it is")
	}
	t := newTable("WORKER", "QUEUES", ">CHILDREN", ">BUSY", ">MEMORY", "VERSION", "TOKEN", ">SINCE", ">SEEN")
	ago := func(at int64) string { return human.Since(max(0, time.Now().UnixMilli()-at)) }
	for _, w := range list.Workers {
		t.add(w.Name, strings.Join(w.Queues, ","), digits(int64(w.Children)),
			digits(int64(w.Busy)), fmt.Sprintf("%d MiB", w.Memory>>20),
			w.Version, w.Token, ago(w.SinceMS), ago(w.SeenMS))
	}
	return t.print(s.Out)
}

// WorkersRestart tells them to restart.
type WorkersRestart struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind php."`
}

// Run tells them.
func (c *WorkersRestart) Run(ctx context.Context, s Streams) error {
	var answer struct{ State string }
	if _, err := c.namespace(c.Namespace).at("/workers/restart").post(ctx, struct{}{},
		&answer); err != nil {
		return err
	}
	return s.tell("told: each restarts after its job")
}
