package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// Bounds of one call of the verbs of operators.
const (
	purgePage   = 500
	respawnPage = 100
	countPage   = 1000
)

// Purge deletes the ready jobs of a queue, and with all those in every other state, too. It
// works at an operator's pace: at most a fifth of Redis's time. What arrives meanwhile may
// be deleted, too. It returns how many jobs it deleted, also beside an error.
func (s *inspector) Purge(ctx context.Context, ns *Namespace, queue string,
	all bool) (deleted int64, err error) {
	if !partition.ValidQueue(queue) {
		return 0, ErrBadArgument
	}
	state := "ready"
	if all {
		state = "all"
	}
	for _, number := range ns.Shards(queue) {
		sh := ns.shardAt(number)
		if all {
			if err := s.dropKept(ctx, sh, queue); err != nil {
				return deleted, err
			}
		}
		for more := true; more; {
			c := backend.NewCall(luajob.Purge, sh.Breaker, sh.allOf(queue), queue, state, purgePage)
			c.Spare = &sh.ends
			if err := s.paced(ctx, c); err != nil {
				return deleted, err
			}
			seen, n := c.Rest.Int(), c.Rest.Int()
			if c.Rest.Broken {
				return deleted, c.Misread()
			}
			deleted += n
			more = seen >= purgePage
		}
	}
	return deleted, nil
}

