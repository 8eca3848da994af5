package partition

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
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

	Shards ShardStates `json:"-"`
}

// ShardStates are the shards of a namespace by the state of their layout.
type ShardStates struct {
	Current      int           `json:"current"`
	Older        int           `json:"older"`
	Closed       int           `json:"-"`
	Unfenced     int           `json:"unfenced"`      // of the older ones: those that may take entries still
	OlderEntries int64         `json:"older_entries"` // stored in the older ones
	OlderFor     time.Duration `json:"-"`             // how long there have been older ones; 0: there are none
	Busiest      int           `json:"-"`             // of the current ones: those of the master that has most
	Masters      int           `json:"masters"`       // of the cluster; 0: it is none, or has not said
}

// BusiestRatio is what the fullest master has of the current shards, divided by the mean of all
// masters: 1 is even, and what it is without a cluster.
func (s ShardStates) BusiestRatio() float64 {
	if s.Masters == 0 || s.Current == 0 {
		return 1
	}
	return float64(s.Busiest*s.Masters) / float64(s.Current)
}

// Overview reads the ledger and the sizes of a namespace, in one round trip a pool once the time of
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
	layouts, open := ns.home.Layouts(), ns.openShards()
	counted := layouts.Counted()
	for _, at := range counted {
		if !at.Breaker.Allow() {
			return Overview{}, backend.ErrUnreachable // who reads one namespace after the other goes on
		}
	}
	now, err := ns.backend().KnownTime(ctx)
	if err != nil {
		return Overview{}, err
	}
	all := s.readShards(ctx, counted)
	paused := map[string]bool{} // while the shards change, a pause may be in two homes
	for _, at := range counted {
		sh, r := own(at), all[at]
		if r.err != nil {
			return Overview{}, r.err
		}
		o.Shards.count(layouts, sh, o.add(r.field), r.field("fence"))
		o.DeadLetters += r.dead
		if r.dead > 0 { // after an operator deleted the list, the ledger still has its old size
			o.DeadBytes += r.field("dead_bytes")
		}
		o.Keys += backend.KeptKeys(r.fields["keys"], now)
		o.Partitions += r.active
		if !slices.Contains(open, sh) || r.fields["closed"] != "" {
			continue // the pauses of a closed shard were copied
		}
		o.Paused = earlier(o.Paused, pauseOf(r.fields))
		if r.fields["paused"] != "" {
			for name := range r.fields {
				paused[name] = paused[name] || strings.HasPrefix(name, pauseField) &&
					name != pauseField+pauseAll
			}
		}
		if r.first != "" {
			o.Overdue = max(o.Overdue, time.Duration(now-r.due)*time.Millisecond)
		}
	}
	for _, l := range layouts.All {
		if l.Sums != nil {
			o.add(func(name string) int64 { return l.Sums[name] })
		}
	}
	for _, is := range paused {
		if is {
			o.PausedPartitions++
		}
	}
	current := layouts.Current()
	if o.Shards.Older > 0 {
		o.Shards.OlderFor = time.Duration(max(1, now-current.Made)) * time.Millisecond
	}
	var ledgers []string
	for _, sh := range current.Shards {
		ledgers = append(ledgers, sh.Ledger)
	}
	o.Shards.Busiest, o.Shards.Masters = ns.backend().Busiest(ctx, ledgers)
	o.Ledger.Buffered = o.Ledger.stored()
	return o, nil
}

// add counts the ledger of a shard, or the sums of several. It returns how many entries they say
// are stored.
func (o *Overview) add(field func(string) int64) (stored int64) {
	l := ledgerOf(field)
	o.Ledger.Accepted += l.Accepted
	o.Ledger.Delivered += l.Delivered
	o.Ledger.Evicted += l.Evicted
	o.Ledger.Expired += l.Expired
	o.Ledger.Dead += l.Dead
	o.Ledger.Lost += l.Lost
	o.Reclaimed += field("reclaimed")
	o.Purged += field("purged")
	o.DeadEvicted += field("dead_evicted")
	return l.stored()
}

// sumFields are the fields of a ledger that add reads.
var sumFields = []string{"accepted", "delivered", "evicted", "reclaimed", "expired", "dead", "lost",
	"lost_count", "purged", "dead_evicted"}

// ledgerOf is the account of one shard, from the fields of its ledger.
func ledgerOf(field func(string) int64) Ledger {
	return Ledger{
		Accepted:  field("accepted"),
		Delivered: field("delivered"),
		Evicted:   field("evicted") - field("reclaimed"),
		Expired:   field("expired"),
		Dead:      field("dead"),
		Lost:      field("lost") + field("lost_count"), // lost is a word where a newer layout fenced the shard
	}
}

// stored is how many entries the totals say are stored.
func (l Ledger) stored() int64 {
	return l.Accepted - l.Delivered - l.Evicted - l.Expired - l.Dead - l.Lost
}

// count adds a shard that holds so many entries.
func (s *ShardStates) count(layouts *space.Layouts, sh *shard, entries, fence int64) {
	switch {
	case sh.Layout == layouts.Current().N:
		s.Current++
	case layouts.Closed(sh.Layout):
		s.Closed++
	default:
		s.Older++
		s.OlderEntries += entries
		if fence <= sh.Layout {
			s.Unfenced++
		}
	}
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
	for _, sh := range ns.openShards() {
		if ns.home.Layouts().Find(sh.Layout).Sums != nil {
			continue // given up, and back
		}
		for from := int64(0); ; from += page {
			var found int
			err := s.ledgerReads.Do(ctx, func() error {
				names, err := sh.Backend.Background.ZRange(ctx, sh.ready, from, from+page-1).Result()
				if err != nil {
					return backend.Classify(err)
				}
				found = len(names)
				n, err := countEntries(ctx, sh, names)
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
func countEntries(ctx context.Context, sh *shard,
	names []string) (total int64, err error) {
	if len(names) == 0 {
		return 0, nil
	}
	pipe := sh.Backend.Background.Pipeline()
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
