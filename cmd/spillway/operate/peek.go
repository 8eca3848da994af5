package operate

import (
	"cmp"
	"context"
	"fmt"
	"net/url"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// Peek prints entries of a partition without taking them.
type Peek struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"Namespace of the partition."`
	Partition string `arg:"" help:"The partition."`
	Limit     int    `default:"20" help:"Entries to print, at most 128."`
	Newest    bool   `help:"The newest entries instead of the oldest, which are delivered next."`
	Unmasked  bool   `help:"Show the values of masked fields. Needs the role admin."`
}

// Run prints the entries, the oldest first.
func (c *Peek) Run(ctx context.Context, s Streams) error {
	if err := within("limit", c.Limit, 128); err != nil {
		return err
	}
	api, err := c.open()
	if err != nil {
		return err
	}
	path, err := requirePartition(c.Namespace, c.Partition)
	if err != nil {
		return err
	}
	query := url.Values{"limit": {digits(c.Limit)}, "from": {"oldest"}}
	if c.Newest {
		query.Set("from", "newest")
	}
	if c.Unmasked {
		query.Set("unmasked", "1")
	}
	var answer admin.Peek
	if done, err := c.read(ctx, s, api, path+"/peek", query, &answer); done {
		return err
	}
	t := newTable(">SEQ", ">AGE", "ID", ">BYTES", "DATA")
	for _, e := range answer.Entries {
		t.add(digits(e.Seq), since(e.AgeMS), cmp.Or(e.ID, "-"), digits(e.Bytes), body(&e.Shown))
	}
	if err := t.print(s.Out); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "%d of %s\n", len(answer.Entries), some(answer.Depth, "waiting entry", "waiting entries"))
	return nil
}

// requirePartition is the route of a partition that must be named.
func requirePartition(namespace, name string) (string, error) {
	if name == "" {
		return "", usageError{fmt.Errorf("the name of the partition is empty")}
	}
	return partitionPath(namespace, name)
}
