package operate

import (
	"context"
	"fmt"
)

// selection says which dead letters an act is for.
type selection struct {
	Namespace string   `arg:"" help:"The namespace."`
	Letters   []string `arg:"" optional:"" help:"Letters, as dead ls names them. Without any, all that the flags select."`
	Reason    string   `placeholder:"REASON" help:"Only those with this reason."`
	Partition string   `placeholder:"NAME" help:"Only those of this partition."`
	Limit     int64    `placeholder:"N" help:"At most this many. Without it, all that match."`
}

// DeadReplay puts letters back.
type DeadReplay struct {
	Connection `embed:""`
	output     `embed:""`
	consent    `embed:""`
	selection  `embed:""`

	PerSecond int `default:"100" help:"Letters per second."`
}

// DeadRm deletes letters.
type DeadRm struct {
	Connection `embed:""`
	output     `embed:""`
	consent    `embed:""`
	selection  `embed:""`
}

type deadRequest struct {
	Letters   []string `json:"letters,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	Partition string   `json:"partition,omitempty"`
	Limit     int64    `json:"limit,omitempty"`
	PerSecond int      `json:"per_second,omitempty"`
	DryRun    bool     `json:"dry_run,omitempty"`
	Confirm   *int64   `json:"confirm,omitempty"`
}

// deadAnswer sums up the answers to one or more requests.
type deadAnswer struct {
	DryRun   bool     `json:"dry_run"`
	Letters  int64    `json:"letters"` // that match
	Replayed int64    `json:"replayed"`
	Deleted  int64    `json:"deleted"`
	Failed   int64    `json:"failed"`
	Errors   []string `json:"errors,omitempty"`
	Complete bool     `json:"complete"`
}

// Run counts, asks and replays.
func (c *DeadReplay) Run(ctx context.Context, s Streams) error {
	if c.PerSecond < 1 {
		return usageError{fmt.Errorf("per-second: %d: want 1 or more", c.PerSecond)}
	}
	return c.act(ctx, s, &c.Connection, &c.output, &c.consent, deadAct{"replay", "put them back", "replayed", c.PerSecond})
}

// Run counts, asks and deletes.
func (c *DeadRm) Run(ctx context.Context, s Streams) error {
	return c.act(ctx, s, &c.Connection, &c.output, &c.consent, deadAct{"delete", "delete them", "deleted", 0})
}

type deadAct struct {
	route, ask, done string
	perSecond        int
}

func (c *selection) act(ctx context.Context, s Streams, connection *Connection, out *output, agreed *consent, a deadAct) error {
	if c.Limit < 0 {
		return usageError{fmt.Errorf("limit: %d: want 1 or more", c.Limit)}
	}
	api, err := connection.open()
	if err != nil {
		return err
	}
	path, err := namespacePath(c.Namespace)
	if err == nil {
		_, err = partitionPath(c.Namespace, c.Partition)
	}
	if err == nil {
		err = validLetters(c.Letters...)
	}
	if err != nil {
		return err
	}
	path += "/dead/" + a.route
	request := deadRequest{Letters: c.Letters, Reason: c.Reason, Partition: c.Partition, Limit: c.Limit, PerSecond: a.perSecond, DryRun: true}
	var found deadAnswer
	if _, err := api.post(ctx, path, request, &found); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "%s: found %s\n", c.Namespace, some(found.Letters, "dead letter", "dead letters"))
	if agreed.DryRun || found.Letters == 0 {
		return out.print(s, found, c.Namespace+": nothing was changed")
	}
	if err := agreed.ask(ctx, s, found.Letters, a.ask); err != nil {
		return err
	}
	request.DryRun = false
	total, err := c.repeat(ctx, s, api, path, request, found.Letters, a)
	if printErr := out.print(s, total, fmt.Sprintf("%s: %s %s", c.Namespace, a.done, some(total.Replayed+total.Deleted, "dead letter", "dead letters"))); err == nil {
		err = printErr
	}
	if err == nil && total.Failed == 0 && !total.Complete && c.Limit == 0 {
		fmt.Fprintln(s.Err, "more dead letters match now; they are still there")
	}
	if err == nil && total.Failed > 0 {
		err = fmt.Errorf("%s could not be %s and stay: %s", some(total.Failed, "dead letter", "dead letters"), a.done, first(total.Errors))
	}
	return err
}

// repeat sends the request until the confirmed letters are done: the service ends
// one that takes long, and says that it is not complete.
func (c *selection) repeat(ctx context.Context, s Streams, api *client, path string, request deadRequest, confirmed int64, a deadAct) (total deadAnswer, err error) {
	total.Letters = confirmed
	for left := confirmed; left > 0; {
		request.Confirm = &left
		if c.Limit > 0 {
			request.Limit = left
		}
		var part deadAnswer
		if _, err := api.post(ctx, path, request, &part); err != nil {
			return total, err
		}
		total.Replayed += part.Replayed
		total.Deleted += part.Deleted
		total.Failed += part.Failed
		total.Errors = append(total.Errors, part.Errors...)
		total.Complete = part.Complete
		progress := part.Replayed + part.Deleted
		left -= progress + part.Failed
		if part.Complete || progress == 0 || part.Failed > 0 {
			return total, nil
		}
		if left > 0 {
			fmt.Fprintf(s.Err, "%s %d of %d\n", a.done, confirmed-left, confirmed)
		}
	}
	return total, nil
}

func first(texts []string) string {
	if len(texts) == 0 {
		return "see the log of the service"
	}
	return escape(texts[0])
}
