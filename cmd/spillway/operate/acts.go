package operate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// consent is how an act that cannot be undone is confirmed.
type consent struct {
	DryRun bool `help:"Count only, and change nothing."`
	Yes    bool `short:"y" help:"Do not ask. Needed where the input is no terminal."`
}

var errDeclined = errors.New("not confirmed; nothing was changed")

// ask returns nil if the person at the terminal types the count, or gave --yes.
func (c *consent) ask(ctx context.Context, s Streams, count int64, what string) error {
	if c.Yes {
		return nil
	}
	if file(s.In) == nil {
		return usageError{fmt.Errorf("the input is no terminal, so nobody can confirm: add --yes to %s (%d)", what, count)}
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

// Purge deletes waiting entries.
type Purge struct {
	Connection `embed:""`
	output     `embed:""`
	consent    `embed:""`

	Namespace string        `arg:"" help:"The namespace."`
	Partition string        `arg:"" optional:"" help:"Only this partition."`
	OlderThan time.Duration `placeholder:"DURATION" help:"Only entries older than this, such as 10m. Without it, of any age."`
	Limit     int64         `placeholder:"N" help:"At most this many entries. Without it, all that match."`
}

type purgeRequest struct {
	Partition   string `json:"partition,omitempty"`
	OlderThanMS int64  `json:"older_than_ms,omitempty"`
	Limit       int64  `json:"limit,omitempty"`
	DryRun      bool   `json:"dry_run,omitempty"`
	Confirm     *int64 `json:"confirm,omitempty"`
}

// Run counts, asks and deletes.
func (c *Purge) Run(ctx context.Context, s Streams) error {
	if c.OlderThan < 0 || c.OlderThan > 0 && c.OlderThan < time.Millisecond {
		return usageError{fmt.Errorf("older-than: %v: want 1ms or more", c.OlderThan)}
	}
	if c.Limit < 0 {
		return usageError{fmt.Errorf("limit: %d: want 1 or more", c.Limit)}
	}
	api, path, err := c.openAt(c.Namespace)
	if err == nil {
		_, err = partitionPath(c.Namespace, c.Partition)
	}
	if err != nil {
		return err
	}
	request := purgeRequest{Partition: c.Partition, OlderThanMS: c.OlderThan.Milliseconds(), Limit: c.Limit, DryRun: true}
	var found admin.Purged
	raw, err := api.post(ctx, path+"/purge", request, &found)
	if err != nil {
		return err
	}
	what := scope(c.Namespace, c.Partition)
	fmt.Fprintf(s.Err, "%s: found %s in %s%s\n", what, some(found.Entries, "entry", "entries"), some(found.Partitions, "partition", "partitions"), c.leased(found))
	if c.DryRun || found.Entries == 0 {
		return c.print(s, raw, fmt.Sprintf("%s: nothing was deleted", what))
	}
	if err := c.ask(ctx, s, found.Entries, "delete them"); err != nil {
		return err
	}
	request.DryRun, request.Confirm = false, &found.Entries
	var done admin.Purged
	if raw, err = api.post(ctx, path+"/purge", request, &done); err != nil {
		return err
	}
	switch {
	case done.Entries < found.Entries:
		fmt.Fprintf(s.Err, "%d of the counted entries were left: they are being delivered, or are gone already, or time was short. Run it again to see\n", found.Entries-done.Entries)
	case !done.Complete && c.Limit == 0:
		fmt.Fprintln(s.Err, "more entries match now; they are still there")
	}
	return c.print(s, raw, fmt.Sprintf("%s: deleted %s in %s%s", what, some(done.Entries, "entry", "entries"), some(done.Partitions, "partition", "partitions"), c.leased(done)))
}

func (c *Purge) leased(a admin.Purged) string {
	if a.Leased == 0 {
		return ""
	}
	return fmt.Sprintf("; %s being delivered, left alone", some(a.Leased, "partition is", "partitions are"))
}
