package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
)

// A Call is one script to run: its EVALSHA arguments, then its result. A call can be
// reused, which saves the memory of its arguments and its reply.
type Call struct {
	script  *lua.Script
	breaker *Breaker // of its shard; nil: none
	Args    []any
	Text    bool  // it carries the text of its script, not the digest
	Tag     int64 // the caller's own
	Sent    time.Time
	cmd     *redis.RawWriteToCmd
	Answer  Reply

	// Set when Err is nil. Every reply is an array that begins with the store's time.
	Now  int64
	More int    // values after the time
	Rest Cursor // those values
	Err  error  // in one of the store's classes

	// Unconfirmed is set, beside a nil Err, when fewer replicas than asked for
	// have confirmed what the script wrote.
	Unconfirmed error

	// Spare are further keys, which it brings only where they are needed; nil: there are none.
	Spare   *Spare
	brought bool // it has them
}

// firstKey is where the keys begin in args.
const firstKey = 3

// NewCall makes a call: keys first, then argv. A nil breaker means that none can reject
// it.
func NewCall(script *lua.Script, breaker *Breaker, keys []string, argv ...any) *Call {
	c := &Call{}
	c.Begin(script, breaker, len(keys))
	for _, key := range keys {
		c.Args = append(c.Args, key)
	}
	c.Args = append(c.Args, argv...)
	return c
}

// Spare are keys of a shard that its scripts need once something there uses them. A script that
// lacks them answers SPARE, before it writes anything, and runs again with them behind its
// keys; from then on each call brings them.
type Spare struct {
	Keys   []any
	needed atomic.Bool
}

// Needed reports whether calls bring the keys.
func (s *Spare) Needed() bool { return s.needed.Load() }

// Need has calls bring the keys.
func (s *Spare) Need() { s.needed.Store(true) }

// bring adds the spare keys to a call that lacks them and needs them.
func (c *Call) bring() {
	if c.Spare == nil || c.brought || !c.Spare.Needed() {
		return
	}
	n := c.Args[2].(int)
	c.Args[2], c.brought = n+len(c.Spare.Keys), true
	c.Args = slices.Insert(c.Args, firstKey+n, c.Spare.Keys...)
}

func lacksSpare(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "SPARE ") }

// Begin makes c a call of script on the shard of a breaker, with the given number of keys. The
// caller appends the keys and arguments to Args.
func (c *Call) Begin(script *lua.Script, breaker *Breaker, keys int) {
	c.script = script
	c.breaker = breaker
	c.cmd = nil
	c.Spare = nil
	c.brought = false
	c.Args = append(c.Args[:0], "evalsha", script.SHA, keys)
	if c.Text {
		c.WithText()
	}
}

// command is the call as a command of the client. The client must not repeat a script
// whose reply was lost. It never repeats a RawWriteToCmd; on Redis Cluster MaxRetries
// alone would not prevent it. Redirects are still followed.
func (c *Call) command(ctx context.Context) resettingCmd {
	c.bring()
	c.Answer.Raw = c.Answer.Raw[:0]
	c.cmd = redis.NewRawWriteToCmd(ctx, &c.Answer, c.Args...)
	return resettingCmd{c.cmd}
}

// resettingCmd clears the error of an earlier attempt when it is written again. A
// cluster client writes a command again after MOVED, ASK or a failed dial. If the
// connection breaks then, the client leaves the earlier error on the command, which
// would say "not executed" about a script that ran.
type resettingCmd struct{ *redis.RawWriteToCmd }

func (a resettingCmd) Args() []any {
	a.SetErr(nil)
	return a.RawWriteToCmd.Args()
}

// Read parses the beginning of the reply.
func (c *Call) Read() error {
	c.Rest = Cursor{Rest: c.Answer.Raw}
	c.More = c.Rest.Array() - 1
	c.Now = c.Rest.Int()
	if c.Rest.Broken {
		return c.Misread()
	}
	return nil
}

// Misread is the error of a reply that does not have the form of the script's header.
func (c *Call) Misread() error {
	return &storeError{ErrBroken, fmt.Errorf("%s: %w", c.script.Name, errReply)}
}

// Rejected reads the answer of a partition where that is an error text; otherwise it is
// nil and reads nothing.
func (c *Call) Rejected() error {
	if !c.Rest.IsBulk() {
		return nil
	}
	return Classify(AnsweredError(c.Rest.Bulk()))
}

// WithText makes a call carry the text of its script instead of the digest.
func (c *Call) WithText() { c.Args[0], c.Args[1] = "eval", c.script.Source }

