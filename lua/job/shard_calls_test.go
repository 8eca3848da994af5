package job_test

import (
	luajob "github.com/spillway-io/spillway/lua/job"
)

// refs names jobs of one queue: sequences, or "sequence:caller's id".
func (s *shard) ackCall(queue string, refs ...any) (keys []string, argv []any) {
	return s.common(queue), append([]any{1, queue, 1, len(refs)}, refs...)
}

func (s *shard) ack(queue string, refs ...any) []int64 {
	s.t.Helper()
	keys, argv := s.ackCall(queue, refs...)
	return nums(s.must(luajob.Ack, keys, argv...)[1:])
}

type settle struct {
	queue   string
	seq     int64
	attempt int64 // 0: any
	verb    string
	ms      int64
}

func (s *shard) settleCall(jobs ...settle) (keys []string, argv []any) {
	var list []string
	for _, j := range jobs {
		list = append(list, j.queue)
	}
	each, number := names(list)
	argv = append(append([]any{s.channel(), "publish", len(each)}, anys(each)...), keepsOf(s, len(each))...)
	for _, j := range jobs {
		argv = append(argv, number[j.queue], j.seq, j.attempt, j.verb, j.ms)
	}
	return s.common(each...), argv
}

func (s *shard) settle(jobs ...settle) []int64 {
	s.t.Helper()
	keys, argv := s.settleCall(jobs...)
	return nums(s.must(luajob.Settle, keys, argv...)[1:])
}

func (s *shard) revert(lane, token string, queues ...string) int64 {
	s.t.Helper()
	keys := []string{s.key("attempts"), s.key("lease"), s.key("out:" + lane)}
	for _, q := range queues {
		keys = append(keys, s.key("r:"+q))
	}
	return num(s.must(luajob.Revert, keys, append([]any{token, s.channel(), "publish"}, anys(queues)...)...)[1])
}

type due struct {
	queue, kind string
	seqs        []int64
}

func (s *shard) promoteCall(groups ...due) (keys []string, argv []any) {
	var list []string
	for _, g := range groups {
		list = append(list, g.queue)
	}
	each, number := names(list)
	argv = append(append([]any{s.channel(), "publish", 3_600_000, len(each)}, anys(each)...), keepsOf(s, len(each))...)
	for _, g := range groups {
		argv = append(argv, number[g.queue], g.kind, len(g.seqs))
		for _, seq := range g.seqs {
			argv = append(argv, seq)
		}
	}
	return s.common(each...), argv
}

// promote gives {ready, dead, expired, lost}.
func (s *shard) promote(groups ...due) []int64 {
	s.t.Helper()
	keys, argv := s.promoteCall(groups...)
	return nums(s.must(luajob.Promote, keys, argv...)[1:5])
}

func (s *shard) respawnArgs(queue, verb string) []any {
	return []any{queue, verb, 10, 0, s.channel(), "publish"}
}

func (s *shard) respawn(queue, verb string, count int, ttl int64) int64 {
	s.t.Helper()
	return num(s.must(luajob.Respawn, s.common(queue), queue, verb, count, ttl, s.channel(), "publish")[1])
}

// purge gives {looked at, deleted}.
func (s *shard) purge(queue, state string, count int) []int64 {
	s.t.Helper()
	return nums(s.must(luajob.Purge, s.common(queue), queue, state, count)[1:])
}

// expire scans the whole queue and gives how many it dropped.
func (s *shard) expire(queue string) (expired int64) {
	s.t.Helper()
	for cursor := "0"; ; {
		reply := s.must(luajob.Expire, s.common(queue), queue, cursor, 200, 0, s.channel(), "publish")
		expired += num(reply[2])
		if cursor = reply[1].(string); cursor == "0" {
			return expired
		}
	}
}

func (s *shard) peek(queue string) []any {
	s.t.Helper()
	return s.must(luajob.Peek, []string{s.key("r:" + queue), s.key("j:" + queue), s.key("attempts")}, queue)
}

func (s *shard) get(queue string, seq int64) []any {
	s.t.Helper()
	return s.must(luajob.Get, []string{s.key("lease"), s.key("delay"), s.key("attempts"), s.key("j:" + queue), s.key("d:" + queue)}, queue, seq)
}

func (s *shard) counts(limit int, queues ...string) []any {
	s.t.Helper()
	keys := []string{s.key("lease"), s.key("delay"), s.key("tombstones")}
	for _, q := range queues {
		keys = append(keys, s.key("r:"+q), s.key("j:"+q), s.key("d:"+q))
	}
	return s.must(luajob.Counts, keys, append([]any{limit}, anys(queues)...)...)[1:]
}
