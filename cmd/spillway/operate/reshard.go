package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/partition"
)

// Reshard gives a namespace other shards.
type Reshard struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind buffer or queue."`
	Shards    int    `arg:"" help:"How many shards it gets, 1 to 1024: two to four a master of a Redis Cluster."`
	Pool      string `help:"Move it to this pool of the file, another Redis."`
	Again     bool   `help:"Also where it has as many already: spread them over the masters that there are now."`
	Wait      bool   `help:"Wait until nothing is left in the older shards."`
	DryRun    bool   `help:"Look whether it could be done, and change nothing."`
	Yes       bool   `short:"y" help:"Skip the confirmation. Required when input is not a terminal."`
}

// Run looks, asks and reshards.
func (c *Reshard) Run(ctx context.Context, s Streams) error {
	call := c.namespace(c.Namespace).at("/reshard")
	var found, done admin.Resharded
	request := admin.ReshardRequest{Shards: c.Shards, Pool: c.Pool, Again: c.Again, DryRun: true}
	raw, err := call.post(ctx, request, &found)
	if err != nil {
		return err
	}
	var from, to string
	if found.Pool != found.FromPool {
		from, to = " in pool "+found.FromPool, " in pool "+found.Pool
	}
	if c.DryRun || found.From == c.Shards && to == "" && !c.Again {
		return c.print(s, raw, fmt.Sprintf("%s: %d shards%s, %d wanted%s; nothing was changed",
			c.Namespace, found.From, from, c.Shards, to))
	}
	_ = s.tell("%s: %d shards%s become %d%s. New entries go to the new ones at once; what lies in the old ones leaves from there: entries at max_age at the latest, jobs when they end.",
		c.Namespace, found.From, from, c.Shards, to)
	asking := consent{Yes: c.Yes}
	if err := asking.ask(ctx, s, int64(c.Shards), "go on"); err != nil {
		return err
	}
	request.DryRun = false
	if raw, err = call.post(ctx, request, &done); err != nil {
		return err
	}
	if c.Wait {
		if err := c.wait(ctx, s); err != nil {
			return err
		}
	}
	return c.print(s, raw, fmt.Sprintf("%s: new entries go to the %d shards of layout %d; spillway layouts ls %[1]s shows what is left in the others",
		c.Namespace, done.Shards, done.Layout))
}

