package operate

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// consent is how an act that cannot be undone is confirmed.
type consent struct {
	DryRun    bool `help:"Count only, and change nothing."`
	agreement `embed:""`
}

type agreement struct {
	Yes bool `short:"y" help:"Skip the confirmation. Required when input is not a terminal."`
}

// acting has the flags of every command that changes what cannot be got back.
type acting struct {
	command `embed:""`
	consent `embed:""`
}

var errDeclined = errors.New("not confirmed; nothing was changed")

// ask returns nil if the person at the terminal types the count, or gave --yes.
func (c *agreement) ask(ctx context.Context, s Streams, count int64, what string) error {
	if c.Yes {
		return nil
	}
	if file(s.In) == nil {
		return misuse("the input is no terminal, so nobody can confirm: add --yes to %s (%d)",
			what, count)
	}
	return askFor(ctx, s, count, what)
}

func askFor(ctx context.Context, s Streams, count int64, what string) error {
	fmt.Fprintf(s.Err, "Type %d to %s: ", count, what)
	typed := make(chan string, 1)
	go func() { // a read from a terminal ends with the process
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		typed <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(s.Err)
		return errDeclined
	case line := <-typed:
		if line != digits(count) {
			return errDeclined
		}
		return nil
	}
}

// An act is done to as many as its count found and a person confirmed, and not more.
type act struct {
	to, ask, done string // whom, what to confirm and what was done, in words
	one, many     string // what is counted
	once          bool   // it is not repeated
	request       any
	agreed        *admin.Approval                  // of the request
	nothing       func()                           // what more to say where there is none; may be nil
	words         func(n int64, a acted) string    // of the count; nil: one or many
	answer        func(json.RawMessage, acted) any // as JSON
}

// acted is what the answers to acts have, or the sum of several.
type acted struct {
	deadLetters
	Jobs       int64 `json:"jobs"`
	Entries    int64 `json:"entries"`
	Partitions int64 `json:"partitions"`
	Leased     int64 `json:"leased"`
}

func (a *acted) count() int64 { return a.Jobs + a.Entries + a.Replayed + a.Deleted }

func (a *acted) add(part acted) {
	a.Jobs += part.Jobs
	a.Entries += part.Entries
	a.Partitions += part.Partitions
	a.Leased += part.Leased
	a.Replayed += part.Replayed
	a.Deleted += part.Deleted
	a.Failed += part.Failed
	a.Errors, a.Complete = append(a.Errors, part.Errors...), part.Complete
}

// act counts, asks, and acts until as many as were confirmed are done: the service ends a
// request that takes long, and says that it is not complete. left are those that were confirmed and
// are not done.
func (c *acting) act(ctx context.Context, s Streams, call *call,
	a act) (total acted, left int64, err error) {
	if a.words == nil {
		a.words = func(n int64, _ acted) string { return human.Some(n, a.one, a.many) }
	}
	a.agreed.DryRun = true
	var found acted
	raw, err := call.post(ctx, a.request, &found)
	if err != nil {
		return total, 0, err
	}
	n := found.count() + found.Letters
	_ = s.tell("%s: found %s", a.to, a.words(n, found))
	if n == 0 && a.nothing != nil {
		a.nothing()
	}
	if c.DryRun || n == 0 {
		return total, 0, c.print(s, a.answer(raw, found), a.to+": nothing was "+nothingWas[a.once])
	}
	if err := c.ask(ctx, s, n, a.ask); err != nil {
		return total, 0, err
	}
	a.agreed.DryRun, a.agreed.Confirm = false, &left
	total.Letters = found.Letters
	for left = n; left > 0; {
		var part acted
		if raw, err = call.post(ctx, a.request, &part); err != nil {
			break
		}
		total.add(part)
		left -= part.count() + part.Failed
		if a.once || part.Complete || part.count() == 0 || part.Failed > 0 {
			break
		}
		if left > 0 {
			_ = s.tell("%s %d of %d", a.done, n-left, n)
		}
	}
	if err != nil && a.once {
		return total, left, err
	}
	printed := c.print(s, a.answer(raw, total), a.to+": "+a.done+" "+a.words(total.count(), total))
	return total, left, cmp.Or(err, printed)
}

// nothingWas ends the line of an act that did nothing: of a purge, and of the others.
var nothingWas = map[bool]string{true: "deleted", false: "changed"}

// Purge deletes waiting entries.
type Purge struct {
	acting `embed:""`

	Namespace string        `arg:"" help:"The namespace."`
	Partition string        `arg:"" optional:"" help:"Only this partition."`
	OlderThan time.Duration `placeholder:"DURATION" help:"Only entries older than this, such as 10m. Without it, of any age."`
	Limit     int64         `placeholder:"N" help:"At most this many entries. Without it, all that match."`
}

// Run counts, asks and deletes.
func (c *Purge) Run(ctx context.Context, s Streams) error {
	if c.OlderThan < 0 || c.OlderThan > 0 && c.OlderThan < time.Millisecond {
		return misuse("older-than: %v: want 1ms or more", c.OlderThan)
	}
	if c.Limit < 0 {
		return misuse("limit: %d: want 1 or more", c.Limit)
	}
	request := &admin.PurgeRequest{Partition: c.Partition, OlderThanMS: c.OlderThan.Milliseconds(),
		Limit: c.Limit}
	done, left, err := c.act(ctx, s, c.namespace(c.Namespace).check(validPartition(c.Partition)).at("/purge"), act{
		to:      scope(c.Namespace, c.Partition),
		ask:     "delete them",
		done:    "deleted",
		once:    true,
		request: request,
		agreed:  &request.Approval,
		words:   purgedText,
		answer:  func(raw json.RawMessage, _ acted) any { return raw },
	})
	if err != nil || done.count() == 0 && left == 0 {
		return err
	}
	switch {
	case left > 0:
		err = s.tell("%d of the counted entries were left: they are being delivered, or are gone already, or time was short. Run it again to see", left)
	case !done.Complete && c.Limit == 0:
		err = s.tell("more entries match now; they are still there")
	}
	return err
}

func purgedText(n int64, a acted) string {
	text := human.Some(n, "entry", "entries") + " in " + human.Some(a.Partitions, "partition", "partitions")
	if a.Leased > 0 {
		text += fmt.Sprintf("; %s being delivered, left alone", human.Some(a.Leased,
			"partition is", "partitions are"))
	}
	return text
}
