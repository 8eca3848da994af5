package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// Places compares where namespaces are to be with where Redis has them. Each pool has a hash of
// the namespaces that were used in it; that of DefaultPool has those of all pools. It belongs to
// one configuration, and is not safe for concurrent use.
type Places struct {
	control  *Control
	named    map[string]string // pool by namespace of the file
	pools    Pools
	passed   bool
	next     time.Time
	warnings []string
}

// Places are those of a file: named has the pool of each of its namespaces.
func (c *Control) Places(named map[string]string, pools Pools) *Places {
	return &Places{control: c, named: named, pools: pools}
}

const (
	placesEvery   = time.Minute            // how often it looks, once it passed
	placesTimeout = 500 * time.Millisecond // of one pool
)

// Check is backend.ErrIncompatible, until it passed once, where Redis has a namespace of the
// file in another pool: nobody would serve its data. Later that is a warning, as is data that
// no namespace is for.
func (p *Places) Check(ctx context.Context) ([]string, error) {
	if now := time.Now(); now.Before(p.next) || p.control.Refresh(ctx) != nil {
		return p.warnings, nil
	} else if p.passed {
		p.next = now.Add(placesEvery)
	}
	wanted := maps.Clone(p.named)
	for _, n := range p.control.Snapshot().Namespaces() {
		if wanted[n.Name] == "" {
			wanted[n.Name] = n.Pool
		}
	}
	known := map[string]map[string]string{}
	for pool, b := range p.pools {
		asking, cancel := context.WithTimeout(ctx, placesTimeout)
		if of, err := b.Background.HGetAll(asking, p.key()).Result(); err == nil {
			known[pool] = of // else the Check of the pool says so
		}
		cancel()
	}
	if known[DefaultPool] == nil {
		return p.warnings, nil
	}
	var warnings []string
	for _, pool := range slices.Sorted(maps.Keys(known)) {
		ask := map[string]bool{}
		for name, at := range known[pool] {
			ask[name] = (pool != DefaultPool || at == DefaultPool) && wanted[name] != pool
		}
		for name, want := range p.named { // also where an older version, which kept no list, used it
			ask[name] = ask[name] || want != pool && !p.passed
		}
		for name, asked := range ask {
			if !asked {
				continue
			}
			want := wanted[name]
			recorded := want != "" && p.recorded(ctx, pool, name)
			if recorded && p.recorded(ctx, want, name) {
				continue // its record says which layout lies where
			}
			held, epoch, err := p.held(ctx, pool, name)
			if recorded {
				held = max(1, held) // layouts that held does not know
			}
			switch {
			case err != nil && !p.passed:
				return p.warnings, nil // it is not known yet: the next look
			case held <= 0:
				continue
			case want == "":
				warnings = append(warnings, fmt.Sprintf(
					"namespace %s has entries or jobs in pool %s, and neither the file nor the control document names it: nobody serves them",
					name, pool))
				continue
			}
			if _, own, _ := p.held(ctx, want, name); own == epoch && epoch != "" {
				continue // two names of one Redis
			}
			text := fmt.Sprintf(
				"namespace %s: pool is %s, but entries, dead letters or jobs of it are in pool %s: set pool %[3]s, or have them delivered or purged there first; "+
					"a buffer moves by spillway reshard --pool",
				name, want, pool)
			if !p.passed && p.named[name] != "" {
				return nil, backend.Wrap(backend.ErrIncompatible, fmt.Errorf("%s", text))
			}
			warnings = append(warnings, text)
		}
	}
	for name, want := range p.named {
		last := known[DefaultPool][name]
		if _, open := p.pools[last]; last == "" || open || p.passed || p.recorded(ctx, want, name) || want != DefaultPool &&
			(known[want] == nil || known[want][name] != "") {
			continue
		}
		return nil, backend.Wrap(backend.ErrIncompatible, fmt.Errorf(
			"namespace %s: pool is %s, but it was last used in pool %s, which the file does not have: "+
				"name that pool again, or if nothing of it is left there, redis-cli HDEL '%s' %s", name, want, last, p.key(), name))
	}
	p.passed = true
	for pool, of := range known {
		b := p.pools[pool]
		p.open(ctx, pool, b)
		var news []any
		for name, want := range wanted {
			if (want == pool || pool == DefaultPool) && of[name] != want {
				news = append(news, name, want)
			}
		}
		if len(news) > 0 {
			_ = b.Background.HSet(ctx, p.key(), news...).Err() // a full store: at the next look
		}
	}
	slices.Sort(warnings)
	p.warnings = warnings
	return warnings, nil
}