// wait returns once no older layout is open.
func (c *Reshard) wait(ctx context.Context, s Streams) error {
	last := int64(-1)
	for {
		var list admin.LayoutList
		if _, err := c.namespace(c.Namespace).at("/layouts").get(ctx, &list); err != nil {
			return err
		}
		open, entries := 0, int64(0)
		for _, l := range list.Layouts {
			if l.State == "older" {
				open, entries = open+1, entries+l.Entries
			}
		}
		if open == 0 {
			return nil
		}
		if entries != last {
			_ = s.tell("%s left in older shards", some(entries, "entry", "entries"))
			last = entries
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// Layouts has the commands for layouts.
type Layouts struct {
	Ls      LayoutsLs      `cmd:"" help:"List the layouts of a namespace: the shards that take new entries, and those that are being emptied."`
	Forget  LayoutsForget  `cmd:"" help:"Read a closed layout no more. The account of the namespace keeps its totals."`
	Abandon LayoutsAbandon `cmd:"" help:"Give up an older layout whose Redis is lost, and count its entries as lost. It asks."`
}

// oneLayout names a layout.
type oneLayout struct {
	Namespace string `arg:"" help:"The namespace, of kind buffer."`
	Layout    int64  `arg:"" help:"Number of the layout, see spillway layouts ls."`
}

func (l oneLayout) at(c *command, act string) *call {
	return c.namespace(l.Namespace).at(fmt.Sprintf("/layouts/%d/%s", l.Layout, act))
}

// LayoutsForget forgets.
type LayoutsForget struct {
	command   `embed:""`
	oneLayout `embed:""`

	Gone bool `help:"The Redis of an abandoned layout never comes back: forget it without a look at its shards."`
}

// Run forgets.
func (c *LayoutsForget) Run(ctx context.Context, s Streams) error {
	var done partition.LostLayout
	raw, err := c.at(&c.command, "forget").post(ctx, admin.LayoutRequest{Gone: c.Gone}, &done)
	if err != nil {
		return err
	}
	return c.print(s, raw, "the record of the namespace has its totals")
}

// LayoutsAbandon gives up.
type LayoutsAbandon struct {
	acting    `embed:""`
	oneLayout `embed:""`

	Unseen bool `help:"Also where the process that is asked never read a shard that is away, so nothing of it is counted."`
}

// Run looks what is lost, asks and gives up.
func (c *LayoutsAbandon) Run(ctx context.Context, s Streams) error {
	call := c.at(&c.command, "abandon")
	var lost partition.LostLayout
	raw, err := call.post(ctx, admin.LayoutRequest{DryRun: true}, &lost)
	if err != nil {
		return err
	}
	_ = s.tell("%d of %d shards do not answer, %d of them were never read by this process: %s and %s are lost",
		lost.Away, lost.Shards, lost.Unseen, some(lost.Entries, "entry", "entries"),
		some(lost.Dead, "dead letter", "dead letters"))
	if c.DryRun {
		return c.print(s, raw, "nothing was changed")
	}
	if err := c.ask(ctx, s, c.Layout, "give up the layout"); err != nil {
		return err
	}
	request := admin.LayoutRequest{Unseen: c.Unseen, Confirm: &lost}
	if raw, err = call.post(ctx, request, &partition.LostLayout{}); err != nil {
		return err
	}
	return c.print(s, raw, "the layout is given up")
}

// LayoutsLs lists.
type LayoutsLs struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind buffer or queue."`
}

// Run prints the list.
func (c *LayoutsLs) Run(ctx context.Context, s Streams) error {
	var list admin.LayoutList
	if done, err := c.read(ctx, s, c.namespace(c.Namespace).at("/layouts"), &list); done {
		return err
	}
	t := newTable(">LAYOUT", ">SHARDS", "STATE", ">FENCED", ">EMPTY", ">ENTRIES", ">PARTITIONS",
		">OLDEST", "SINCE", "POOL", "BY", "QUEUES LEFT")
	for _, l := range list.Layouts {
		at := "first use"
		if l.SinceMS > 0 {
			at = time.UnixMilli(l.SinceMS).UTC().Format(time.DateTime)
		}
		t.add(fmt.Sprint(l.N), digits(int64(l.Shards)), l.State, digits(int64(l.Fenced)),
			digits(int64(l.Empty)),
			digits(l.Entries), digits(l.Partitions), since(l.OldestAgeMS), at, l.Pool, l.By, strings.Join(l.Names, " "))
	}
	return t.print(s.Out)
}

// unevenRatio is when a master has so many times the shards that the fullest needs to have that
// another layout is worth it.
const unevenRatio = 1.5

// unevenText says that the shards lie unevenly, and the command that mends it; "" where they do not.
func (n *namespaceState) unevenText() string {
	s := n.Shards
	if s.Masters == 0 {
		return ""
	}
	least := (s.Current + s.Masters - 1) / s.Masters // that the fullest can have
	fullest := s.BusiestRatio * float64(s.Current) / float64(s.Masters)
	if fullest < unevenRatio*float64(least) {
		return ""
	}
	shards, again := min(1024, least*s.Masters), ""
	if shards == s.Current {
		again = " --again"
	}
	return fmt.Sprintf("of %d masters, the fullest has %.1f times the mean of its shards: spillway reshard %s %d%s",
		s.Masters, s.BusiestRatio, n.Namespace, shards, again)
}

// reshardText is what older shards still hold; "" where there are none.
func (n *namespaceState) reshardText() string {
	s := n.Shards
	if s.Older == 0 {
		return ""
	}
	text := fmt.Sprintf("  %s: its shards changed %s ago, and %s left in %d older ones", n.Namespace,
		since(s.OlderForMS), some(s.OlderEntries, "entry is", "entries are"), s.Older)
	if s.Unfenced > 0 {
		text += fmt.Sprintf(", %d of which may take entries still", s.Unfenced)
	}
	return text + ": see spillway layouts ls " + n.Namespace
}
