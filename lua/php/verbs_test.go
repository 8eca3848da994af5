package php_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	luaphp "github.com/spillway-io/spillway/lua/php"
)

func TestAPublishStoresAsPHPWould(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.same("answer", q.publish(0, "", q.jobs(3)...), []int{1, 3})
		q.same("ready", q.ready(), q.jobs(3))
		q.push(1500, q.job(7))
		score := q.set("delayed")[q.job(7)]
		now := float64(q.c.Time(ctx).Val().UnixMilli()) / 1000
		if score < now || score > now+1.5 {
			t.Errorf("due at %f, now %f", score, now)
		}
		q.same("published", q.total("published"), 4)
		q.exact()
		q.same("1,000 at once", q.publish(0, "", q.jobs(1000)...), []int{1, 1000})
		q.same("1,000 delayed", q.publish(60_000, "", q.jobs(1000)...), []int{1, 1000})
		q.exact()
	})
}

func TestAKeyedPublishIsStoredOnceAndTheKeysAreBounded(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.maxKeys = 3
		q.same("first", q.publish(0, "k1", q.jobs(2)...), []int{1, 2})
		q.same("again", q.publish(0, "k1", q.jobs(2)...), []int{2, 2})
		q.publish(60_000, "k2", q.job(8))
		q.publish(0, "k3", q.job(9))
		q.same("a fourth", q.publish(0, "k4", q.job(4)), []int{6, 0})
		q.same("without a key", q.publish(0, "", q.job(4)), []int{1, 1})
		q.same("one of the three", q.publish(0, "k2", q.job(8)), []int{2, 1})
		q.same("ready", q.ready(), []string{q.job(0), q.job(1), q.job(9), q.job(4)})
		q.do("hset", q.ours+":account", "keys", "1 3") // their time is over
		q.same("then", q.publish(0, "k4", q.job(5)), []int{1, 1})
		q.exact()
	})
}

func TestAPublishTakesObjectsOnly(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		for _, wrong := range [][]string{{"x"}, {q.job(1), "[]"}, {`{"a":1`}, {""}, {}, {`"{}"`}, q.jobs(1001)} {
			for _, delay := range []int{0, 1000} {
				keys, argv := q.publishCall(delay, "", wrong...)
				if _, err := q.try(luaphp.Publish, keys, argv...); err == nil || !strings.Contains(err.Error(), "bad arguments") {
					t.Errorf("%.60s: got %v", fmt.Sprint(wrong), err)
				}
			}
		}
		q.same("the queue", q.snapshot(), "")
		q.push(0, "  {}  "+strings.Repeat(" ", 200))
		q.push(1000, "  {}  "+strings.Repeat(" ", 200), "  {}  "+strings.Repeat(" ", 200))
		for member := range q.set("delayed") {
			if len(member) > 206 && !strings.HasSuffix(member, `"}`) {
				t.Errorf("the twin is %q", member)
			}
		}
	})
}

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

func TestRespawnMakesTheOldestDeadLettersNew(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.phpPush("no", q.job(0), "neither", q.job(1), q.job(2))
		for _, job := range q.claim(3) {
			q.settle(job.seq, "bury", 0)
		}
		q.same("two", q.respawn("respawn", 0, 3), []int{1, 2, 4})
		q.same("behind those that stay", q.respawn("respawn", 2, 1), []int{1, 0, 3})
		q.same("new", q.ready(), []string{q.job(0), q.job(1)})
		q.same("deleted", q.respawn("delete", 0, 2), []int{2, 0, 1})
		q.same("respawned, deleted, died", []int64{q.total("respawned"), q.total("deleted"), q.total("died")}, []int{2, 2, 5})
		q.exact()
		q.do("del", q.ours+":letters") // by another program
		q.same("a letter without text", q.respawn("respawn", 0, 100), []int{1, 0, 0})
		q.exact()
	})
}

func TestDeadLettersAreReadInBoundedPages(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		for i := range 4 {
			q.push(0, strings.Replace(q.job(i), "J", strings.Repeat("x", 600_000), 1))
			q.settle(q.claim(1)[0].seq, "bury", 0)
		}
		q.same("fields", len(q.deadPage(0, 9, 1<<20)), 1+4*2)
		q.same("at least one", len(q.deadPage(1, 9, 1)), 1+4)
		q.same("behind the end", q.deadPage(9, 9, 1), []int{4})
		q.same("a call respawns", q.respawn("respawn", 0, 100), []int{2, 0, 2})
		q.same("and deletes without reading", q.respawn("delete", 0, 100), []int{2, 0, 0})
		q.exact()
	})
}

func TestPurgeTakesAllButWhatPHPHasReserved(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.push(0, q.jobs(6)...)
		jobs := q.claim(3)
		q.settle(jobs[0].seq, "bury", 0)
		q.do("zadd", q.base+":reserved", 99999999999, q.counted(1, 1-q.flavor.onRelease)) // PHP took it
		q.do("zadd", q.base+":reserved", 99999999999, q.job(9))
		q.push(60_000, q.job(7), q.job(8))
		q.same("ready", q.purge("ready", 2), []int{2, 2})
		q.same("ready", q.purge("ready", 2), []int{1, 1})
		q.same("looked at all", q.purge("ready", 2), []int{0, 0})
		q.exact()
		q.push(0, q.job(10))
		q.same("all", q.purge("all", 3), []int{3, 3})
		q.same("all", q.purge("all", 3), []int{3, 2})
		q.same("all", q.purge("all", 3), []int{0, 0})
		q.same("PHP's", len(q.set("reserved")), 2)
		q.same("look", q.look()[:6], []any{0, 0, 2, 0, 0, ""})
		q.same("purged", q.total("purged"), 3+3+1)
		q.exact()
	})
}

func TestLookAndPeekShowWithoutChanging(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.same("nothing", q.look(), []any{0, 0, 0, 0, 0, "", ""})
		q.same("no head", q.peek(), []int{0})
		q.push(0, q.jobs(3)...)
		q.settle(q.claim(1)[0].seq, "bury", 0)
		q.claim(1)
		q.do("zadd", q.base+":reserved", 5, q.job(9))
		q.do("zadd", q.base+":delayed", "7.25", q.job(8))
		before := q.snapshot()
		q.same("all", q.look(), []any{1, 1, 2, 1, 1, "7.25", "5"})
		q.same("the head", q.peek(), []any{1, q.job(2)})
		q.same("the queue", q.snapshot(), before)
	})
}
