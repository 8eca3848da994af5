package jobmodel_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/job/jobmodel"
)

func (s *scripts) Peek(queue string) *jobmodel.Claimed {
	v := s.call(luajob.Peek, []string{s.key("r:" + queue), s.key("j:" + queue), s.key("attempts")}, queue)
	if number(v[1]) == 0 {
		return nil
	}
	c := claimed(queue, number(v[2]), number(v[3]), v[4].(string))
	return &c
}

func (s *scripts) Dead(queue string, limit int) []jobmodel.Claimed {
	v := s.call(luajob.DeadPage, s.keys([]string{queue}, "", "jd"), 0, limit, 1<<20)
	list := []jobmodel.Claimed{}
	for job := range slices.Chunk(v[2:], 4) {
		c := claimed(queue, number(job[0]), 0, job[3].(string))
		c.Reason = jobmodel.Reason(number(job[2]))
		list = append(list, c)
	}
	return list
}

func (s *scripts) Get(ref jobmodel.Ref) (*jobmodel.Claimed, jobmodel.State) {
	v := s.call(luajob.Get, []string{s.key("lease"), s.key("delay"), s.key("attempts"), s.key("j:" + ref.Queue), s.key("d:" + ref.Queue)}, ref.Queue, ref.Seq)
	if number(v[1]) == 0 {
		return nil, jobmodel.Gone
	}
	state := map[any]jobmodel.State{"ready": jobmodel.Ready, "delayed": jobmodel.Delayed, "leased": jobmodel.Leased, "dead": jobmodel.Dead}[v[2]]
	c := claimed(ref.Queue, ref.Seq, number(v[5]), v[6].(string))
	c.Reason = jobmodel.Reason(number(v[4]))
	return &c, state
}

func (s *scripts) Counts(queue string) jobmodel.Counts {
	keys := append([]string{s.key("lease"), s.key("delay"), s.key("tombstones")}, s.keys([]string{queue}, "", "rjd")...)
	v := s.call(luajob.Counts, keys, 1000, queue)
	c := jobmodel.Counts{Ready: int(number(v[1])), Delayed: int(number(v[2])), Leased: int(number(v[3])), Dead: int(number(v[4]))}
	if v[5] != "" {
		c.Oldest = number(v[5])
	}
	return c
}

func (s *scripts) Account() []int64 {
	var account []int64
	for _, v := range s.call(luajob.Ledger, []string{s.key("ledger"), s.key("lease"), s.key("delay")})[1:] {
		account = append(account, number(v))
	}
	return account
}

// picture is the shard in the form of jobmodel.Shard.Picture, and the wakes that
// were sent since the last one.
func (s *scripts) picture() (lines, wakes []string) {
	ctx := context.Background()
	pipe := s.client.Pipeline()
	var makers []func() // of lines, once the answers are there
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	hash := func(key string, line func(field, value string)) {
		cmd := pipe.HGetAll(ctx, s.key(key))
		makers = append(makers, func() {
			for field, value := range cmd.Val() {
				line(field, value)
			}
		})
	}
	zset := func(key, prefix string) {
		cmd := pipe.ZRangeWithScores(ctx, s.key(key), 0, -1)
		makers = append(makers, func() {
			for _, z := range cmd.Val() {
				add("%s %s %s", prefix, z.Member, jobmodel.Score(z.Score))
			}
		})
	}
	ledger := pipe.HGetAll(ctx, s.key("ledger"))
	makers = append(makers, func() {
		for _, total := range jobmodel.Totals {
			add("ledger %s %s", total, cmp.Or(ledger.Val()[total], "0"))
		}
	})
	zset("delay", "delay")
	zset("lease", "lease")
	zset("queues", "queues")
	hash("attempts", func(member, n string) { add("attempts %s %s", member, n) })
	hash("tombstones", func(queue, n string) {
		if n != "0" {
			add("tombstones %s %s", queue, n)
		}
	})
	for _, queue := range jobmodel.Queues {
		hash("j:"+queue, func(seq, record string) { add("job %s %s %s", queue, seq, record) })
		hash("u:"+queue, func(id, seq string) { add("id %s %s %s", queue, id, seq) })
		zset("d:"+queue, "dead "+queue)
		ready := pipe.LRange(ctx, s.key("r:"+queue), 0, -1)
		makers = append(makers, func() {
			if len(ready.Val()) > 0 {
				add("ready %s %v", queue, ready.Val())
			}
		})
	}
	for _, name := range s.stored {
		queue, key, _ := strings.Cut(name, "/")
		cmd := pipe.Get(ctx, s.key("dd:"+queue+":"+key))
		makers = append(makers, func() {
			if cmd.Err() == nil {
				add("stored %s %s", name, cmd.Val())
			}
		})
	}
	for lane := range s.lanes {
		cmd := pipe.Get(ctx, s.key("out:"+lane))
		makers = append(makers, func() {
			if token, _, handed := strings.Cut(cmd.Val(), "\n"); handed {
				add("handed %s %s", lane, token)
			}
		})
	}
	sent := pipe.LRange(ctx, "wakes", 0, -1)
	pipe.Del(ctx, "wakes")
	_, _ = pipe.Exec(ctx) // the error may be that of a GET of no key
	for _, m := range makers {
		m()
	}
	slices.Sort(lines)
	return slices.Compact(lines), sent.Val()
}
