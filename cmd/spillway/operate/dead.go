package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// Dead has the commands for dead letters.
type Dead struct {
	Ls     DeadLs     `cmd:"" help:"List dead letters, the newest first, or count them by cause."`
	Show   DeadShow   `cmd:"" help:"Print one dead letter with its payload."`
	Replay DeadReplay `cmd:"" help:"Put dead letters back into their partitions, as new entries. It counts them first and asks."`
	Rm     DeadRm     `cmd:"" help:"Delete dead letters. It counts them first and asks."`
}

// DeadLs lists.
type DeadLs struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Reason    string `placeholder:"REASON" help:"Only those with this reason."`
	Partition string `placeholder:"NAME" help:"Only those of this partition."`
	ID        string `placeholder:"ID" help:"Only those of the entry with this id."`
	Cause     string `placeholder:"CAUSE" help:"Only those of this cause, as --by cause prints it."`
	byCause   `embed:""`
	Limit     int    `default:"50" help:"Letters to list, at most 500."`
	Cursor    string `placeholder:"CURSOR" help:"Go on where a list ended."`
}

// Run prints the list.
func (c *DeadLs) Run(ctx context.Context, s Streams) error {
	if c.By != nil {
		return c.causes(ctx, s, c.namespace(c.Namespace).at("/dead/causes"))
	}
	call := c.namespace(c.Namespace).at("/dead").limit(c.Limit, 500)
	call.set("reason", c.Reason).set("partition", c.Partition).set("id", c.ID).set("cause", c.Cause).set("cursor", c.Cursor)
	var answer admin.LetterList
	if done, err := c.read(ctx, s, call, &answer); done {
		return err
	}
	t := newTable("LETTER", "WHEN", "PARTITION", "ID", ">BYTES", ">ATTEMPTS", "REASON", "DETAIL")
	for _, l := range answer.Letters {
		t.add(l.Letter, clock(l.DeadAtMS), l.Partition, cmp.Or(l.ID, "-"), digits(l.Bytes),
			digits(l.Attempt),
			l.Reason, l.Detail)
	}
	if err := t.print(s.Out); err != nil {
		return err
	}
	err := s.tell("%s in %s", human.Some(answer.Total, "dead letter", "dead letters"), size(answer.Bytes))
	if answer.Cursor != "" {
		err = s.tell("for more: --cursor %s", escape(answer.Cursor))
	}
	return err
}

// byCause has the flag of lists of dead letters that can count them instead.
type byCause struct {
	By *string `enum:"cause" placeholder:"cause" help:"cause: count them by cause instead, those of most first. A cause is what was said, with # for each word that has a digit in it."`
}

// causes counts dead letters by cause.
func (c *command) causes(ctx context.Context, s Streams, call *call) error {
	var answer admin.DeadCauses
	if done, err := c.read(ctx, s, call, &answer); done {
		return err
	}
	t := newTable(">COUNT", "FIRST", "LAST", "CAUSE", "ID OF THE LAST", "WHICH SAID")
	for _, of := range answer.Causes {
		t.add(digits(of.Count), clock(of.FirstMS), clock(of.LastMS), cmp.Or(of.Cause, "(any other)"), of.ID, of.Example)
	}
	if err := t.print(s.Out); err != nil {
		return err
	}
	if !answer.Complete {
		return s.tell("of %d dead letters; there are more", answer.Looked)
	}
	return s.tell("of %s", human.Some(int64(answer.Looked), "dead letter", "dead letters"))
}

// DeadShow prints one letter.
type DeadShow struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Letter    string `arg:"" help:"The letter, as dead ls names it."`
	Unmasked  bool   `help:"Show the values of masked fields. Needs the role admin."`
}

