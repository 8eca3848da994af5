package operate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
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
