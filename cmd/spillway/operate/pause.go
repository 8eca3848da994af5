package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// Pause stops the delivery of a namespace or partition.
type Pause struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Partition string `arg:"" optional:"" help:"Only this partition, which need not have entries yet."`
	Reason    string `placeholder:"TEXT" help:"Why, for those who see the pause later."`
}

// Resume ends a pause.
type Resume struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Partition string `arg:"" optional:"" help:"The partition, if only that is paused."`
}

// Run pauses.
func (c *Pause) Run(ctx context.Context, s Streams) error {
	return setPause(ctx, s, &c.Connection, c.Output, c.Namespace, c.Partition, "/pause", map[string]string{"reason": c.Reason})
}

// Run resumes.
func (c *Resume) Run(ctx context.Context, s Streams) error {
	return setPause(ctx, s, &c.Connection, c.Output, c.Namespace, c.Partition, "/resume", map[string]string{})
}

func setPause(ctx context.Context, s Streams, c *Connection, form, namespace, partition, act string, body any) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	path, err := partitionPath(namespace, partition)
	if err != nil {
		return err
	}
	var answer struct {
		Paused *admin.Pause `json:"paused"`
	}
	raw, err := api.post(ctx, path+act, body, &answer)
	if err != nil {
		return err
	}
	if form == "json" {
		return printJSON(s.Out, json.RawMessage(raw))
	}
	what := scope(namespace, partition)
	if answer.Paused == nil {
		_, err = fmt.Fprintf(s.Out, "%s: delivery is not paused\n", what)
		return err
	}
	if _, err = fmt.Fprintf(s.Out, "%s: delivery is %s\n", what, pauseText(answer.Paused, time.Now().UnixMilli())); err != nil || partition == "" {
		return err
	}
	// It may be a misspelt name. The pause is done, so no other failure is one of it.
	var now struct{}
	_, err = api.get(ctx, path, nil, &now)
	if failed := new(apiError); errors.As(err, &failed) && failed.code == noSuchPartition {
		_, err = fmt.Fprintln(s.Out, "it has no entries now; a pause waits for its first one")
		return err
	}
	return nil
}

// scope names a namespace, or a partition of it.
func scope(namespace, partition string) string {
	if partition == "" {
		return namespace
	}
	return namespace + "/" + partition
}
