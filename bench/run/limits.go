package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spillway-io/spillway/lua/proc"
)

// The scripts of the limits scenario do the least that the design needs and nothing
// else: no births, evictions, refusals, stale entries, retries, dead letters or repairs. The
// sequences of all partitions are in one hash of the shard, which is the cheapest layout we
// found. KEYS: due times, ledger, that hash, then a list a partition.
const (
	leastProduce = `
local t = redis.call('TIME')
local ms = t[1] * 1000 + math.floor(t[2] / 1000)
local k, n, set, due = tonumber(ARGV[1]), #KEYS - 3, {}, {}
redis.call('HMGET', KEYS[2], 'accepted', 'evicted', 'expired', 'version')
local known = redis.call('HMGET', KEYS[3], unpack(ARGV, 2, n + 1))
local range, at = string.format('%.0f %.0f', ms * 1000, ms * 1000 + k), string.format('%.0f', ms + 1000)
local res = { ms }
for i = 1, n do
  local depth = redis.call('LLEN', KEYS[3 + i]) + k
  redis.call('RPUSH', KEYS[3 + i], unpack(ARGV, n + 2 + (i - 1) * k, n + 1 + i * k))
  set[2 * i - 1], set[2 * i], due[2 * i - 1], due[2 * i] = ARGV[1 + i], range, at, ARGV[1 + i]
  res[#res + 1] = known[i] and 0 or depth
end
redis.call('HSET', KEYS[3], unpack(set))
redis.call('ZADD', KEYS[1], unpack(due))
redis.call('HINCRBY', KEYS[2], 'accepted', n * k)
return res`

	leastClaim = `
local t = redis.call('TIME')
local n, set, due = #KEYS - 3, {}, {}
redis.call('HMGET', KEYS[2], 'accepted', 'evicted', 'expired', 'version')
redis.call('ZMSCORE', KEYS[1], unpack(ARGV, 2, n + 1))
local known = redis.call('HMGET', KEYS[3], unpack(ARGV, 2, n + 1))
local lapse, res = string.format('%.0f', t[1] * 1000 + 15000), {}
for i = 1, n do
  local from = string.match(known[i], '^%d+')
  local entries = redis.call('LRANGE', KEYS[3 + i], 0, 127)
  set[2 * i - 1], set[2 * i], due[2 * i - 1], due[2 * i] = ARGV[1 + i], known[i] .. ' token', lapse, ARGV[1 + i]
  res[#res + 1], res[#res + 2] = tonumber(from), #entries
  for j = 1, #entries do
    res[#res + 1] = entries[j]
  end
end
redis.call('HSET', KEYS[3], unpack(set))
redis.call('ZADD', KEYS[1], unpack(due))
return res`

	leastCommit = `
redis.call('TIME')
local n, gone, res = #KEYS - 3, {}, {}
redis.call('HMGET', KEYS[2], 'accepted', 'evicted', 'expired', 'version')
local known = redis.call('HMGET', KEYS[3], unpack(ARGV, 2, n + 1))
for i = 1, n do
  local head, tail, token = string.match(known[i], '^(%d+) (%d+) (%w+)$')
  if token == 'token' and redis.call('LLEN', KEYS[3 + i]) == tonumber(tail) - tonumber(head) then
    gone[#gone + 1], res[#res + 1] = KEYS[3 + i], 1
  end
end
redis.call('DEL', unpack(gone))
redis.call('HDEL', KEYS[3], unpack(ARGV, 2, n + 1))
redis.call('ZREM', KEYS[1], unpack(ARGV, 2, n + 1))
redis.call('HINCRBY', KEYS[2], 'delivered', n)
return res`
)

// limits measures what the goals of three rows allow at most. Sparse: the least scripts
// against the bare commands. a: a server that parks a goroutine for each request against one
// that answers at once. Jobs one a request: the raw scripts and the HTTP of a no-op handler
// against the raw scripts alone.
func limits(ctx context.Context, s settings) (scenarioReport, error) {
	rep := &limitsReport{Scenario: "limits", Machine: proc.ThisMachine(ctx, s.redisServer, s.bin)}
	for _, size := range []int{1, 2, 5} {
		row := limitRow{Limit: fmt.Sprintf("Redis µs an entry: the least scripts ÷ bare RPUSH + LRANGE + LTRIM, %d entries a partition", size)}
		for range s.rounds {
			ours, other, err := leastRound(ctx, s, size)
			if err != nil {
				return nil, err
			}
			row.add(ours, other)
		}
		rep.Rows = append(rep.Rows, row)
	}
	row := limitRow{Limit: "requests/s: a server that parks each request for one RPUSH ÷ no-op handler, 512 connections"}
	for range s.rounds {
		ours, other, err := parkingRound(ctx, s)
		if err != nil {
			return nil, err
		}
		row.add(ours, other)
	}
	rep.Rows = append(rep.Rows, row)
	row = limitRow{Limit: "jobs/s, one a request: raw scripts and three no-op requests a job ÷ raw scripts, 512 connections"}
	for range s.rounds {
		ours, other, err := singleJobsRound(ctx, s)
		if err != nil {
			return nil, err
		}
		row.add(ours, other)
	}
	rep.Rows = append(rep.Rows, row)
	return rep, nil
}

