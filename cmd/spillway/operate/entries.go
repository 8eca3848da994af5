package operate

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// Tail prints a sample of the entries that arrive.
type Tail struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Partition string `arg:"" optional:"" help:"Only this partition. Without it, some of those that take entries."`
	PerSecond int    `default:"10" help:"Entries to print per second, at most 50. The others are left out."`
	Unmasked  bool   `help:"Show the values of masked fields. Needs the role admin."`
}

const (
	tailIdle = 15 * time.Second // the service sends an empty line each 5 s
	maxTail  = 256 << 10        // bytes of a line: a payload of 32 KiB as escaped JSON
)

type tailLine struct {
	admin.TailLine
	Ended string `json:"ended"`
}

// Run prints one entry a line until ctx or the service ends it.
func (c *Tail) Run(ctx context.Context, s Streams) error {
	call := c.namespace(c.Namespace).check(validPartition(c.Partition)).at("/tail").within("per-second", c.PerSecond, 50)
	call.set("per_second", digits(c.PerSecond)).set("partition", c.Partition).on("unmasked", c.Unmasked)
	return call.stream(ctx, func(line []byte) (bool, error) {
		var l tailLine
		if err := json.Unmarshal(line, &l); err != nil {
			return false, errors.New("the service sent a line that is no JSON")
		}
		if l.Ended != "" {
			return true, s.tell("the service ended the tail (%s); start it again for more",
				escape(l.Ended))
		}
		if c.Output == "json" {
			return false, printJSON(s.Out, json.RawMessage(line))
		}
		_, err := fmt.Fprintf(
			s.Out,
			"%s  %s  %s  %s\n",
			time.UnixMilli(l.OccurredMS).UTC().Format("15:04:05.000"),
			escape(l.Partition),
			escape(cmp.Or(l.ID, "-")),
			escape(body(&l.Shown)),
		)
		return false, err
	})
}

// stream calls each with the lines of an answer until it says done, the service
// ends the answer or ctx ends. A service that falls silent is an error.
func (c *call) stream(ctx context.Context, each func(line []byte) (done bool, err error)) error {
	if c.err != nil {
		return c.err
	}
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silent := noAnswer{fmt.Errorf("%s fell silent: no line for %v", c.base, tailIdle)}
	idle := time.AfterFunc(c.timeout, func() { stop(silent) })
	defer idle.Stop()
	failed := func(err error) error {
		if ctx.Err() != nil {
			return nil // interrupted, which is how a tail ends
		}
		if cause := context.Cause(reading); cause != nil {
			return cause
		}
		return c.explain(ctx, http.MethodGet, c.timeout, err)
	}
	res, err := c.send(reading, http.MethodGet, c.target(), nil, nil)
	if err != nil {
		return failed(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(io.LimitReader(res.Body, maxTail))
		if err != nil {
			return failed(err)
		}
		return c.rejected(res, answer)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxTail)
	for idle.Reset(tailIdle); lines.Scan(); idle.Reset(tailIdle) {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if done, err := each(lines.Bytes()); done || err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return failed(err)
	}
	return failed(io.ErrUnexpectedEOF)
}
