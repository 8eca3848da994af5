package partition

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
)

// once is a command that the client must not send twice. On Redis Cluster
// MaxRetries alone does not prevent that; redirects are still followed.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// A call is one script to run: its EVALSHA arguments, then its outcome.
type call struct {
	script *lua.Script
	cmd    *redis.Cmd
	reply  []any // set when err is nil; reply[1] is the store's time unless the script says otherwise
	err    error // in one of the store's classes
}

// newCall makes the arguments; keys come first, then argv in order.
func newCall(ctx context.Context, script *lua.Script, keys []string, argv ...any) *call {
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, "evalsha", script.SHA, len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	return &call{script: script, cmd: redis.NewCmd(ctx, append(args, argv...)...)}
}

// run sends all calls in one pipeline and fills in their outcomes. Those whose
// script Redis has forgotten (a restart, a failover, SCRIPT FLUSH) run again
// with its text, which also makes Redis remember it: NOSCRIPT means that they
// did not run. Where calls of one partition share a run, see Produce for what
// that may do to their order.
func (s *Store) run(ctx context.Context, client redis.UniversalClient, calls []*call) {
	if len(calls) == 0 {
		return
	}
	if err := ctx.Err(); err != nil {
		for _, c := range calls {
			c.err = &storeError{ErrUnavailable, err} // nothing was sent
		}
		return
	}
	s.exec(ctx, client, calls)
	var again []*call
	for _, c := range calls {
		if c.err == nil || !noScript(c.cmd.Err()) {
			continue
		}
		args := slices.Clone(c.cmd.Args())
		args[0], args[1] = "eval", c.script.Source
		c.cmd = redis.NewCmd(ctx, args...)
		again = append(again, c)
	}
	if len(again) > 0 {
		s.metrics.reloads.Inc()
		s.exec(ctx, client, again)
	}
}

func (s *Store) exec(ctx context.Context, client redis.UniversalClient, calls []*call) {
	pipe := client.Pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, once{c.cmd})
	}
	sent := time.Now()
	_, execErr := pipe.Exec(ctx)
	received := time.Now()
	s.metrics.roundTrip.Observe(received.Sub(sent).Seconds())
	unanswered := false
	for _, c := range calls {
		err := c.cmd.Err()
		if err == nil && c.cmd.Val() == nil {
			err = execErr // no connection was made; the commands are not told
		}
		c.reply, c.err = nil, classify(err)
		if c.err != nil {
			var answer redis.Error
			unanswered = unanswered || !errors.As(err, &answer)
			if !noScript(err) { // those run again
				s.metrics.failed(c.err)
			}
			continue
		}
		reply, ok := c.cmd.Val().([]any)
		if !ok || len(reply) < 2 {
			c.err = &storeError{ErrBroken, errors.New(c.script.Name + ": a reply of another form")}
			s.metrics.failed(c.err)
			continue
		}
		c.reply = reply
		s.clock.observe(sent, received, whole(reply[1]))
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

// whole reads an integer of a reply; our scripts return nothing else where one
// is declared.
func whole(v any) int64 {
	n, _ := v.(int64)
	return n
}
