package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

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
func (c *Top) live(ctx context.Context, api *client, s Streams, size func() (width, height int)) error {
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
		v, err := c.read(ctx, api, 0)
		if ctx.Err() != nil {
			return nil
		}
		var lines []string
		switch unreachable := new(noAnswer); {
		case err == nil:
			last, lines = v, v.lines(api.base)
		case errors.As(err, unreachable) || last != nil:
			lines = []string{"NO ANSWER: whether data is being lost is unknown", "  " + err.Error()}
			if last != nil {
				lines = append(lines, "", "The last answer:", "")
				lines = append(lines, last.lines(api.base)...)
			}
		default:
			return err
		}
		lines = append(lines, "", "q quits, s sorts by the next of age, depth, fill, in, out, evicted, expired, name")
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

var sortOrder = []string{"age", "depth", "fill", "in", "out", "evicted", "expired", "name"}

func (c *Top) nextSort() {
	c.Sort = sortOrder[(slices.Index(sortOrder, c.Sort)+1)%len(sortOrder)]
}

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
