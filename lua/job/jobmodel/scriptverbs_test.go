package jobmodel_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/job/jobmodel"
)

func (s *scripts) Publish(quota jobmodel.Quota, groups []jobmodel.Publish) []jobmodel.Stored {
	var queues numbered
	for _, g := range groups {
		queues.add(g.Queue)
	}
	keys := s.keys(queues.names, "ledger delay queues lease attempts tombstones", "rjdu")
	argv := append([]any{quota.Jobs, quota.Queues, quota.Keys, "w:", "publish"}, queues.argv(nil)...)
	for _, g := range groups {
		key, keep := 0, 0
		if g.Key != "" {
			keys = append(keys, s.key("dd:"+g.Queue+":"+g.Key))
			key, keep = len(keys), jobmodel.KeyKept
			s.stored = append(s.stored, g.Queue+"/"+g.Key)
		}
		argv = append(argv, queues.add(g.Queue), g.Delay, key, keep, g.CallerID, len(g.Payloads))
		for _, payload := range g.Payloads {
			j := jobmodel.Job{Ends: g.Ends, Tries: g.Tries, CallerID: g.CallerID, Attributes: g.Attributes, Payload: payload}
			argv = append(argv, j.Record())
		}
	}
	var replies []jobmodel.Stored
	for reply := range slices.Chunk(s.call(luajob.Publish, keys, argv...)[1:], 3) {
		replies = append(replies, jobmodel.Stored{Status: int(number(reply[0])), First: number(reply[1]), Count: int(number(reply[2]))})
	}
	return replies
}

func (s *scripts) Claim(lane, token string, maxBytes int, claims []jobmodel.Claim, reportLeft map[string]bool) jobmodel.ClaimReply {
	var queues numbered
	var requests []any
	for _, c := range claims {
		requests = append(requests, c.TTR, c.Count, len(c.Queues))
		for _, q := range c.Queues {
			requests = append(requests, queues.add(q))
		}
	}
	argv := append([]any{token, 3600_000, maxBytes}, queues.argv(func(q string) bool { return reportLeft[q] })...)
	keys := s.keys(queues.names, "ledger lease attempts queues out:"+lane+" tombstones", "rju")
	s.lanes[lane] = true
	v := s.call(luajob.Claim, keys, append(argv, requests...)...)
	r := jobmodel.ClaimReply{Now: number(v[0]), Expired: number(v[1]), Lost: number(v[2]), Left: map[string]int{}}
	for i, name := range queues.names {
		r.Left[name] = int(number(v[3+i]))
	}
	for _, request := range v[3+len(queues.names):] {
		jobs := []jobmodel.Claimed{}
		for job := range slices.Chunk(request.([]any), 4) {
			jobs = append(jobs, claimed(queues.names[number(job[0])-1], number(job[1]), number(job[2]), job[3].(string)))
		}
		r.Jobs = append(r.Jobs, jobs)
	}
	return r
}

// claimed reads a record.
func claimed(queue string, seq, attempt int64, record string) jobmodel.Claimed {
	j := jobmodel.Job{Seq: seq}
	head, rest, _ := strings.Cut(record, " ")
	j.Ends = number(head)
	end := strings.IndexAny(rest, " #@")
	j.Tries, rest = int(number(rest[:end])), rest[end:]
	if rest[0] == '@' {
		end = strings.IndexAny(rest, " #")
		j.CallerID, rest = rest[1:end], rest[end:]
	}
	j.Payload = rest[1:]
	if rest[0] == '#' {
		size, rest, _ := strings.Cut(rest[1:], ",")
		j.Attributes, j.Payload = rest[:number(size)], rest[number(size):]
	}
	return jobmodel.Claimed{Queue: queue, Attempt: int(attempt), Job: j}
}

