package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// Dead has the commands for dead letters.
type Dead struct {
	Ls     DeadLs     `cmd:"" help:"List dead letters, the newest first, and count their reasons."`
	Show   DeadShow   `cmd:"" help:"Print one dead letter with its payload."`
	Replay DeadReplay `cmd:"" help:"Put dead letters back into their partitions, as new entries. It counts them first and asks."`
	Rm     DeadRm     `cmd:"" help:"Delete dead letters. It counts them first and asks."`
}

// DeadLs lists.
type DeadLs struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Reason    string `placeholder:"REASON" help:"Only those with this reason."`
	Partition string `placeholder:"NAME" help:"Only those of this partition."`
	ID        string `placeholder:"ID" help:"Only those of the entry with this id."`
	Limit     int    `default:"50" help:"Letters to list, at most 500."`
	Cursor    string `placeholder:"CURSOR" help:"Go on where a list ended."`
}

// Run prints the list.
func (c *DeadLs) Run(ctx context.Context, s Streams) error {
	if err := within("limit", c.Limit, 500); err != nil {
		return err
	}
	api, path, err := c.openAt(c.Namespace)
	if err != nil {
		return err
	}
	query := url.Values{"limit": {digits(c.Limit)}}
	for key, value := range map[string]string{"reason": c.Reason, "partition": c.Partition, "id": c.ID, "cursor": c.Cursor} {
		if value != "" {
			query.Set(key, value)
		}
	}
	var answer admin.LetterList
	if done, err := c.read(ctx, s, api, path+"/dead", query, &answer); done {
		return err
	}
	t := newTable("LETTER", "WHEN", "PARTITION", "ID", ">BYTES", ">ATTEMPTS", "REASON", "DETAIL")
	for _, l := range answer.Letters {
		t.add(l.Letter, clock(l.DeadAtMS), l.Partition, cmp.Or(l.ID, "-"), digits(l.Bytes), digits(l.Attempt), l.Reason, l.Detail)
	}
	if err := t.print(s.Out); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "%s in %s%s\n", some(answer.Total, "dead letter", "dead letters"), size(answer.Bytes), counts(answer.Reasons))
	if answer.Cursor != "" {
		fmt.Fprintf(s.Err, "for more: --cursor %s\n", escape(answer.Cursor))
	}
	return nil
}

// counts is ": timeout 3, rejected 1", or nothing.
func counts[N int | int64](by map[string]N) string {
	if len(by) == 0 {
		return ""
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s %d", escape(key), by[key]))
	}
	return ": " + strings.Join(parts, ", ")
}

// DeadShow prints one letter.
type DeadShow struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Letter    string `arg:"" help:"The letter, as dead ls names it."`
	Unmasked  bool   `help:"Show the values of masked fields. Needs the role admin."`
}

// Run prints it.
func (c *DeadShow) Run(ctx context.Context, s Streams) error {
	api, path, err := c.openAt(c.Namespace)
	if err == nil {
		err = validLetters(c.Letter)
	}
	if err != nil {
		return err
	}
	query := url.Values{}
	if c.Unmasked {
		query.Set("unmasked", "1")
	}
	var l admin.LetterPayload
	if done, err := c.read(ctx, s, api, path+"/dead/"+c.Letter, query, &l); done {
		return err
	}
	t := newTable("letter", escape(l.Letter.Letter))
	for _, row := range [][2]string{
		{"partition", l.Partition}, {"seq", digits(l.Seq)}, {"id", cmp.Or(l.ID, "-")}, {"dead at", clock(l.DeadAtMS)},
		{"reason", l.Reason}, {"detail", l.Detail}, {"attempts", digits(l.Attempt)}, {"bytes", digits(l.Bytes)}, {"data", body(&l.Shown)},
	} {
		if row[1] != "" {
			t.add(row[0], row[1])
		}
	}
	return t.print(s.Out)
}

// validLetters: an id is 16 hexadecimal digits, and so part of a path.
func validLetters(letters ...string) error {
	for _, l := range letters {
		if len(l) != 16 || strings.Trim(l, "0123456789abcdef") != "" {
			return usageError{fmt.Errorf("%s is not a dead letter: want 16 hexadecimal digits, as spillway dead ls prints them", quote(l))}
		}
	}
	return nil
}

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
