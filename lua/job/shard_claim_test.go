package job_test

import (
	"fmt"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// request is what one long poll wants.
type request struct {
	queues []string
	count  int
	ttr    int64 // ms; 0: that of the shard
}

type claimed struct {
	queue   string
	seq     int64
	attempt int64
	record  string
}

type claims struct {
	expired, lost int64
	left          []int64
	jobs          [][]claimed
}

func (s *shard) claimCall(lane, token string, report bool, requests ...request) (keys []string, argv []any, each []string) {
	var list []string
	for _, r := range requests {
		list = append(list, r.queues...)
	}
	each, number := names(list)
	keys = []string{s.ledger(), s.key("lease"), s.key("attempts"), s.key("queues"), s.key("out:" + lane), s.key("tombstones")}
	for _, q := range each {
		keys = append(keys, s.key("r:"+q), s.key("j:"+q), s.key("u:"+q))
	}
	argv = append([]any{token, s.keep, s.bytes, len(each)}, anys(each)...)
	for range each {
		argv = append(argv, bit(report))
	}
	for _, r := range requests {
		ttr := r.ttr
		if ttr == 0 {
			ttr = s.ttr
		}
		argv = append(argv, ttr, r.count, len(r.queues))
		for _, q := range r.queues {
			argv = append(argv, number[q])
		}
	}
	return keys, argv, each
}

func parseClaims(reply []any, each []string) claims {
	out := claims{expired: num(reply[1]), lost: num(reply[2]), left: nums(reply[3 : 3+len(each)])}
	for _, list := range reply[3+len(each):] {
		var jobs []claimed
		values := list.([]any)
		for i := 0; i < len(values); i += 4 {
			jobs = append(jobs, claimed{each[num(values[i])-1], num(values[i+1]), num(values[i+2]), values[i+3].(string)})
		}
		out.jobs = append(out.jobs, jobs)
	}
	return out
}

func (s *shard) claimAll(lane, token string, requests ...request) claims {
	s.t.Helper()
	keys, argv, each := s.claimCall(lane, token, true, requests...)
	return parseClaims(s.must(luajob.Claim, keys, argv...), each)
}

// claim is one request of one queue.
func (s *shard) claim(queue string, count int) []claimed {
	s.t.Helper()
	s.tokens++
	return s.claimAll("lane", fmt.Sprintf("token%d", s.tokens), request{queues: []string{queue}, count: count}).jobs[0]
}
