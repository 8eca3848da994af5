package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// minVersion is the oldest major version of Redis that works. Before 7.0 an error inside
// a script loses its code, so a full store or a replica looks like a broken one, and
// entries that could be tried again are rejected.
const minVersion = 7

// WriteProbe writes nothing, but Redis rejects it wherever it rejects a script that would, as those of all
// kinds do. A server without memory runs it: see memoryFull.
const WriteProbe = "#!lua flags=allow-oom\nreturn 0"

// CheckServers reads how the servers are set up, and asks whether they take writes: ErrRejectsWrites says that
// none does. It uses INFO, not CONFIG, which managed services reject.
func (b *Backend) CheckServers(ctx context.Context) (warnings []string, err error) {
	var mu sync.Mutex
	seen := map[string]bool{}
	warn := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		seen[text] = true
	}
	var (
		takes   bool  // a server takes writes
		rejects error // why one does not
	)
	err = EachMaster(ctx, b.Out, func(ctx context.Context, c *redis.Client) error {
		if _, err := b.ReadTimeOf(ctx, c); err != nil {
			return err
		}
		write := Classify(c.Eval(ctx, WriteProbe, nil).Err())
		if write != nil && !errors.Is(write, ErrRejectsWrites) {
			return write
		}
		if write != nil {
			b.LeaveReplica(write)
			warn(fmt.Sprintf("%s: rejects writes: %v", c.Options().Addr, causeOf(write)))
		}
		mu.Lock()
		takes, rejects = takes || write == nil, cmp.Or(write, rejects)
		mu.Unlock()
		fields, err := infoOf(ctx, c)
		if err != nil {
			return err
		}
		b.version.Store(fields["redis_version"])
		if major, err := strconv.Atoi(strings.SplitN(fields["redis_version"], ".", 2)[0]); err == nil &&
			major < minVersion {
			return &storeError{ErrIncompatible, fmt.Errorf(
				"redis at %s is version %s, and Spillway needs %d.0 or newer: upgrade Redis, or give the address of another", c.Options().Addr,
				fields["redis_version"], minVersion)}
		}
		if p, ok := fields["maxmemory_policy"]; ok && p != "noeviction" {
			return &storeError{ErrIncompatible, fmt.Errorf(
				"maxmemory-policy of %s is %s, which lets Redis delete entries: run CONFIG SET maxmemory-policy noeviction and put it into redis.conf",
				c.Options().Addr, p)}
		}
		if b.replicas > 0 {
			if err := c.Do(ctx, "wait", 0, 1).Err(); err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
				return &storeError{ErrIncompatible, fmt.Errorf("durability replica=%d: the user may not run WAIT on %s: ACL SETUSER … +wait",
					b.replicas, c.Options().Addr)}
			}
			if n, _ := strconv.Atoi(fields["connected_slaves"]); n < b.replicas {
				warn(fmt.Sprintf("%s: it has %d replicas connected, so with durability replica=%d nothing is acknowledged", c.Options().Addr, n, b.replicas))
			}
		}
		if b.memoryFull(c.Options().Addr, fields) {
			warn(c.Options().Addr + ": " + MemoryFull +
				", so it rejects what clients send (store_full); what is stored is still delivered, which " +
				"makes room: raise maxmemory, or see what fills it")
		}
		for _, text := range serverWarnings(fields) {
			warn(c.Options().Addr + ": " + text)
		}
		return nil
	})
	for text := range seen {
		warnings = append(warnings, text)
	}
	if errors.Is(err, ErrIncompatible) {
		return nil, err
	}
	if err == nil && !takes && rejects != nil {
		return nil, rejects
	}
	return warnings, Classify(err)
}

// MemoryFull is part of the warning of a server that takes nothing new.
const MemoryFull = "its memory is full"

// memoryFull reports whether a server rejects writes that take memory. One that was full is so
// until a twentieth is free again: while clients go on, the figure swings around the limit.
func (b *Backend) memoryFull(addr string, info map[string]string) bool {
	number := func(key string) float64 { n, _ := strconv.ParseFloat(info[key], 64); return n }
	limit, used := number("maxmemory"), number("used_memory")-number("mem_not_counted_for_evict")
	_, was := b.full.Load(addr)
	if full := limit > 0 && (used > limit || was && used > 0.95*limit); full != was {
		if b.full.Delete(addr); full {
			b.full.Store(addr, true)
		}
		return full
	}
	return was
}

// CheckPersistence is ErrIncompatible where a crash of a server loses what it accepted,
// because its append-only file is off. Stores ask it that promise to keep everything. The
// embedded server passes: it is gone with its process anyway.
func (b *Backend) CheckPersistence(ctx context.Context) error {
	if b.embedded {
		return nil
	}
	err := EachMaster(ctx, b.Out, func(ctx context.Context, c *redis.Client) error {
		fields, err := infoOf(ctx, c)
		if err != nil || fields["aof_enabled"] != "0" {
			return err
		}
		return &storeError{ErrIncompatible, fmt.Errorf(
			"the append-only file of %s is off, so a crash of Redis loses jobs: run CONFIG SET appendonly yes and put it into redis.conf, or write "+
				"volatile: true for the pool", c.Options().Addr)}
	})
	if errors.Is(err, ErrIncompatible) {
		return err
	}
	return Classify(err)
}

// infoOf is INFO of one server, without its sections.
func infoOf(ctx context.Context, c *redis.Client) (map[string]string, error) {
	info, err := c.InfoMap(ctx).Result()
	fields := map[string]string{}
	for _, section := range info {
		maps.Copy(fields, section)
	}
	return fields, err
}

// ServerVersion is the version of Redis, of one of the masters, as the last Check read it;
// empty before, and where Redis does not say it.
func (b *Backend) ServerVersion() string {
	version, _ := b.version.Load().(string)
	return version
}

// serverWarnings says what is less safe than it could be in the setup of a server.
func serverWarnings(info map[string]string) (texts []string) {
	if info["aof_enabled"] == "0" {
		texts = append(texts, "its append-only file is off: a crash of Redis loses what it accepted since its last snapshot, if there is one")
	}
	if info["aof_last_write_status"] == "err" {
		texts = append(texts, "its last write to the append-only file failed: it rejects writes until it succeeds; see its disk")
	}
	if info["rdb_last_bgsave_status"] == "err" {
		texts = append(texts, "its last snapshot failed: it may reject writes until one succeeds; see its disk")
	}
	return texts
}
