package php_test

import (
	"fmt"
	"strings"
	"testing"

	luaphp "github.com/spillway-io/spillway/lua/php"
)

// job is a payload as the flavor's library writes it.
func (q *queue) job(n int) string {
	return fmt.Sprintf(`{"job":"J","data":{"n":%d,"big":12345678901234567,"e":[]},"attempts":%d}`, n, q.flavor.first)
}

func (q *queue) jobs(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = q.job(i)
	}
	return all
}

// One call moves at most 256 payloads from each place, or 64 KiB and one payload more.
func TestAClaimMovesABoundedNumber(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.push(0, q.jobs(300)...)
		q.past(q.claim(300)...)
		for _, p := range q.jobs(600)[300:] {
			q.do("zadd", q.base+":reserved", 1, p)
			q.do("zadd", q.base+":delayed", 1, p)
		}
		for _, want := range [][]int64{{256, 256, 0}, {44 + 256, 44, 0}, {44, 0, 0}, {0, 0, 0}} {
			got := q.claimAll(1)
			q.settle(got.jobs[0].seq, "ack", 0)
			q.same("moved, lapsed", []int64{got.moved, got.lapsed, got.unreadable}, want)
		}
		q.exact()

		big := strings.Repeat("x", 300_000)
		for i := range 40 {
			q.do("zadd", q.base+":delayed", 1, fmt.Sprintf(`{"n":%d,"b":"%s","attempts":%d}`, i, big, q.flavor.first))
		}
		q.same("moved of large ones", q.claimAll(1).moved, 1)
		q.do("del", q.base, q.base+":delayed", q.base+":notify")
		q.bytes = 400_000
		q.push(0, q.job(1), `{"a":"`+big+`"}`, `{"b":"`+big+`"}`, q.job(2))
		q.same("until the answer is full", len(q.claim(9)), 3)
	})
}

func TestWhatIsNoJSONDiesInsteadOfBeingLost(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.phpPush("", "x", `["job"]`, `{"job":`, q.job(1), "{\"a\":1}\x00", "{}\x00x")
		got := q.claimAll(9)
		q.same("readable", got.jobs[0].payload, q.job(1))
		page := q.deadPage(0, 100, 1<<20)
		q.same("total", page[0], got.unreadable)
		q.same("claimed and dead", int64(len(got.jobs))+got.unreadable, 7)
		q.same("reason and payload", page[7:9], []any{"unreadable", "x"})
		q.same("state", q.get(num(page[5])), append([]any{1, "dead"}, page[6:9]...))
		q.exact()

		q.phpPush(q.job(2))
		for range 2000 {
			q.phpPush("no")
		}
		q.settle(q.claimAll(1).jobs[0].seq, "ack", 0)
		q.phpPush(q.job(3))
		got = q.claimAll(1000)
		q.same("a bounded number", []int64{got.unreadable, got.left}, []int64{256, 1745})
		q.do("ltrim", q.base, 1, 0)
		q.do("del", q.base+":notify")
		for range 20 {
			q.phpPush(strings.Repeat("no", 100_000))
		}
		q.same("bounded bytes", q.claimAll(1000).unreadable, 6)
		q.exact()
	})
}

func TestFewerNotificationsThanJobsHarmNothing(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.push(0, q.jobs(5)...)
		if q.flavor.notify == 0 {
			q.do("set", q.base+":notify", "a queue of this name") // not read
		} else {
			q.do("ltrim", q.base+":notify", 3, -1)
		}
		q.same("claimed", len(q.claim(4)), 4)
		if q.flavor.notify == 1 {
			q.same("notifications", q.do("llen", q.base+":notify"), 0)
		}
	})
}

// A clock that goes back neither repeats a sequence nor ends a lease.
func TestSequencesRiseWhateverTheClockDoes(t *testing.T) {
	on(t, func(t *testing.T, q *queue) {
		q.push(0, q.jobs(4)...)
		q.do("hset", q.ours+":account", "seq", int64(4e15))
		jobs := q.claim(2)
		q.same("sequences", []int64{jobs[0].seq, jobs[1].seq}, []int64{4e15 + 1, 4e15 + 2})
		q.same("the next", q.claim(1)[0].seq, int64(4e15+3))
		for _, foreign := range []string{"x", "1.5", "nan", "-1", "9007199254740991", "1e300"} {
			q.do("hset", q.ours+":account", "seq", foreign)
			keys, argv := q.claimCall("l", "t", 1)
			before := q.snapshot()
			if _, err := q.try(luaphp.Claim, keys, argv...); err == nil || !strings.Contains(err.Error(), "foreign value") {
				t.Errorf("seq %s: got %v", foreign, err)
			}
			q.same("the queue", q.snapshot(), before)
		}
	})
}