// Run prints it.
func (c *DeadShow) Run(ctx context.Context, s Streams) error {
	var l admin.LetterPayload
	call := c.namespace(c.Namespace).check(validLetters(c.Letter)).at("/dead/"+c.Letter).on("unmasked", c.Unmasked)
	if done, err := c.read(ctx, s, call, &l); done {
		return err
	}
	return details(
		"letter",
		l.Letter.Letter,
		"partition",
		l.Partition,
		"seq",
		digits(l.Seq),
		"id",
		cmp.Or(l.ID,
			"-"),
		"dead at",
		clock(l.DeadAtMS),
		"reason",
		l.Reason,
		"detail",
		l.Detail,
		"attempts",
		digits(l.Attempt),
		"bytes",
		digits(l.Bytes),
		"data",
		body(&l.Shown),
	).print(s.Out)
}

// validLetters: an id is 16 hexadecimal digits, and so part of a path.
func validLetters(letters ...string) error {
	for _, l := range letters {
		if len(l) != 16 || strings.Trim(l, "0123456789abcdef") != "" {
			return misuse("%s is not a dead letter: want 16 hexadecimal digits, as spillway dead ls prints them", quote(l))
		}
	}
	return nil
}

// selection says which dead letters an act is for.
type selection struct {
	acting `embed:""`

	Namespace string   `arg:"" help:"The namespace."`
	Letters   []string `arg:"" optional:"" help:"Letters, as dead ls names them. Without any, all that the flags select."`
	Reason    string   `placeholder:"REASON" help:"Only those with this reason."`
	Cause     *string  `placeholder:"CAUSE" help:"Only those of this cause, as dead ls --by cause prints it, or of what one of them says."`
	Partition string   `placeholder:"NAME" help:"Only those of this partition."`
	Limit     int64    `placeholder:"N" help:"At most this many. Without it, all that match."`
}

// DeadReplay puts letters back.
type DeadReplay struct {
	selection `embed:""`

	PerSecond int `default:"100" help:"Letters per second."`
}

// DeadRm deletes letters.
type DeadRm struct {
	selection `embed:""`
}

// deadLetters are the figures of answers about them, and of acts as a whole.
type deadLetters struct {
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
		return misuse("per-second: %d: want 1 or more", c.PerSecond)
	}
	request := &admin.ReplayRequest{DeleteRequest: c.request(), PerSecond: c.PerSecond}
	return c.run(ctx, s, "/dead/replay", act{
		ask:     "put them back",
		done:    "replayed",
		request: request,
		agreed:  &request.Approval,
	})
}

// Run counts, asks and deletes.
func (c *DeadRm) Run(ctx context.Context, s Streams) error {
	request := c.request()
	return c.run(ctx, s, "/dead/delete", act{
		ask:     "delete them",
		done:    "deleted",
		request: &request,
		agreed:  &request.Approval,
	})
}

func (c *selection) request() admin.DeleteRequest {
	return admin.DeleteRequest{
		Letters:   c.Letters,
		Reason:    c.Reason,
		Cause:     text(c.Cause),
		Partition: c.Partition,
		Limit:     c.Limit,
	}
}

// text is that of a flag, or "".
func text(flag *string) string {
	if flag == nil {
		return ""
	}
	return *flag
}

func (c *selection) run(ctx context.Context, s Streams, route string, a act) error {
	if c.Limit < 0 {
		return misuse("limit: %d: want 1 or more", c.Limit)
	}
	if c.Cause != nil && *c.Cause == "" { // of a script whose variable is not set
		return misuse("cause: it is empty")
	}
	a.to = c.Namespace
	a.one = "dead letter"
	a.many = "dead letters"
	a.answer = func(_ json.RawMessage, done acted) any { return done.deadLetters }
	total, _, err := c.act(
		ctx,
		s,
		c.namespace(c.Namespace).check(validPartition(c.Partition)).check(validLetters(c.Letters...)).at(route),
		a,
	)
	switch {
	case err != nil:
	case total.Failed > 0:
		err = fmt.Errorf("%s could not be %s and stay: %s", human.Some(total.Failed,
			"dead letter", "dead letters"),
			a.done, first(total.Errors))
	case total.Letters > 0 && !total.Complete && c.Limit == 0:
		err = s.tell("more dead letters match now; they are still there")
	}
	return err
}

func first(texts []string) string {
	if len(texts) == 0 {
		return "see the log of the service"
	}
	return escape(texts[0])
}
