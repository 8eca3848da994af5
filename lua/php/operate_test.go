package php_test

import (
	"strings"
	"testing"
)

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