func (s *scripts) Ack(groups []jobmodel.AckGroup) []int {
	var queues numbered
	var argv []any
	for _, g := range groups {
		argv = append(argv, queues.add(g.Queue), len(g.Jobs))
		for _, x := range g.Jobs {
			reference := fmt.Sprint(x.Seq)
			if x.CallerID != "" {
				reference += ":" + x.CallerID
			}
			argv = append(argv, reference)
		}
	}
	var replies []int
	for _, v := range s.call(luajob.Ack, s.keys(queues.names, shardKeys, "rjdu"), append(queues.argv(nil), argv...)...)[1:] {
		replies = append(replies, int(number(v)))
	}
	return replies
}

func (s *scripts) Settle(jobs []jobmodel.Settle) []jobmodel.State {
	var queues numbered
	var rest []any
	for _, x := range jobs {
		rest = append(rest, queues.add(x.Queue), x.Seq, x.Attempt, x.Verb, x.MS)
	}
	argv := append([]any{"w:", "publish"}, queues.argv(jobmodel.Keeps)...)
	var replies []jobmodel.State
	for _, v := range s.call(luajob.Settle, s.keys(queues.names, shardKeys, "rjdu"), append(argv, rest...)...)[1:] {
		replies = append(replies, jobmodel.State(number(v)))
	}
	return replies
}

func (s *scripts) Revert(lane, token string, queues []string) int {
	argv := []any{token, "w:", "publish"}
	for _, q := range queues {
		argv = append(argv, q)
	}
	return int(number(s.call(luajob.Revert, s.keys(queues, "attempts lease out:"+lane, "r"), argv...)[1]))
}

func (s *scripts) Due() []jobmodel.Due {
	ctx := context.Background()
	read := func(key string) []string {
		return s.client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: s.key(key), Start: "-inf", Stop: fmt.Sprint(s.now / 1000), ByScore: true}).Val()
	}
	var due []jobmodel.Due
	for _, kind := range []string{"delay", "lease"} {
		by := map[string][]int64{}
		for _, member := range read(kind) {
			seq, queue, _ := strings.Cut(member, " ")
			by[queue] = append(by[queue], number(seq))
		}
		for _, queue := range slices.Sorted(maps.Keys(by)) {
			due = append(due, jobmodel.Due{Queue: queue, Kind: kind, Seqs: by[queue]})
		}
	}
	for _, queue := range slices.Sorted(slices.Values(read("queues"))) {
		due = append(due, jobmodel.Due{Queue: queue, Kind: "head"})
	}
	return due
}

func (s *scripts) Promote(due []jobmodel.Due) jobmodel.Promoted {
	var queues numbered
	var rest []any
	for _, d := range due {
		rest = append(rest, queues.add(d.Queue), d.Kind, len(d.Seqs))
		for _, seq := range d.Seqs {
			rest = append(rest, seq)
		}
	}
	argv := append([]any{"w:", "publish", jobmodel.HeadCheck}, queues.argv(jobmodel.Keeps)...)
	v := s.call(luajob.Promote, s.keys(queues.names, shardKeys, "rjdu"), append(argv, rest...)...)
	return jobmodel.Promoted{Ready: number(v[1]), Dead: number(v[2]), Expired: number(v[3]), Lost: number(v[4])}
}

func (s *scripts) Respawn(queue string, remove bool, limit int, ttl int64) int {
	verb := "respawn"
	if remove {
		verb = "delete"
	}
	return int(number(s.call(luajob.Respawn, s.keys([]string{queue}, shardKeys, "rjdu"), queue, verb, limit, ttl, "w:", "publish")[1]))
}

func (s *scripts) Purge(queue string, all bool, limit int) (looked, deleted int) {
	state := "ready"
	if all {
		state = "all"
	}
	v := s.call(luajob.Purge, s.keys([]string{queue}, shardKeys, "rjdu"), queue, state, limit)
	return int(number(v[1])), int(number(v[2]))
}

func (s *scripts) Expire(queue string) jobmodel.Swept {
	v := s.call(luajob.Expire, s.keys([]string{queue}, shardKeys, "rjdu"), queue, "0", 1000, 1, "w:", "publish")
	return jobmodel.Swept{Expired: int(number(v[2])), Found: int(number(v[3]))}
}