type limitsReport struct {
	Scenario string       `json:"scenario"`
	Machine  proc.Machine `json:"machine"`
	Rows     []limitRow   `json:"rows"`
}

// limitRow has a figure for each round.
type limitRow struct {
	Limit  string    `json:"limit"`
	Ours   []float64 `json:"least"`
	Other  []float64 `json:"other"`
	Ratios []float64 `json:"ratios"`
}

func (r *limitRow) add(ours, other float64) {
	r.Ours, r.Other, r.Ratios = append(r.Ours, ours), append(r.Other, other), append(r.Ratios, ours/other)
}

func (r *limitsReport) held() bool { return true }

func (r *limitsReport) sheet(bool) *sheet {
	s := &sheet{name: r.Scenario, machine: r.Machine, head: []string{"limit", "ratio", "least", "other"}}
	for _, row := range r.Rows {
		s.row(row.Limit, figure(median(row.Ratios)), figure(median(row.Ours)), figure(median(row.Other)))
	}
	return s
}

// leastRound is the Redis CPU, in µs an entry, of a whole life by the least scripts
// and by the bare commands.
func leastRound(ctx context.Context, s settings, size int) (least, bare float64, err error) {
	r, err := newRig(ctx, s, false)
	if err != nil {
		return 0, 0, err
	}
	defer r.close()
	c := &costRig{rig: r, flushes: costFlushes}
	entries := make([]any, size)
	for i := range entries {
		entries[i] = strconv.FormatInt(time.Now().UnixMilli(), 10) + strings.Repeat("x", s.payload)
	}
	script := func(source string, produce bool) error {
		loaded := redis.NewScript(source)
		return c.each(func(names []string) error {
			keys, args := []string{"due", "ledger", "ranges"}, []any{size}
			for _, name := range names {
				keys, args = append(keys, name), append(args, name)
			}
			for range names {
				if produce {
					args = append(args, entries...)
				}
			}
			return loaded.Run(ctx, c.client, keys, args...).Err()
		})
	}
	pipeline := func(command func(redis.Pipeliner, string)) error {
		return c.each(func(names []string) error {
			pipe := c.client.Pipeline()
			for _, name := range names {
				command(pipe, name)
			}
			_, err := pipe.Exec(ctx)
			return err
		})
	}
	life := func() error {
		for _, source := range []string{leastProduce, leastClaim, leastCommit} {
			if err := script(source, source == leastProduce); err != nil {
				return err
			}
		}
		return nil
	}
	bareLife := func() error {
		for _, command := range []func(redis.Pipeliner, string){
			func(p redis.Pipeliner, name string) { p.RPush(ctx, name, entries...) },
			func(p redis.Pipeliner, name string) { p.LRange(ctx, name, 0, partitionBatch-1) },
			func(p redis.Pipeliner, name string) { p.LTrim(ctx, name, partitionBatch, -1) },
		} {
			if err := pipeline(command); err != nil {
				return err
			}
		}
		return nil
	}
	for _, side := range []struct {
		life func() error
		cpu  *float64
	}{{life, &least}, {bareLife, &bare}} {
		if err := side.life(); err != nil { // warm
			return 0, 0, err
		}
		_, before, err := c.spent(ctx)
		if err == nil {
			err = side.life()
		}
		if err != nil {
			return 0, 0, err
		}
		_, after, err := c.spent(ctx)
		if err != nil {
			return 0, 0, err
		}
		*side.cpu = (after - before) * 1e6 / float64(c.flushes*costGroups*size)
	}
	return least, bare, nil
}

// parkingRound loads the parking side and the no-op side as row a is.
func parkingRound(ctx context.Context, s settings) (parking, noop float64, err error) {
	r, err := newRig(ctx, s, false)
	if err != nil {
		return 0, 0, err
	}
	defer r.close()
	m := &measurement{settings: s}
	for _, side := range []struct {
		name string
		args []string
		rate *float64
	}{{"noop", nil, &noop}, {"parking", []string{"-redis", r.client.Options().Addr}, &parking}} {
		*side.rate, err = m.answering(ctx, side.name, oneEventLoad(m), func(dir, url string) (float64, error) {
			res, err := m.wrk(ctx, dir, url)
			if err == nil && res.Failed > 0 {
				err = fmt.Errorf("%s: %d requests failed", side.name, res.Failed)
			}
			return res.rate(), err
		}, side.args...)
		if err != nil {
			return 0, 0, err
		}
	}
	return parking, noop, nil
}

// singleJobsRound is the jobs a second of the raw scripts, and what remains of them when each
// job takes three requests to the no-op side too. The time of both adds up, because either
// keeps both processors busy.
func singleJobsRound(ctx context.Context, s settings) (least, scripts float64, err error) {
	m := &measurement{settings: s}
	if scripts, err = m.rawJobsSide(ctx, 1); err != nil {
		return 0, 0, err
	}
	requests, err := m.noop(ctx, oneEventLoad(m), func(_, url string) (float64, error) {
		turn := jobTurn{url: url, connections: connectionsFor(1), ask: m.nativePublish(1), duration: s.segment}
		n, elapsed, err := turn.run(ctx)
		return float64(n) / elapsed.Seconds(), err
	})
	if err != nil {
		return 0, 0, err
	}
	return 1 / (1/scripts + requestsOfJob/requests), scripts, nil
}

// requestsOfJob is publish, claim and settle.
const requestsOfJob = 3
