package partition

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// Ledger is the exact account of a namespace since its first entry, in entries:
// Accepted = Delivered + Evicted + Expired + Dead + Lost + Buffered.
type Ledger struct {
	Accepted  int64 `json:"accepted"`  // stored
	Delivered int64 `json:"delivered"` // a sink accepted them; at-most-once: handed to it
	Evicted   int64 `json:"evicted"`   // dropped from a full partition, without the reclaimed ones
	Expired   int64 `json:"expired"`   // older than Policy.MaxAge
	Dead      int64 `json:"dead"`      // rejected by the sink for good, with a dead letter each
	Lost      int64 `json:"lost"`      // removed by something other than Spillway: a TTL, an eviction by Redis, DEL
	Buffered  int64 `json:"buffered"`  // still stored: the difference of the others
}

// Overview is the ledger and the sizes of a namespace.
type Overview struct {
	Ledger      Ledger        `json:"ledger"`
	Reclaimed   int64         `json:"reclaimed"`            // entries evicted while leased and settled after all, since the first entry
	Purged      int64         `json:"purged"`               // entries that operators dropped, since the first entry; Ledger counts them as evicted
	Partitions  int64         `json:"partitions"`           // partitions that have entries now
	DeadLetters int64         `json:"dead_letters"`         // dead letters kept now
	DeadEvicted int64         `json:"dead_letters_evicted"` // dead letters dropped by MaxDead and MaxDeadBytes, since the first entry
	DeadBytes   int64         `json:"dead_letters_bytes"`   // bytes of the dead letters kept now
	Keys        int64         `json:"-"`                    // idempotency keys that are remembered now; up to a quarter more, because they are counted in steps
	Overdue     time.Duration `json:"-"`                    // how long the first partition in the queue has been due; 0 when none is due

	Paused           *Pause `json:"-"` // nil: the namespace is not paused. Several shards: the earliest
	PausedPartitions int64  `json:"-"` // partitions that are paused, each by itself
}

// Overview reads the ledger and the sizes of a namespace, in one round trip once the time of
// the store is known. Its Buffered comes from the ledger; Audit counts the entries. Errors:
// ErrTooManyReads where no read slot is free within 1s, and those of the store.
func (verbs) Overview(ctx context.Context, ns *Namespace) (o Overview, err error) {
	s := ns.store
	err = s.ledgerReads.Do(ctx, func() error {
		o, err = s.overview(ctx, ns)
		return err
	})
	return o, err
}

func (s *Store) overview(ctx context.Context, ns *Namespace) (o Overview, err error) {
	if err := s.space.Resolve(ctx, ns.home); err != nil {
		return Overview{}, err
	}
	shards := ns.shards()
	for _, sh := range shards {
		if !sh.Breaker.Allow() {
			return Overview{}, backend.ErrUnreachable // who reads one namespace after the other goes on
		}
	}
	now, err := s.backend.KnownTime(ctx)
	if err != nil {
		return Overview{}, err
	}
	all := s.readShards(ctx, shards)
	for _, r := range all {
		if r.err != nil {
			return Overview{}, r.err
		}
		o.DeadLetters += r.dead
		if r.dead > 0 { // after an operator deleted the list, the ledger still has its old size
			o.DeadBytes += r.field("dead_bytes")
		}
		o.Keys += backend.KeptKeys(r.fields["keys"], now)
		o.Partitions += r.active
		o.Paused = earlier(o.Paused, pauseOf(r.fields))
		o.PausedPartitions += pausedPartitions(r.fields["paused"], r.fields[pauseField+pauseAll] != "")
		if r.first != "" {
			o.Overdue = max(o.Overdue, time.Duration(now-r.due)*time.Millisecond)
		}
	}
	sum := func(field string) (n int64) {
		for _, r := range all {
			n += r.field(field)
		}
		return n
	}
	o.Reclaimed = sum("reclaimed")
	o.Purged = sum("purged")
	o.DeadEvicted = sum("dead_evicted")
	l := Ledger{
		Accepted:  sum("accepted"),
		Delivered: sum("delivered"),
		Evicted:   sum("evicted") - o.Reclaimed,
		Expired:   sum("expired"),
		Dead:      sum("dead"),
		Lost:      sum("lost"),
	}
	l.Buffered = l.Accepted - l.Delivered - l.Evicted - l.Expired - l.Dead - l.Lost
	o.Ledger = l
	return o, nil
}

