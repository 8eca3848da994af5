package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
)

// A call is one script to run: its EVALSHA arguments, then its outcome. Calls
// may be used again, which spares their arguments' and answers' memory.
type call struct {
	script *lua.Script
	args   []any
	cmd    *redis.RawWriteToCmd
	answer reply

	// Set when err is nil. The second of the whole numbers that the answer
	// begins with is the store's time, unless the script says otherwise.
	numbers []int64
	more    int    // values behind them
	rest    cursor // where those begin
	err     error  // in one of the store's classes
}

// firstKey is where the keys begin in args.
const firstKey = 3

// newCall makes a call: keys come first, then argv in order.
func newCall(script *lua.Script, keys []string, argv ...any) *call {
	c := &call{}
	c.begin(script, keys...)
	c.args = append(c.args, argv...)
	return c
}

// begin makes c a call of script; the rest of args is for the caller to add.
func (c *call) begin(script *lua.Script, keys ...string) {
	c.script = script
	c.args = append(c.args[:0], "evalsha", script.SHA, len(keys))
	for _, key := range keys {
		c.args = append(c.args, key)
	}
}

// command is the call as the client sends it, once: the client must not repeat
// a script whose answer was lost, and by its kind never does (on Redis Cluster
// MaxRetries alone would not prevent that; redirects are still followed).
func (c *call) command(ctx context.Context) afresh {
	c.answer.raw = c.answer.raw[:0]
	c.cmd = redis.NewRawWriteToCmd(ctx, &c.answer, c.args...)
	return afresh{c.cmd}
}

// afresh forgets what an earlier attempt ended with when it is written again. A
// cluster client writes a command again after MOVED, ASK or a failed dial, and
// when the connection breaks then, leaves that error on it: "not executed" for
// scripts that ran.
type afresh struct{ *redis.RawWriteToCmd }

func (a afresh) Args() []any {
	a.SetErr(nil)
	return a.RawWriteToCmd.Args()
}

// read parses the answer.
func (c *call) read() error {
	c.rest = cursor{rest: c.answer.raw}
	c.more, c.numbers = c.rest.array(), c.numbers[:0]
	for ; c.more > 0 && c.rest.isWhole(); c.more-- {
		c.numbers = append(c.numbers, c.rest.whole())
	}
	if c.rest.broken || len(c.numbers) < 2 {
		return &storeError{ErrBroken, fmt.Errorf("%s: %w", c.script.Name, errReply)}
	}
	return nil
}

// withText makes a call carry its script instead of the digest.
func (c *call) withText() { c.args[0], c.args[1] = "eval", c.script.Source }

// run sends all calls in one pipeline and fills in their outcomes. Those whose
// script Redis has forgotten (a restart, a failover, SCRIPT FLUSH) run again
// with its text, which also makes Redis remember it: NOSCRIPT means that they
// did not run. Where calls of one partition share a run, see Produce for what
// that may do to their order.
func (s *Store) run(ctx context.Context, client redis.UniversalClient, calls []*call) {
	s.runWith(ctx, client, calls, 0)
}

// runWith is run, with so many replicas to confirm what was written.
func (s *Store) runWith(ctx context.Context, client redis.UniversalClient, calls []*call, replicas int) {
	if len(calls) == 0 {
		return
	}
	if err := ctx.Err(); err != nil {
		for _, c := range calls {
			c.err = &storeError{ErrUnavailable, err} // nothing was sent
		}
		return
	}
	s.exec(ctx, client, calls, replicas)
	var again []*call
	for _, c := range calls {
		if c.err == nil || !noScript(c.cmd.Err()) {
			continue
		}
		c.withText()
		again = append(again, c)
	}
	if len(again) > 0 {
		s.metrics.reloads.Inc()
		s.exec(ctx, client, again, replicas)
	}
}

func (s *Store) exec(ctx context.Context, client redis.UniversalClient, calls []*call, replicas int) {
	pipe := client.Pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, c.command(ctx))
	}
	var wait *redis.Cmd
	if replicas > 0 {
		wait = awaitReplicas(ctx, pipe, replicas)
	}
	sent := time.Now()
	_, execErr := pipe.Exec(ctx)
	received := time.Now()
	s.metrics.roundTrip.Observe(received.Sub(sent).Seconds())
	unanswered := false
	for _, c := range calls {
		err := c.cmd.Err()
		if err == nil && len(c.answer.raw) == 0 {
			err = execErr // no connection was made; the commands are not told
		}
		if c.err = classify(err); c.err != nil {
			var answer redis.Error
			unanswered = unanswered || !errors.As(err, &answer)
			if !noScript(err) { // those run again
				s.metrics.failed(c.err)
			}
			continue
		}
		if c.err = c.read(); c.err != nil {
			s.metrics.failed(c.err)
			continue
		}
		s.clock.observe(sent, received, c.numbers[1])
		if wait != nil && c.numbers[0] != 0 { // 0: refused, nothing was written
			if c.err = unconfirmed(wait, replicas); c.err != nil {
				s.metrics.failed(c.err)
			}
		}
	}
	if cluster, ok := client.(*redis.ClusterClient); ok && unanswered {
		// After a failover the client would ask the old master for up to 10s.
		cluster.ReloadState(ctx)
	}
}

func noScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT ")
}

// load puts every script into every server that holds data.
func load(ctx context.Context, client redis.UniversalClient) error {
	return masters(ctx, client, func(ctx context.Context, c *redis.Client) error {
		pipe := c.Pipeline()
		for _, script := range lua.All() {
			pipe.ScriptLoad(ctx, script.Source)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}
