package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Top shows the state of the service. Its first lines say whether data is being
// lost, whose and why.
type Top struct {
	command `embed:""`

	Namespace string `arg:"" optional:"" help:"Only this namespace."`
	Once      bool   `help:"Print once and end. That is the default when output is not a terminal, and with -o json."`
	Sort      string `enum:"trouble,age,depth,fill,in,out,evicted,expired,name" default:"trouble" help:"Order of the partitions: trouble, what is evicted or expires and then the oldest; age, depth, fill, in, out, evicted, expired or name. The key s changes it."`
	Limit     int    `default:"20" help:"Partitions to list, at most 1000."`
}

// topEvery is how often the table is drawn: the service sweeps once a second.
const topEvery = time.Second

// Run prints the state, each second on a terminal.
func (c *Top) Run(ctx context.Context, s Streams) error {
	call := c.call("/api/v1/overview").of(c.Namespace).within("limit", c.Limit, 1000)
	if call.err != nil {
		return call.err
	}
	screen := file(s.Out)
	if screen != nil && !c.Once && c.Output == "text" {
		return c.live(ctx, call, s, func() (int, int) {
			width, height, err := term.GetSize(int(screen.Fd()))
			if err != nil || width < 1 || height < 1 {
				return 80, 24
			}
			return width, height
		})
	}
	v, err := c.view(ctx, call, sweepWait)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return v.print(s.Out)
	}
	_, err = fmt.Fprintln(s.Out, strings.Join(v.lines(call.base), "\n"))
	return err
}

// view is one state of the service.
type view struct {
	admin.Overview
	raw        json.RawMessage
	partitions *partitions
	sort       string
}

// view reads the state; call is that of the overview.
func (c *Top) view(ctx context.Context, call *call, wait time.Duration) (*view, error) {
	v := &view{sort: c.Sort}
	names, err := c.ofPartitions(ctx, c.Namespace)
	if err != nil {
		return nil, err
	}
	if wait > 0 { // a store that fails is not waited for
		if _, err = call.get(ctx, &v.Overview); err != nil {
			return nil, err
		}
		if !v.Store.Ready {
			wait = 0
		}
	}
	// Then the partitions: that starts the sweep, which knows the oldest age.
	if v.partitions, err = c.partitions(ctx, names, partitionQuery{sort: c.Sort,
		limit: c.Limit}, wait); err != nil {
		// While the store fails, the overview still says so.
		if answered(err).code != string(wire.CodeStoreUnavailable) {
			return nil, err
		}
		v.partitions = &partitions{}
	}
	v.Overview = admin.Overview{}
	v.raw, err = call.get(ctx, &v.Overview)
	return v, err
}

// print prints the overview, and the partitions beside it.
func (v *view) print(w io.Writer) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(v.raw, &all); err != nil {
		return err
	}
	var err error
	if all["partitions"], err = json.Marshal(v.partitions.json()); err != nil {
		return err
	}
	return printJSON(w, all)
}

func (v *view) lines(base string) []string {
	store := escape(v.Store.Mode) + " ready"
	if !v.Store.Ready {
		store = escape(v.Store.Mode) + " not ready"
	}
	if v.Store.RTTMS != nil {
		store += fmt.Sprintf(", %.2f ms", *v.Store.RTTMS)
	}
	lines := findingLines(strings.ToUpper(v.Findings.Headline), v.Findings.Findings)
	lines = append(lines, "", fmt.Sprintf("%s  role %s  store %s  writes under way %d  %s",
		base, escape(v.Role), store, v.Workers.Busy, clock(v.NowMS)), "")
	lines = append(lines, tablesOf(v.raw)...)
	switch {
	case len(v.Namespaces) == 0 && len(v.Queues) > 0:
		return lines
	case len(v.partitions.rows) == 0 && !v.Store.Ready:
		return append(lines, "", "Which partitions have entries is not known.")
	case len(v.partitions.rows) == 0:
		return append(lines, "", "No partition has entries.")
	}
	lines = append(lines, "", fmt.Sprintf("%d of %s, by %s", len(v.partitions.rows),
		human.Some(int64(v.partitions.total), "partition", "partitions"), v.sort))
	return append(lines, partitionTable(v.partitions.rows, len(v.Namespaces) > 1).lines()...)
}

// Control sequences of a terminal.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	reverse     = "\x1b[7m"
	plain       = "\x1b[0m"
)

// live draws until q, Ctrl-C or the end of ctx.
func (c *Top) live(ctx context.Context, call *call, s Streams,
	size func() (width, height int)) error {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	keys := make(chan byte)
	if keyboard := file(s.In); keyboard != nil {
		was, err := term.MakeRaw(int(keyboard.Fd()))
		if err != nil {
			return fmt.Errorf("read keys: %w", err)
		}
		defer func() { _ = term.Restore(int(keyboard.Fd()), was) }()
		go readKeys(ctx, s.In, keys) // a read from a terminal ends with the process
	}
	if _, err := io.WriteString(s.Out, enterScreen); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(s.Out, leaveScreen) }()
	tick := time.NewTicker(topEvery)
	defer tick.Stop()
	var last *view
	for {
		v, err := c.view(ctx, call, 0)
		if ctx.Err() != nil {
			return nil
		}
		var lines []string
		switch unreachable := new(noAnswer); {
		case err == nil:
			last, lines = v, v.lines(call.base)
		case errors.As(err, unreachable) || last != nil:
			lines = []string{"NO ANSWER: whether data is being lost is unknown", "  " + err.Error()}
			if last != nil {
				lines = append(lines, "", "The last answer:", "")
				lines = append(lines, last.lines(call.base)...)
			}
		default:
			return err
		}
		lines = append(lines, "", "q quits, s sorts by the next of trouble, age, depth, fill, in, out, evicted, expired, name")
		if err := draw(s.Out, lines, size); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			switch key {
			case 'q', 'Q', 3, 4: // Ctrl-C, Ctrl-D
				return nil
			case 's':
				c.nextSort()
			}
		case <-tick.C:
		}
	}
}

func (c *Top) nextSort() { c.Sort = orders[(orderOf(c.Sort)+1)%len(orders)].name }

func readKeys(ctx context.Context, from io.Reader, to chan<- byte) {
	key := make([]byte, 1)
	for {
		if n, err := from.Read(key); err != nil || n == 0 {
			return
		}
		select {
		case to <- key[0]:
		case <-ctx.Done():
			return
		}
	}
}

// draw writes what fits. The lines are escaped already.
func draw(w io.Writer, lines []string, size func() (width, height int)) error {
	width, height := size()
	if len(lines) > height { // the last line names the keys
		lines = append(slices.Clone(lines[:max(height-1, 0)]), lines[len(lines)-1])
	}
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines {
		if utf8.RuneCountInString(line) > width {
			line = string([]rune(line)[:width])
		}
		if i == 0 {
			line = reverse + line + plain
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + clearLine)
	}
	b.WriteString(clearBelow)
	_, err := io.WriteString(w, b.String())
	return err
}