// A shardReading is what one shard holds.
type shardReading struct {
	fields       map[string]string // of its ledger
	active, dead int64             // partitions with entries, and dead letters
	first        string            // the partition that is looked at next; empty: there is none
	due          int64             // when that is, ms
	err          error
}

func (r *shardReading) field(name string) int64 {
	n, _ := strconv.ParseInt(r.fields[name], 10, 64)
	return n
}

// readShards reads shards, in their order. One that does not answer has an error and hides none of
// the others.
func (s *Store) readShards(ctx context.Context, shards []*shard) []*shardReading {
	pipe := s.backend.Background.Pipeline()
	all := make([]*shardReading, len(shards))
	var read []func()
	for i, sh := range shards {
		r := &shardReading{}
		all[i] = r
		ledger := pipe.HGetAll(ctx, sh.Ledger)
		active := pipe.ZCard(ctx, sh.ready)
		first := pipe.ZRangeWithScores(ctx, sh.ready, 0, 0)
		dead := pipe.LLen(ctx, sh.dead)
		read = append(read, func() {
			r.fields = ledger.Val()
			r.active = active.Val()
			r.dead = dead.Val()
			for _, z := range first.Val() {
				r.first, r.due = fmt.Sprint(z.Member), int64(z.Score)
			}
			letters := dead.Err()
			if backend.IsWrongType(letters) {
				letters = nil // a foreign value hides the dead letters only
			}
			r.err = backend.Classify(cmp.Or(ledger.Err(), active.Err(), first.Err(), letters))
			if r.fields == nil {
				r.err = cmp.Or(r.err, backend.ErrUnavailable) // no connection was made
			}
		})
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, f := range read {
		f()
	}
	return all
}

// Audit counts the entries of every partition and returns the residual: the ledger's
// Buffered minus that count, in entries. It reads pages of 1,000 partitions, so the
// residual is 0 only while nothing else works on the namespace. Leased entries stay
// in their list and are counted. Errors: those of Overview.
func (verbs) Audit(ctx context.Context, ns *Namespace) (residual int64, err error) {
	s := ns.store
	const page = 1000
	var counted int64
	if err := s.space.Resolve(ctx, ns.home); err != nil {
		return 0, err
	}
	for _, sh := range ns.shards() {
		for from := int64(0); ; from += page {
			var found int
			err := s.ledgerReads.Do(ctx, func() error {
				names, err := s.backend.Background.ZRange(ctx, sh.ready, from, from+page-1).Result()
				if err != nil {
					return backend.Classify(err)
				}
				found = len(names)
				n, err := s.countEntries(ctx, sh, names)
				counted += n
				return err
			})
			if err != nil {
				return 0, err
			}
			if found < page {
				break
			}
		}
	}
	o, err := s.Overview(ctx, ns)
	return o.Ledger.Buffered - counted, err
}

// countEntries adds up the lengths of the partitions' lists.
func (s *Store) countEntries(ctx context.Context, sh *shard,
	names []string) (total int64, err error) {
	if len(names) == 0 {
		return 0, nil
	}
	pipe := s.backend.Background.Pipeline()
	lengths := make([]*redis.IntCmd, len(names))
	for i, name := range names {
		lengths[i] = pipe.LLen(ctx, sh.list(name))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, backend.Classify(err)
	}
	for _, n := range lengths {
		total += n.Val()
	}
	return total, nil
}
