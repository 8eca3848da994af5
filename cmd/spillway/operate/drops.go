package operate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// Drops says why entries were dropped.
type Drops struct {
	command `embed:""`

	Namespace string `arg:"" optional:"" help:"The namespace; all without it."`
	ID        string `placeholder:"ID" help:"Why was my event dropped? Its id, as the client sent it."`
	Reason    string `placeholder:"REASON" help:"Only those with this reason, such as evicted."`
	Partition string `placeholder:"NAME" help:"Only those of this partition."`
	Limit     int    `default:"100" help:"Drops to list, at most 1000."`
}

func dropTable(list []admin.Drop) *table {
	t := newTable("WHEN", "NAMESPACE", "PARTITION", "ID", "REASON", ">AGE", ">ENTRIES", "DETAIL")
	for _, d := range list {
		age := "-"
		if d.AgeMS != 0 {
			age = human.Since(d.AgeMS)
		}
		t.add(
			clock(d.AtMS),
			d.Namespace,
			cmp.Or(d.Partition, "-"),
			cmp.Or(d.ID, "-"),
			d.Reason,
			age,
			digits(d.Entries),
			d.Detail,
		)
	}
	return t
}

// reasonTexts say what happened, and what helps.
var reasonTexts = map[string]string{
	"evicted":             "its partition was full, and newer entries took its place: raise capacity, or see why delivery is slow",
	"expired":             "it waited longer than max_age: see why delivery is slow",
	"stale":               "it was older than max_age when it arrived: see the client's clock, or what holds its events up",
	"too_large":           "it is larger than max_entry",
	"bad_ts":              "its time is not usable",
	"bad_id":              "its id is not 1 to 64 printable characters",
	"bad_partition":       "its partition's name is not usable",
	"bad_item":            "it is not in a form that the route takes",
	"filtered":            "a step drop_if of its namespace's transform holds for it",
	"sampled":             "it is not of the share that its namespace's transform keeps",
	"emptied":             "its namespace's transform left nothing of it",
	"unreadable":          "it is no JSON, so its namespace's transform cannot see what has to be taken out of it",
	"bad_request":         "its request cannot be read; the detail is the error code",
	"unauthorized":        "its request had no token of this namespace, or a wrong one",
	"overloaded":          "the service had no memory left for its request; the client may send it again",
	"shutting_down":       "the service was stopping; the client may send it again",
	"too_many_keys":       "its namespace remembers as many idempotency keys as max_keys allows",
	"too_many_partitions": "its namespace has as many partitions as max_partitions allows",
	"rate_limited":        "its token or key sent more than its rate; the client may send it again",
	"dead":                "the sink rejected it: see spillway dead ls",
	"failed":              "it was counted as delivered before its one write, as at-most-once does, and the sink did not accept it",
	"lost":                "something other than Spillway removed it from Redis",
	"purged":              "somebody deleted it: see spillway audit",
	"store_unavailable":   "the store did not answer; the client may send it again",
	"store_full":          "the store has no memory left; the client may send it again",
	"unknown":             "the store's answer was lost; the client sends it again with the same key",
	"client_discarded":    "the client dropped it before it was sent",
}

// Run prints the samples.
func (c *Drops) Run(ctx context.Context, s Streams) error {
	var answer admin.Drops
	if done, err := c.read(ctx, s, c.call("/api/v1/drops").of(c.Namespace).limit(c.Limit, 1000).set("partition", c.Partition).set("id", c.ID).set("reason", c.Reason), &answer); done {
		return err
	}
	if len(answer.Drops) > 0 {
		if err := dropTable(answer.Drops).print(s.Out); err != nil {
			return err
		}
	}
	var b strings.Builder
	if len(answer.Drops) == 0 {
		fmt.Fprintln(&b, c.nothing())
	}
	explained := map[string]bool{}
	for _, d := range answer.Drops {
		explained[d.Reason] = true
	}
	for _, reason := range slices.Sorted(maps.Keys(explained)) {
		fmt.Fprintf(&b, "\n%s: %s", escape(reason), reasonText(reason))
	}
	if len(explained) > 0 {
		b.WriteString("\n")
	}
	if len(answer.Reasons) > 0 {
		var totals []string
		for _, reason := range slices.Sorted(maps.Keys(answer.Reasons)) {
			totals = append(totals, fmt.Sprintf("%s %d", escape(reason), answer.Reasons[reason].Total))
		}
		fmt.Fprintf(&b, "\nSince the process started: %s. Of each reason and namespace, the last 128 are sampled.\n", strings.Join(totals, ", "))
	}
	_, err := io.WriteString(s.Out, b.String())
	return err
}

func reasonText(reason string) string {
	if text, ok := reasonTexts[reason]; ok {
		return text
	}
	return "see ingest/API.md"
}

func (c *Drops) nothing() string {
	if c.ID != "" {
		return "No sampled drop has the id " + quote(c.ID) +
			". It was delivered (spillway deliveries --id says so of a sample), or waits, or was " +
			"dropped before the last 128 of its reason, or by another process.\n" +
			"Most samples of evicted, expired, purged and lost entries have no id: look for the partition and the time, with --partition instead of --id."
	}
	return "No sampled drop matches; this process has samples of its own drops alone."
}