// PurgeAll deletes all jobs of a namespace that is being deleted, and takes no new ones: what else it has goes with
// its keys. It returns how many, also beside an error.
func (s *inspector) PurgeAll(ctx context.Context, ns *Namespace) (deleted int64, err error) {
	queues, err := s.Queues(ctx, ns)
	for _, queue := range queues {
		n, err := s.Purge(ctx, ns, queue, true)
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, err
}

// paced runs one call of work that goes through many jobs.
func (s *core) paced(ctx context.Context, c *backend.Call) error {
	if err := s.pace.Do(ctx, func(running context.Context) {
		backend.RunOne(ctx, c, func(calls []*backend.Call) { s.backend.Run(running, s.backend.Background, calls) })
	}); err != nil {
		return backend.Wrap(backend.ErrUnavailable, err)
	}
	return c.Err
}

// allOf are the keys that verbs about one queue take.
func (sh *shard) allOf(queue string) []string {
	return []string{
		sh.Ledger, sh.lease, sh.attempts, sh.queues, sh.delay, sh.tombstones,
		sh.ready(queue), sh.jobs(queue), sh.dead(queue), sh.ids(queue),
	}
}

// DeadVerb is what a DeadAct does.
type DeadVerb string

// The verbs of a DeadAct.
const (
	RespawnDead DeadVerb = "respawn" // ready again, for one try more within TTL
	DeleteDead  DeadVerb = "delete"
	CountDead   DeadVerb = "count"
)

// deadEvents are what acts on dead letters are in events.
var deadEvents = map[DeadVerb]string{RespawnDead: "respawned", DeleteDead: "deleted"}

// A DeadAct is about the oldest dead letters of a queue that match its selection, or about those
// that it names.
type DeadAct struct {
	Namespace *Namespace
	Queue     string
	Verb      DeadVerb
	TTL       time.Duration // of those that respawn, 0 to MaxTTL; 0: for ever

	Limit  int           // at most so many, 1 or more; not of named ones
	Reason Reason        // that they died of; UnknownReason: any
	Error  string        // a part of what their last attempt said, which is at most MaxError; "": any
	Age    time.Duration // since they died, at least
	After  string        // Next of an act that an error ended; empty: begin at the oldest
	Next   string        // of an act that an error ended: where it goes on; not of named ones

	Named []Ref  // only these
	Did   []bool // of each of Named: it was dead, and the act is done
}

// MaxNamed bounds DeadAct.Named.
const MaxNamed = 1000

// Selects is whether the act is about some dead letters only, and not the oldest of any kind.
func (a *DeadAct) Selects() bool {
	return a.Reason != UnknownReason || a.Error != "" || a.Age > 0 || a.Named != nil
}

// ActOnDead runs an act, at an operator's pace: at most a fifth of Redis's time. It returns of how
// many it is done, also beside an error. Errors: ErrBadArgument and those of the store.
func (s *inspector) ActOnDead(ctx context.Context, a *DeadAct) (done int, err error) {
	if !partition.ValidQueue(a.Queue) || a.TTL < 0 || a.TTL > MaxTTL || a.Age < 0 || len(a.Named) > MaxNamed ||
		a.Named == nil && a.Limit < 1 {
		return 0, ErrBadArgument
	}
	if a.Named != nil {
		return s.actOnNamed(ctx, a)
	}
	after, score, seq, err := a.after()
	if err != nil {
		return 0, err
	}
	shards := a.Namespace.Shards(a.Queue)
	begin := fmt.Sprintf("%d--", shards[0])
	for _, number := range shards {
		if number < after {
			continue
		}
		if number > after {
			score, seq = "", ""
		}
		age, begun := ms(a.Age), int64(0) // what dies again meanwhile, and may for ever, is not of it
		for more := true; more && done < a.Limit; more = seq != "" {
			page := respawnPage
			if a.Verb == CountDead {
				page = countPage
			}
			c, err := s.deadCall(
				ctx,
				a,
				a.Namespace.shardAt(number),
				min(page, a.Limit-done),
				age,
				score,
				seq,
				nil,
			)
			if err != nil {
				if at := fmt.Sprintf("%d-%s-%s", number, score, seq); at != cmp.Or(a.After, begin) {
					a.Next = at
				}
				return done, err
			}
			n := c.Rest.Int()
			done += int(n)
			score = string(c.Rest.Bulk())
			seq = string(c.Rest.Bulk())
			if c.Rest.Broken {
				return done, c.Misread()
			}
			begun = cmp.Or(begun, c.Now)
			age = max(age, c.Now-begun, 1)
		}
	}
	return done, nil
}

// after reads After: a shard, and the score and sequence behind which the act begins there.
func (a *DeadAct) after() (shard int, score, seq string, err error) {
	if a.After == "" {
		return -1, "", "", nil
	}
	parts := strings.Split(a.After, "-")
	if len(parts) != 3 {
		return 0, "", "", ErrBadAfter
	}
	shard, err = strconv.Atoi(parts[0])
	if _, wrong := strconv.ParseUint(parts[2], 10, 53); wrong != nil && parts[2] != "" ||
		strings.Trim(parts[1], "0123456789.") != "" || (parts[1] == "") != (parts[2] == "") || strings.Count(parts[1], ".") > 1 || err != nil {
		return 0, "", "", ErrBadAfter
	}
	return shard, parts[1], parts[2], nil
}

func (s *inspector) actOnNamed(ctx context.Context, a *DeadAct) (done int, err error) {
	a.Did = make([]bool, len(a.Named))
	places := map[*shard][]int{} // in Named
	unknown := map[int]bool{}    // shards that there are not
	for i, ref := range a.Named {
		if unknown[ref.Shard] {
			continue
		}
		sh, err := s.findJob(ctx, a.Namespace, a.Queue, ref)
		switch {
		case err == nil:
			places[sh] = append(places[sh], i)
		case errors.Is(err, ErrNoJob):
			unknown[ref.Shard] = true
		default:
			return 0, err
		}
	}
	for sh, left := range places {
		for len(left) > 0 {
			page := left[:min(respawnPage, len(left))]
			left = slices.Clone(left[len(page):])
			c, err := s.deadCall(ctx, a, sh, 1, 0, "", "", page)
			if err != nil {
				return done, err
			}
			done += int(c.Rest.Int())
			c.Rest.Bulk()
			c.Rest.Bulk()
			for _, i := range page {
				switch c.Rest.Int() {
				case 1:
					a.Did[i] = true
					s.note(a.Namespace, a.Queue, a.Named[i], TraceEvent{AtMS: c.Now, Event: deadEvents[a.Verb]})
				case 2: // a call reads so much only
					left = append(left, i)
				}
			}
			if c.Rest.Broken {
				return done, c.Misread()
			}
		}
	}
	return done, nil
}

// deadCall runs one call of an act, about the places of Named, or the limit oldest behind a score and
// a sequence.
func (s *inspector) deadCall(ctx context.Context, a *DeadAct, sh *shard, limit int, age int64, score, seq string, named []int) (*backend.Call, error) {
	ttl := ms(a.TTL)
	if a.TTL > 0 {
		ttl = max(1, ttl)
	}
	argv := []any{
		a.Queue,
		string(a.Verb),
		limit,
		ttl,
		sh.channel,
		s.wake,
		int(a.Reason),
		age,
		a.Error,
		score,
		seq,
	}
	for _, i := range named {
		argv = append(argv, a.Named[i].text())
	}
	c := backend.NewCall(luajob.Respawn, sh.Breaker, sh.allOf(a.Queue), argv...)
	return c, s.paced(ctx, c)
}

// Dead lists dead letters of a queue, oldest first, at most 100 and about 1 MiB, after
// offset of them; several shards one after the other. total counts all of the queue.
func (s *inspector) Dead(ctx context.Context, ns *Namespace, queue string, offset,
	limit int) (list []Job, total int64, err error) {
	if !partition.ValidQueue(queue) || offset < 0 || limit < 1 {
		return nil, 0, ErrBadArgument
	}
	limit = min(limit, maxDeadPage)
	full := false
	for _, at := range ns.Shards(queue) {
		sh := ns.shardAt(at)
		skip := max(0, int64(offset)-total)
		count := limit - len(list)
		bytes := deadPageBytes
		if count == 0 || full {
			skip, count, bytes = 1<<40, 1, 1 // only the total
		}
		c := backend.NewCall(luajob.DeadPage, sh.Breaker, []string{
			sh.jobs(queue),
			sh.dead(queue),
			sh.ids(queue),
		}, skip, count, bytes)
		if err := s.read(ctx, c); err != nil {
			return nil, 0, err
		}
		total += c.Rest.Int()
		n := (c.More - 1) / 5
		for range n {
			seq := c.Rest.Bulk()
			at := c.Rest.Int()
			reason := c.Rest.Int()
			record := c.Rest.Bulk()
			errors := c.Rest.Bulk()
			j := Job{Queue: queue, At: at, Now: c.Now}
			if j.Seq, _ = number(seq); c.Rest.Broken || !parseRecord(record, &j) {
				return nil, 0, c.Misread()
			}
			j.Shard = sh.Number
			j.died(reason, errors)
			list = append(list, ns.complete(j))
		}
		full = full || n > 0 && n < count && int64(offset)+int64(len(list)) < total
		if c.Rest.Broken {
			return nil, 0, c.Misread()
		}
	}
	return list, total, nil
}

// MaxPauses is how many queues of a namespace may be paused.
const MaxPauses = partition.MaxPauses

// Pause stops the claims of a queue until Resume: publishes, delays and the leases that there are
// go on. When it has returned nil no process gives a job of the queue out. A second one replaces
// By and Reason. After an error it may be paused in some shards; repeat it. Errors: *partition.FieldError,
// partition.ErrTooManyPauses and those of the store.
func (s *inspector) Pause(ctx context.Context, ns *Namespace, queue string, p partition.Pause) error {
	text, err := p.Text()
	if err != nil {
		return err
	}
	least, _, err := s.setPause(ctx, ns, queue, "pause", text)
	if err == nil && least == 0 {
		err = partition.ErrTooManyPauses
	}
	return err
}

// Resume ends a pause, and wakes the claims that wait. was is false where nothing was paused.
func (s *inspector) Resume(ctx context.Context, ns *Namespace, queue string) (was bool, err error) {
	_, most, err := s.setPause(ctx, ns, queue, "resume", nil)
	return most > 0, err
}

// setPause pauses or resumes a queue in all shards, so that it does not matter which are its homes,
// and returns the least and the most that the script answered.
func (s *inspector) setPause(ctx context.Context, ns *Namespace, queue, verb string,
	text []byte) (least, most int64, err error) {
	if !partition.ValidQueue(queue) {
		return 0, 0, ErrBadArgument
	}
	if err := s.space.CheckOne(ctx, ns.Home); err != nil {
		return 0, 0, err
	}
	var calls []*backend.Call
	for _, sh := range ns.all() {
		calls = append(calls, backend.NewCall(luajob.Pause, sh.Breaker, []string{sh.paused, sh.ready(queue)},
			queue, verb, text, MaxPauses, sh.channel, s.wake))
	}
	s.backend.Run(ctx, s.backend.Background, calls)
	least = 1
	for _, c := range calls {
		code := c.Rest.Int()
		err = cmp.Or(err, c.Err)
		least, most = min(least, code), max(most, code)
	}
	return least, most, err
}

// A PausedQueue is a queue that is paused, and since when, by whom and why.
type PausedQueue struct {
	Queue string
	partition.Pause
}

// Pauses lists the queues of a namespace that are paused, by name.
func (s *inspector) Pauses(ctx context.Context, ns *Namespace) (list []PausedQueue, err error) {
	pipe := s.backend.Background.Pipeline()
	var paused []*redis.MapStringStringCmd
	for _, sh := range ns.all() {
		paused = append(paused, pipe.HGetAll(ctx, sh.paused))
	}
	err = s.reads.Do(ctx, func() error {
		_, err := pipe.Exec(ctx)
		return backend.Classify(err)
	})
	if err != nil {
		return nil, err
	}
	for _, one := range paused {
		for queue, text := range one.Val() {
			list = append(list, PausedQueue{
				Queue: queue,
				Pause: partition.ParsePause(text),
			})
		}
	}
	slices.SortStableFunc(list, func(a, b PausedQueue) int {
		return strings.Compare(a.Queue, b.Queue)
	})
	list = slices.CompactFunc(list, func(a, b PausedQueue) bool {
		return a.Queue == b.Queue // of several shards
	})
	return list, nil
}