// Run sends all calls in one pipeline and sets their results. Calls whose script Redis
// has forgotten (a restart, a failover, SCRIPT FLUSH) run again with its text, which
// also loads the script. That is safe, because after NOSCRIPT they did not run. client is one
// of b's three; calls for shards of another Backend run there, at the same time, on its like.
func (b *Backend) Run(ctx context.Context, client redis.UniversalClient, calls []*Call) {
	b.apart(client, calls, func(b *Backend, client redis.UniversalClient, calls []*Call) {
		b.runWith(ctx, client, calls, 0)
	})
}

// apart runs the calls of each Backend with the client of it that is for the same as client is. A call
// without a breaker is b's.
func (b *Backend) apart(client redis.UniversalClient, calls []*Call,
	run func(*Backend, redis.UniversalClient, []*Call)) {
	others := func(c *Call) bool { return c.breaker != nil && c.breaker.backend != b }
	if !slices.ContainsFunc(calls, others) {
		run(b, client, calls)
		return
	}
	parts := map[*Backend][]*Call{}
	for _, c := range calls {
		of := b
		if others(c) {
			of = c.breaker.backend
		}
		parts[of] = append(parts[of], c)
	}
	var running sync.WaitGroup
	for of, part := range parts {
		like := of.Background
		switch client {
		case b.In:
			like = of.In
		case b.Out:
			like = of.Out
		}
		running.Go(func() { run(of, like, part) })
	}
	running.Wait()
}

// runWith is Run, and waits for the given number of replicas.
func (b *Backend) runWith(ctx context.Context, client redis.UniversalClient, calls []*Call,
	replicas int) {
	if calls = b.reachable(calls); len(calls) == 0 {
		return
	}
	if err := ctx.Err(); err != nil {
		for _, c := range calls {
			c.Err = &storeError{ErrUnavailable, err} // nothing was sent
		}
		return
	}
	for _, c := range calls {
		if c.breaker != nil {
			c.breaker.sent()
		}
	}
	// A call runs again at most twice: for its text, and for its spare keys.
	for again := calls; len(again) > 0; {
		b.exec(ctx, client, again, replicas)
		ran, reloads := again, 0
		again = nil
		for _, c := range ran {
			switch {
			case c.Err == nil:
			case noScript(c.cmd.Err()) && c.Args[0] != "eval":
				c.WithText()
				reloads++
				again = append(again, c)
			case lacksSpare(c.cmd.Err()) && c.Spare != nil && !c.brought:
				c.Spare.Need()
				again = append(again, c)
			}
		}
		if reloads > 0 {
			b.metrics.reloads.Inc()
		}
	}
	for _, c := range calls {
		if c.breaker != nil {
			c.breaker.answered(c.Err)
		}
	}
	reportToBreakers(calls)
}

func (b *Backend) exec(ctx context.Context, client redis.UniversalClient, calls []*Call,
	replicas int) {
	pipe := client.Pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, c.command(ctx))
	}
	var wait *redis.Cmd
	if replicas > 0 {
		wait = awaitReplicas(ctx, pipe, replicas)
	}
	sent := time.Now()
	for _, c := range calls {
		c.Sent = sent
	}
	_, execErr := pipe.Exec(ctx)
	received := time.Now()
	b.metrics.roundTrip.Observe(received.Sub(sent).Seconds())
	unanswered := false
	for _, c := range calls {
		err := c.cmd.Err()
		if err == nil && len(c.Answer.Raw) == 0 {
			err = execErr // no connection was made; the commands have no error of their own
		}
		if c.Err = Classify(err); c.Err != nil {
			b.LeaveReplica(err)
			var answer redis.Error
			unanswered = unanswered || !errors.As(err, &answer)
			if !noScript(err) && !lacksSpare(err) { // these run again
				b.metrics.failed(c.Err)
			}
			continue
		}
		if c.Err = c.Read(); c.Err != nil {
			b.metrics.failed(c.Err)
			continue
		}
		b.clock.Observe(sent, received, c.Now)
		c.Unconfirmed = nil
		if wait != nil {
			c.Unconfirmed = unconfirmed(wait, replicas)
		}
	}
	if cluster, ok := client.(*redis.ClusterClient); ok && unanswered {
		// After a failover the client would ask the old master for up to 10 s: a dial that
		// is rejected does not make it renew its slot map.
		cluster.ReloadState(ctx)
	}
}

func noScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT ")
}

// Load loads scripts into every master.
func (b *Backend) Load(ctx context.Context, scripts []*lua.Script) error {
	return Classify(EachMaster(ctx, b.In, func(ctx context.Context, c *redis.Client) error {
		pipe := c.Pipeline()
		for _, script := range scripts {
			pipe.ScriptLoad(ctx, script.Source)
		}
		_, err := pipe.Exec(ctx)
		return err
	}))
}
