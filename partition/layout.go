package partition

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// format is the version of the stored data. A program refuses a newer format, so an old
// program cannot damage new data during a rolling upgrade.
const format = 1

// queueFormat is the format of a namespace of kind queue: see partition/job.
const queueFormat = 2

// shardLedger is the ledger of one shard, as checkLayout reads it.
type shardLedger struct {
	ns     *Namespace
	sh     *shard
	fields map[string]*redis.StringCmd
	epoch  *redis.StringCmd
	writes []*redis.BoolCmd
	err    error // why it could not be read or written
}

// shardLedgers are those of all shards for which wanted is true.
func (s *Store) shardLedgers(wanted func(*shard) bool) (list []*shardLedger) {
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			if wanted(&ns.shards[i]) {
				list = append(list, &shardLedger{ns: ns, sh: &ns.shards[i]})
			}
		}
	}
	return list
}

// checkLayout compares format and shards with every ledger, and records them where a
// namespace is new to the store. It records nothing while a ledger cannot be read; with
// all false it ignores those that cannot be read.
func (s *Store) checkLayout(ctx context.Context, list []*shardLedger, all bool) error {
	// Read first, which is usually enough: a full store refuses to write even what it
	// holds already.
	missing, noEpoch, err := s.compareLayouts(ctx, list, "")
	if err != nil {
		return err
	}
	var read []*shardLedger
	for _, l := range list {
		if l.err == nil {
			read = append(read, l)
		}
	}
	if !missing && !noEpoch || all && len(read) < len(list) {
		return nil
	}
	_, _, err = s.compareLayouts(ctx, read, rand.Text())
	if missing {
		return err
	}
	for _, l := range read {
		l.err = nil // a ledger from before there were epochs gets one once the store is no longer full
	}
	return nil
}

// compareLayouts is compareLayout for each server, concurrently.
func (s *Store) compareLayouts(ctx context.Context, list []*shardLedger, epoch string) (missing, noEpoch bool, err error) {
	byServer := map[redis.Cmdable][]*shardLedger{}
	for _, l := range list {
		server := s.backend.ClientFor(ctx, l.sh.ledger)
		byServer[server] = append(byServer[server], l)
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	for server, part := range byServer {
		running.Go(func() {
			m, n, e := compareLayout(ctx, server, part, epoch)
			mu.Lock()
			defer mu.Unlock()
			missing, noEpoch, err = missing || m, noEpoch || n, errors.Join(err, e)
		})
	}
	running.Wait()
	for _, l := range list {
		if l.err != nil {
			s.backend.ReloadClusterMap(ctx)
			break
		}
	}
	return missing, noEpoch, err
}

// compareLayout reads ledgers in one pipeline. Where epoch is not empty it first writes
// what is missing, epoch included: a random name of this ledger that no later one has.
// Of several programs the first one wins, and all read what it wrote.
func compareLayout(ctx context.Context, client redis.Cmdable, list []*shardLedger, epoch string) (missing, noEpoch bool, err error) {
	pipe := client.Pipeline()
	for _, l := range list {
		l.fields, l.writes, l.err = map[string]*redis.StringCmd{}, nil, nil
		for name, want := range l.ns.layout() {
			if epoch != "" {
				l.writes = append(l.writes, pipe.HSetNX(ctx, l.sh.ledger, name, want))
			}
			l.fields[name] = pipe.HGet(ctx, l.sh.ledger, name)
		}
		if epoch != "" {
			l.writes = append(l.writes, pipe.HSetNX(ctx, l.sh.ledger, "epoch", epoch))
		}
		l.epoch = pipe.HGet(ctx, l.sh.ledger, "epoch")
	}
	_, execErr := pipe.Exec(ctx)
	for _, l := range list {
		for _, cmd := range l.writes {
			l.failed(cmd.Err())
		}
		for name, cmd := range l.fields {
			value, err := cmd.Result()
			if err == nil && value == "" {
				err = execErr // no connection was made; the commands have no error of their own
			}
			if errors.Is(err, redis.Nil) {
				missing = true
			} else if err != nil {
				l.failed(err)
			} else if err := checkLayoutField(l.ns.Name, name, value, l.ns.layout()[name]); err != nil {
				return false, false, backend.Wrap(ErrIncompatible, err)
			}
		}
		noEpoch = noEpoch || errors.Is(l.epoch.Err(), redis.Nil)
		l.sh.breaker.Done(l.err)
	}
	return missing, noEpoch, nil
}

// failed keeps the first error of a ledger.
func (l *shardLedger) failed(err error) {
	if l.err == nil {
		l.err = backend.Classify(err)
	}
}

// layout is what the ledger of each shard records of the namespace.
func (n *Namespace) layout() map[string]int {
	return map[string]int{"format": format, "shards": len(n.shards)}
}

func checkLayoutField(namespace, field, stored string, want int) error {
	got, err := strconv.Atoi(stored)
	switch {
	case err != nil:
		return fmt.Errorf("namespace %s: its ledger holds %s=%q, which is no number; another program wrote there", namespace, field, stored)
	case field == "format" && got == queueFormat:
		return fmt.Errorf("namespace %s: the store holds queues under this name: configure kind: queue, or use another namespace or prefix for the buffer", namespace)
	case field == "format" && got > want:
		return fmt.Errorf("namespace %s: the store holds format %d, this program knows up to %d: upgrade the program", namespace, got, want)
	case field == "shards" && got != want:
		return fmt.Errorf("namespace %s: shards is %d, but the store was first used with %d: configure shards %d, or use a new namespace or prefix", namespace, want, got, got)
	}
	return nil
}
