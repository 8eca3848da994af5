package job_test

import (
	"fmt"
	"sort"
	"strings"
)

// total is a field of the ledger.
func (s *shard) total(field string) int64 {
	n, _ := s.c.HGet(ctx, s.ledger(), field).Int64()
	return n
}

// past moves the score of a job of a zset into the past, as time would.
func (s *shard) past(zset, queue string, seqs ...int64) {
	s.t.Helper()
	for _, seq := range seqs {
		member := fmt.Sprintf("%d %s", seq, queue)
		score, err := s.c.ZScore(ctx, s.key(zset), member).Result()
		if err != nil {
			s.t.Fatalf("%s of %s: %v", zset, member, err)
		}
		old := "1"
		if score != float64(int64(score)) {
			old = "1.5"
		}
		s.do("zadd", s.key(zset), old, member)
	}
}

// snapshot is every key of the shard with its value, but for the times to live.
func (s *shard) snapshot() string {
	s.t.Helper()
	keys, err := s.c.Keys(ctx, strings.NewReplacer("{", `\{`, "}", `\}`).Replace(s.prefix)+"*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, key := range keys {
		var v any
		switch s.c.Type(ctx, key).Val() {
		case "hash":
			v = s.c.HGetAll(ctx, key).Val()
		case "list":
			v = s.c.LRange(ctx, key, 0, -1).Val()
		case "zset":
			v = s.c.ZRangeWithScores(ctx, key, 0, -1).Val()
		default:
			v = s.c.Get(ctx, key).Val()
		}
		fmt.Fprintf(&b, "%s %v\n", strings.TrimPrefix(key, s.prefix), v)
	}
	return b.String()
}

// exact checks the law of the shard and that each job is in exactly one state.
func (s *shard) exact(queues ...string) {
	s.t.Helper()
	live := s.total("published") - s.total("acked") - s.total("expired") - s.total("deleted") - s.total("lost")
	delayed, leased := s.c.ZCard(ctx, s.key("delay")).Val(), s.c.ZCard(ctx, s.key("lease")).Val()
	var jobs, dead, ready int64
	for _, q := range queues {
		held := s.c.HLen(ctx, s.key("j:"+q)).Val()
		jobs += held
		dead += s.c.ZCard(ctx, s.key("d:"+q)).Val()
		tombstones, _ := s.c.HGet(ctx, s.key("tombstones"), q).Int64()
		ready += s.c.LLen(ctx, s.key("r:"+q)).Val() - tombstones
		if indexed := s.c.ZScore(ctx, s.key("queues"), q).Err() == nil; indexed != (held > 0) {
			s.t.Errorf("%s: has %d jobs, in the index: %v", q, held, indexed)
		}
	}
	if jobs != live || ready+delayed+leased+dead != live || dead != s.total("dead") {
		s.t.Errorf("the ledger has %d jobs, %d dead; there are %d: ready %d, delayed %d, leased %d, dead %d\n%s",
			live, s.total("dead"), jobs, ready, delayed, leased, dead, s.snapshot())
	}
}
