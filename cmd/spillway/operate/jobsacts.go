package operate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// JobsPublish publishes jobs by hand.
type JobsPublish struct {
	command `embed:""`

	Namespace string         `arg:"" help:"The namespace."`
	Queue     string         `arg:"" help:"The queue."`
	Delay     *time.Duration `placeholder:"DURATION" help:"How long they wait until they are ready; default that of the queue's rule, or 0."`
	TTL       time.Duration  `help:"How long they live; 0 is for ever." default:"0"`
	Tries     int            `placeholder:"N" help:"How often they are claimed at most; default that of the queue's rule, or of the service."`
}

// publishAt is how many bytes of lines a request has: those of a longer one are rejected.
const publishAt = 48 << 10

// Run publishes them, some in a request.
func (c *JobsPublish) Run(ctx context.Context, s Streams) error {
	request := admin.PublishRequest{TTLMS: c.TTL.Milliseconds(), Tries: c.Tries}
	if c.Delay != nil {
		request.DelayMS = new(c.Delay.Milliseconds())
		if *c.Delay < 0 {
			return misuse("delay: want 0 or more")
		}
	}
	published, bytes := 0, 0
	send := func() error {
		if len(request.Data) == 0 {
			return nil
		}
		var answer admin.Published
		raw, err := c.oneQueue(c.Namespace, c.Queue).at("/jobs").post(ctx, &request, &answer)
		if err != nil {
			return fmt.Errorf("after %s: %w", human.Some(int64(published), "job that was published", "jobs that were published"), err)
		}
		published += len(answer.IDs)
		request.Data, bytes = nil, 0
		if c.Output == "json" {
			return printParts(s.Out, raw, "ids")
		}
		_, err = fmt.Fprintln(s.Out, strings.Join(answer.IDs, "\n"))
		return err
	}
	lines := bufio.NewScanner(s.In)
	lines.Buffer(nil, publishAt)
	for n := 1; lines.Scan(); n++ {
		line := slices.Clone(lines.Bytes())
		switch {
		case len(strings.TrimSpace(string(line))) == 0:
			continue
		case !json.Valid(line):
			if err := send(); err != nil {
				return err
			}
			return misuse("line %d is not JSON; those before it were published", n)
		case bytes+len(line) > publishAt || len(request.Data) == admin.MaxPublished:
			if err := send(); err != nil {
				return err
			}
		}
		request.Data = append(request.Data, line)
		bytes += len(line)
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = misuse("a line is longer than %d bytes: publish it by the data port", publishAt)
	}
	if err := errors.Join(send(), err); err != nil {
		return err
	}
	return s.tell("published %s", human.Some(int64(published), "job", "jobs"))
}
