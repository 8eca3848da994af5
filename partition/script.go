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

// A call is one script to run: its EVALSHA arguments, then its result. A call can be
// reused, which saves the memory of its arguments and its reply.
type call struct {
	script  *lua.Script
	breaker *breaker // of its shard; nil: none
	args    []any
	text    bool  // it carries the text of its script, not the digest
	linger  int64 // ms, of a produce
	sent    time.Time
	cmd     *redis.RawWriteToCmd
	answer  reply

	// Set when err is nil. Every reply is an array that begins with the store's time.
	now  int64
	more int    // values after the time
	rest cursor // those values
	err  error  // in one of the store's classes

	// unconfirmed is set, beside a nil err, when fewer replicas than asked for
	// have confirmed what the script wrote.
	unconfirmed error
}

// firstKey is where the keys begin in args.
const firstKey = 3

// newCall makes a call: keys first, then argv. A nil shard means that no breaker can
// refuse it.
func newCall(script *lua.Script, sh *shard, keys []string, argv ...any) *call {
	c := &call{}
	c.begin(script, sh, len(keys))
	for _, key := range keys {
		c.args = append(c.args, key)
	}
	c.args = append(c.args, argv...)
	return c
}

// begin makes c a call of script on a shard with the given number of keys. The caller
// appends the keys and arguments to args.
func (c *call) begin(script *lua.Script, sh *shard, keys int) {
	c.script, c.breaker, c.cmd = script, nil, nil
	if sh != nil {
		c.breaker = &sh.breaker
	}
	c.args = append(c.args[:0], "evalsha", script.SHA, keys)
	if c.text {
		c.withText()
	}
}

// command is the call as a command of the client. The client must not repeat a script
// whose reply was lost. It never repeats a RawWriteToCmd; on Redis Cluster MaxRetries
// alone would not prevent it. Redirects are still followed.
func (c *call) command(ctx context.Context) resettingCmd {
	c.answer.raw = c.answer.raw[:0]
	c.cmd = redis.NewRawWriteToCmd(ctx, &c.answer, c.args...)
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

// read parses the beginning of the reply.
func (c *call) read() error {
	c.rest = cursor{rest: c.answer.raw}
	c.more = c.rest.array() - 1
	c.now = c.rest.whole()
	if c.rest.broken {
		return c.misread()
	}
	return nil
}

// misread is the error of a reply that does not have the form of the script's header.
func (c *call) misread() error {
	return &storeError{ErrBroken, fmt.Errorf("%s: %w", c.script.Name, errReply)}
}

// refused reads the answer of a partition where that is an error text; otherwise it is
// nil and reads nothing.
func (c *call) refused() error {
	if !c.rest.isBulk() {
		return nil
	}
	return classify(answeredError(c.rest.bulk()))
}

// withText makes a call carry the text of its script instead of the digest.
func (c *call) withText() { c.args[0], c.args[1] = "eval", c.script.Source }

// run sends all calls in one pipeline and sets their results. Calls whose script Redis
// has forgotten (a restart, a failover, SCRIPT FLUSH) run again with its text, which
// also loads the script. That is safe, because after NOSCRIPT they did not run.
func (s *Store) run(ctx context.Context, client redis.UniversalClient, calls []*call) {
	s.runWith(ctx, client, calls, 0)
}

// runWith is run, and waits for the given number of replicas.
func (s *Store) runWith(ctx context.Context, client redis.UniversalClient, calls []*call, replicas int) {
	if calls = s.reachable(calls); len(calls) == 0 {
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
	reportToBreakers(calls)
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
	for _, c := range calls {
		c.sent = sent
	}
	_, execErr := pipe.Exec(ctx)
	received := time.Now()
	s.metrics.roundTrip.Observe(received.Sub(sent).Seconds())
	unanswered := false
	for _, c := range calls {
		err := c.cmd.Err()
		if err == nil && len(c.answer.raw) == 0 {
			err = execErr // no connection was made; the commands have no error of their own
		}
		if c.err = classify(err); c.err != nil {
			var answer redis.Error
			unanswered = unanswered || !errors.As(err, &answer)
			if !noScript(err) { // these run again
				s.metrics.failed(c.err)
			}
			continue
		}
		if c.err = c.read(); c.err != nil {
			s.metrics.failed(c.err)
			continue
		}
		s.clock.observe(sent, received, c.now)
		c.unconfirmed = nil
		if wait != nil {
			c.unconfirmed = unconfirmed(wait, replicas)
		}
	}
	if cluster, ok := client.(*redis.ClusterClient); ok && unanswered {
		// After a failover the client would ask the old master for up to 10 s.
		cluster.ReloadState(ctx)
	}
}

func noScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT ")
}

// A job is a call for several items, which are in order.
type job[T any] struct {
	*call
	items []T
}

// runJobs fills the calls of jobs and runs them. While a cluster migrates a slot, it
// refuses a call where one of several keys does not exist (TRYAGAIN), although most
// items could be served. So these items are sent again one by one, except those for
// which hasLater is true: they would run after a later call of the same partition. It
// returns the jobs that ended; those sent again come last.
func runJobs[T any](jobs []job[T], fill func(*call, []T), run func([]*call), hasLater func(T) bool) []job[T] {
	calls := make([]*call, len(jobs))
	split := false
	for i, j := range jobs {
		fill(j.call, j.items)
		calls[i] = j.call
	}
	run(calls)
	for _, j := range jobs {
		split = split || j.refusedByMigration()
	}
	if !split {
		return jobs
	}
	var all, again []job[T]
	calls = calls[:0]
	for _, j := range jobs {
		if !j.refusedByMigration() {
			all = append(all, j)
			continue
		}
		for i := range j.items {
			one := job[T]{&call{}, j.items[i : i+1]}
			if hasLater != nil && hasLater(j.items[i]) {
				one.err = j.err
				all = append(all, one)
				continue
			}
			fill(one.call, one.items)
			calls = append(calls, one.call)
			again = append(again, one)
		}
	}
	run(calls)
	return append(all, again...)
}

func (j job[T]) refusedByMigration() bool {
	return len(j.items) > 1 && j.err != nil && j.cmd != nil && j.cmd.Err() != nil &&
		strings.HasPrefix(j.cmd.Err().Error(), "TRYAGAIN ")
}

// load loads every script into every master.
func load(ctx context.Context, client redis.UniversalClient) error {
	return eachMaster(ctx, client, func(ctx context.Context, c *redis.Client) error {
		pipe := c.Pipeline()
		for _, script := range lua.All() {
			pipe.ScriptLoad(ctx, script.Source)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}
