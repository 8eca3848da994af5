package job_test

import (
	"fmt"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// group is one publish: jobs of one queue.
type group struct {
	queue  string
	delay  int64 // ms
	key    string
	keep   int64 // ms
	id     string
	ends   int64 // ms since 1970, 0 never
	tries  int   // 0: 3
	bodies []string
}

func (g group) record(body string) string {
	id := ""
	if g.id != "" {
		id = "@" + g.id
	}
	tries := g.tries
	if tries == 0 {
		tries = 3
	}
	return fmt.Sprintf("%013d %d%s %s", g.ends, tries, id, body)
}

// names gives each queue of list its number, from 1, in the order of appearance.
func names(list []string) (each []string, number map[string]int) {
	number = map[string]int{}
	for _, q := range list {
		if number[q] == 0 {
			each = append(each, q)
			number[q] = len(each)
		}
	}
	return each, number
}

func (s *shard) channel() string { return s.key("w:") }

func (s *shard) publishCall(groups ...group) (keys []string, argv []any) {
	var list []string
	for _, g := range groups {
		list = append(list, g.queue)
	}
	each, number := names(list)
	keys = []string{s.ledger(), s.key("delay"), s.key("queues"), s.key("lease"), s.key("attempts"), s.key("tombstones")}
	for _, q := range each {
		keys = append(keys, s.key("r:"+q), s.key("j:"+q), s.key("d:"+q), s.key("u:"+q))
	}
	argv = append([]any{s.maxJobs, s.maxQueues, s.maxKeys, s.channel(), "publish", len(each)}, anys(each)...)
	for _, g := range groups {
		key := 0
		if g.key != "" {
			keys = append(keys, s.key("dd:"+g.queue+":"+g.key))
			key = len(keys)
			if g.keep == 0 {
				g.keep = 60_000
			}
		}
		argv = append(argv, number[g.queue], g.delay, key, g.keep, g.id, len(g.bodies))
		for _, b := range g.bodies {
			argv = append(argv, g.record(b))
		}
	}
	return keys, argv
}

func (s *shard) tryPublish(groups ...group) ([]any, error) {
	keys, argv := s.publishCall(groups...)
	return s.try(luajob.Publish, keys, argv...)
}

// publish gives {status, first, count} for each group.
func (s *shard) publish(groups ...group) [][3]int64 {
	s.t.Helper()
	keys, argv := s.publishCall(groups...)
	reply := s.must(luajob.Publish, keys, argv...)
	out := make([][3]int64, len(groups))
	if len(reply) != 1+3*len(groups) {
		s.t.Fatalf("publish: %d values for %d groups", len(reply), len(groups))
	}
	for i := range out {
		out[i] = [3]int64(nums(reply[1+3*i : 4+3*i]))
	}
	return out
}

// put publishes jobs of one queue that are ready, and gives their sequences.
func (s *shard) put(queue string, bodies ...string) []int64 {
	s.t.Helper()
	return s.stored(group{queue: queue, bodies: bodies})
}

// stored publishes one group and gives the sequences.
func (s *shard) stored(g group) []int64 {
	s.t.Helper()
	got := s.publish(g)[0]
	if got[0] != 1 || got[2] != int64(len(g.bodies)) {
		s.t.Fatalf("publish: got %v", got)
	}
	seqs := make([]int64, got[2])
	for i := range seqs {
		seqs[i] = got[1] + int64(i)
	}
	return seqs
}

func bodies(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("body %d", i)
	}
	return out
}
