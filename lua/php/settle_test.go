package php_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestEachVerbOfSettleDoesWhatItSays(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.push(0, q.jobs(9)...)
		jobs := q.claim(9)
		var calls []any
		for i, verb := range []string{"ack", "nack", "nack", "release", "release", "bury", "unfit", "requeue", "touch"} {
			calls = append(calls, jobs[i].seq, verb, []int{0, 0, 9000, 0, 9000, 0, 0, 0, 9000}[i])
		}
		q.same("done", q.settle(calls...), []int{4, 1, 2, 1, 2, 3, 3, 1, 6})
		q.same("ready", q.ready(), []string{q.job(7), q.counted(1, 1), q.counted(3, 1)})
		q.same("delayed", len(q.set("delayed")), 2)
		q.same("delayed, counted", q.set("delayed")[q.counted(2, 1)] > 0, true)
		page := q.deadPage(0, 9, 1<<20)
		q.same("the dead", []any{page[0], page[3], page[7]}, []any{2, "buried", "unfit"})
		for verb, n := range map[string]int64{"acked": 1, "nacked": 4, "buried": 1, "unfit": 1, "requeued": 1, "died": 2} {
			q.same(verb, q.total(verb), n)
		}
		q.exact()
		for i := range jobs[:8] {
			q.same("once", q.settle(jobs[i].seq, "ack", 0), []int{0})
		}
		q.same("touched", q.get(jobs[8].seq)[1], "leased")
		q.same("then", q.settle(jobs[8].seq, "ack", 0, jobs[8].seq, "ack", 0), []int{4, 0})
		q.same("reserved", len(q.set("reserved")), 0)
		q.exact()
	})
}

func TestRequeuedJobsKeepTheirOrder(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.push(0, q.jobs(4)...)
		jobs := q.claim(3)
		q.settle(jobs[0].seq, "requeue", 0, jobs[1].seq, "requeue", 0, jobs[2].seq, "requeue", 0)
		q.same("ready", q.ready(), q.jobs(4))
	})
}

func TestALeaseThatPHPTookIsGone(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.push(0, q.jobs(2)...)
		jobs := q.claim(2)
		q.do("zadd", q.base+":reserved", 99999999999, q.counted(0, 1-q.flavor.onRelease)) // reserved by PHP
		q.do("zrem", q.base+":reserved", q.counted(1, 1-q.flavor.onRelease))              // moved by PHP
		before := q.snapshot()
		for _, verb := range []string{"ack", "nack", "release", "bury", "unfit", "requeue", "touch"} {
			q.same(verb, q.settle(jobs[0].seq, verb, 1000, jobs[1].seq, verb, 1000), []int{0, 0})
		}
		q.same("the queue", q.snapshot(), before)
		q.same("state", q.get(jobs[0].seq), []int{0})
		q.past(jobs...)
		got := q.claimAll(1)
		q.same("lapsed, moved", []int64{got.lapsed, got.moved, got.left}, []int64{2, 0, 0})
		q.same("PHP's", q.set("reserved")[q.counted(0, 1-q.flavor.onRelease)], 99999999999.0)
		q.exact()
	})
}

// The last try is the one after which PHP's worker would let the job fail.
func TestANackAfterTheLastTryDies(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.tries = 2
		soon := time.Now().Unix()
		for _, row := range []struct {
			fields  string
			earlier int // deliveries before this one
			dies    bool
		}{
			{`"id":1`, 0, false},
			{`"id":1`, 1, true},
			{`"maxTries":null`, 1, true},
			{`"maxTries":3`, 1, false},
			{`"maxTries":3`, 2, true},
			{`"maxTries":0`, 9, false},
			{`"maxTries":"1"`, 0, true},
			{`"maxTries":[]`, 0, false},
			{fmt.Sprint(`"retryUntil":`, soon+100), 9, false},
			{fmt.Sprint(`"retryUntil":`, soon-100), 0, true},
			{fmt.Sprint(`"timeoutAt":`, soon+100), 0, false},
			{fmt.Sprint(`"timeoutAt":`, soon+100), 1, true},
			{fmt.Sprint(`"timeoutAt":`, soon-100), 0, true},
			{`"retryUntil":null,"maxTries":1`, 0, true},
		} {
			payload := fmt.Sprintf(`{%s,"attempts":%d}`, row.fields, q.flavor.first+row.earlier)
			q.phpPush(payload)
			seq := q.claim(1)[0].seq
			want, state := []int64{1}, []any{1, "dead"}
			if row.dies {
				want = []int64{3}
			}
			if row.dies {
				q.same(payload, q.settle(seq, "nack", 0), want)
				q.same(payload, q.get(seq)[:2], state)
				q.same(payload, q.get(seq)[3], "nacked")
				continue
			}
			q.same(payload, q.settle(seq, "nack", 0), want)
			seq = q.claim(1)[0].seq
			q.same("a release of "+payload, q.settle(seq, "release", 0), []int{1})
			q.do("del", q.base, q.base+":notify")
		}
		// It begins and ends as an object, and is none: the tries of the namespace hold.
		q.phpPush(fmt.Sprintf(`{x,"attempts":%d}`, q.flavor.first+1))
		q.same("no JSON", q.settle(q.claim(1)[0].seq, "nack", 0), []int{3})
		q.exact()
	})
}

func TestACallThatHasRead4MiBSaysWhatItDidNotLookAt(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		var calls []any
		for i := range 8 {
			q.push(0, fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat("x", 900_000)))
			calls = append(calls, q.claim(1)[0].seq, "ack", 0)
		}
		q.same("first", q.settle(calls...), []int{4, 4, 4, 4, 4, 5, 5, 5})
		q.same("again", q.settle(calls...), []int{0, 0, 0, 0, 0, 4, 4, 4})
		q.exact()
	})
}
