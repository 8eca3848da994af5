package php_test

import (
	"fmt"
	"strings"
	"testing"

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

func TestACallThatHasRead64KiBSaysWhatItDidNotLookAt(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		var calls []any
		for i := range 8 {
			q.push(0, fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat("x", 40_000)))
			calls = append(calls, q.claim(1)[0].seq, "ack", 0)
		}
		q.same("first", q.settle(calls...), []int{4, 4, 5, 5, 5, 5, 5, 5})
		q.same("again", q.settle(calls...), []int{0, 0, 4, 4, 5, 5, 5, 5})
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
		q.same("a call respawns", q.respawn("respawn", 0, 100), []int{1, 0, 3})
		q.same("and deletes without reading", q.respawn("delete", 0, 100), []int{3, 0, 0})
		q.exact()
	})
}
