package operate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// agreement is how an act that cannot be undone is confirmed.
type agreement struct {
	Yes bool `short:"y" help:"Skip the confirmation. Required when input is not a terminal."`
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