// open lets publish store jobs in the namespaces of the file in a pool: one of that name may
// have been deleted at run time, here or by a process that has another file. It is two round
// trips. After an error the next look tries again.
func (p *Places) open(ctx context.Context, pool string, b *backend.Backend) {
	var asks []ledgerAsk
	asking := b.Background.Pipeline()
	opening := b.Background.Pipeline()
	for name, at := range p.named {
		if at == pool {
			asks = append(asks, askLedgers(ctx, asking, p.control.prefix, name))
		}
	}
	_, _ = asking.Exec(ctx)
	for _, ask := range asks {
		ledgers, err := ask.ledgers(1)
		if err != nil {
			continue // who serves it says so
		}
		for _, ledger := range ledgers {
			opening.HDel(ctx, ledger, "closed")
		}
	}
	_, _ = opening.Exec(ctx)
}

// A ledgerAsk asks the store which ledgers a namespace has.
type ledgerAsk struct {
	prefix, name string
	shards       *redis.StringCmd
	record       *redis.MapStringStringCmd
}

// askLedgers adds what is asked to a pipeline.
func askLedgers(ctx context.Context, pipe redis.Pipeliner, prefix, name string) ledgerAsk {
	return ledgerAsk{
		prefix: prefix,
		name:   name,
		shards: pipe.HGet(ctx, backend.ShardPrefix(prefix, name, 0)+"ledger", "shards"),
		record: pipe.HGetAll(ctx, space.RecordKey(prefix, name)),
	}
}

// ledgers are those of all layouts, once the pipeline was run. unused is how many shards it has where it
// was never used.
func (a ledgerAsk) ledgers(unused int) ([]string, error) {
	if err := a.record.Err(); err != nil {
		return nil, backend.Classify(err)
	}
	shards, _ := a.shards.Int()
	if shards < 1 {
		shards = unused
	}
	return space.Ledgers(a.prefix, a.name, a.record.Val(), min(shards, 1024))
}

func (p *Places) key() string { return p.control.prefix + ":{control}:namespaces" }

// recorded reports whether a pool has a copy of the record of the layouts of a namespace.
func (p *Places) recorded(ctx context.Context, pool, name string) bool {
	b := p.pools[pool]
	return b != nil && b.Background.Exists(ctx, space.RecordKey(p.control.prefix, name)).Val() > 0
}

// ledgerFields are what held adds up: of a buffer, then of queues.
var ledgerFields = strings.Fields("shards epoch accepted reclaimed dead_count delivered evicted expired dead lost published acked deleted")

// held is how many entries and dead letters, or jobs, of a namespace a pool has, by the ledgers;
// epoch names its first ledger, and is empty where there is none.
func (p *Places) held(ctx context.Context,
	pool, name string) (held int64, epoch string, err error) {
	b := p.pools[pool]
	if b == nil {
		return 0, "", nil
	}
	for shard, shards := 0, int64(1); int64(shard) < shards; shard++ {
		fields, err := b.Background.HMGet(ctx, backend.ShardPrefix(p.control.prefix, name, shard)+"ledger",
			ledgerFields...).Result()
		if err != nil {
			return held, epoch, err
		}
		n := func(field string) int64 {
			text, _ := fields[slices.Index(ledgerFields, field)].(string)
			n, _ := strconv.ParseInt(text, 10, 64)
			return n
		}
		if shard == 0 {
			shards = min(n("shards"), 1024)
			epoch, _ = fields[1].(string)
		}
		if n("published") > 0 {
			held += n("published") - n("acked") - n("expired") - n("deleted") - n("lost")
		} else {
			held += n("accepted") + n("reclaimed") +
				n("dead_count") - n("delivered") - n("evicted") - n("expired") - n("dead") - n("lost")
		}
	}
	return held, epoch, nil
}
