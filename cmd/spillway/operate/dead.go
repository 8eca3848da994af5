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
