package clienttest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func whatIsAcceptedIsStoredOnceAndInOrder(b *bench) {
	b.start(quick())
	b.delivers(2000, 10)
	for _, e := range b.server.Stored() {
		if e.TS < e.SentAt-patience.Milliseconds() || e.TS > e.SentAt {
			b.Errorf("an entry of %d sent at %d", e.TS, e.SentAt)
			break
		}
	}
}

func aBatchGoesBeforeItsLinger(b *bench) {
	o := quick()
	o.Batch, o.Linger = 10, time.Hour
	b.start(o)
	b.report(0, 10, 2)
	b.until("a full batch is acked", func() bool { return b.sdk.Counts().Acked == 10 })
	b.report(10, 13, 2)
	if n := b.sdk.Counts().Pending; n != 3 {
		b.Errorf("%d pending, want the 3 that linger", n)
	}
	b.flush()
	b.has(13, nil)
}

func payloadsThatAreNoJSONArriveAsTheyAre(b *bench) {
	b.start(quick())
	want := []string{`{"n":1}`, "\x00\xff binary\n\r", `[1, 2,` + "\n" + `3]`, "plain text", `"text"`, `{"broken":`}
	for _, payload := range want {
		b.sdk.Report("p", payload)
	}
	b.flush()
	b.has(int64(len(want)), nil)
	got := b.server.Stored()
	if len(got) != len(want) {
		b.Fatalf("stored %d of %d", len(got), len(want))
	}
	for i, e := range got {
		if e.Data != want[i] {
			b.Errorf("entry %d is %q, want %q", i, e.Data, want[i])
		}
	}
}

func payloadsThatNestTooDeepCostNoOtherEntry(b *bench) {
	o := quick()
	o.Linger, o.Batch = time.Hour, 10
	b.start(o)
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	want := []string{number(0), nested(maxDepth - 2), `"` + strings.Repeat("[", 2*maxDepth) + `"`, nested(maxDepth), nested(4 * maxDepth), number(1)}
	for _, payload := range want {
		b.sdk.Report("p", payload)
	}
	b.flush()
	b.has(int64(len(want)), nil)
	got := b.server.Stored()
	if len(got) != len(want) {
		b.Fatalf("stored %d of %d", len(got), len(want))
	}
	for i, e := range got {
		if e.Data != want[i] {
			b.Errorf("entry %d is %.20q, want %.20q", i, e.Data, want[i])
		}
	}
}

// What was reported before waits, by the clock, for longer than timers can.
func aClockThatGoesBackHarmsNobody(b *bench) {
	b.start(quick(), Step{Delay: 300 * time.Millisecond})
	b.report(0, 1, 1)
	b.until("a request is open", func() bool { return b.server.Calls() == 1 })
	for i, ahead := range []time.Duration{10_000, 100, 30} { // days
		b.sdk.ReportAt("p0", number(i+1), time.Now().Add(ahead*24*time.Hour))
		b.sdk.Report(fmt.Sprint("other", i), number(0)) // makes a client look at what waits
		b.until("it looked", func() bool { return b.server.Calls() >= i+2 })
	}
	b.flush()
	b.has(7, nil)
	b.ordered(0, 4, 1)
}

func tooManyWaitsAsLongAsItIsTold(b *bench) {
	b.start(quick(), Step{Status: 429, Code: "rate_limited", RetryAfter: 1}, Step{})
	b.delivers(5, 1)
	if at := b.server.Times(); len(at) < 2 || at[1].Sub(at[0]) < 950*time.Millisecond {
		b.Errorf("the requests came at %v, want a second between the first two", at)
	}
}

func unavailableIsTriedAgain(b *bench) {
	o := quick()
	o.Batch, o.Linger = 5, time.Hour
	b.start(o, Step{Status: 503, Code: "store_unavailable"}, Step{Status: 500,
		Code: "internal"}, Step{Status: 408, Code: "request_timeout"}, Step{})
	b.delivers(5, 1)
	if n := b.server.Calls(); n != 4 {
		b.Errorf("%d calls, want 4", n)
	}
}

func aHangingServerIsLeft(b *bench) {
	o := quick()
	o.Timeout = 2 * time.Second // a runtime that starts on a busy machine needs some of it
	b.start(o, Step{Hang: true}, Step{})
	b.delivers(5, 1)
}

func aLostAnswerCountsOnce(b *bench) {
	b.start(quick(), Step{Lose: true}, Step{Lose: true}, Step{})
	b.delivers(50, 5)
}

func aCutConnectionIsTriedAgain(b *bench) {
	b.start(quick(), Step{Cut: true}, Step{})
	b.delivers(5, 1)
}

func aSlowServerBlocksNobody(b *bench) {
	o := quick()
	o.Queue, o.Timeout = 100, time.Minute
	b.start(o, Step{Hang: true})
	b.report(0, 5000, 10)
	if c := b.sdk.Counts(); c.Reported != 5000 || c.Acked != 0 || c.Dropped["queue_overflow"] == 0 {
		b.Errorf("beside a request that hangs: %+v", c)
	}
}

func entriesWantedAgainComeAgain(b *bench) {
	o := quick()
	o.Batch, o.Linger = 40, time.Hour
	b.start(o, Step{Verdict: "retry"}, Step{Verdict: "retry"}, Step{})
	b.delivers(40, 8)
	if n := b.server.Keys(); n != 1 {
		b.Errorf("%d keys for %d attempts of one request", n, b.server.Calls())
	}
}

func entriesThatMayBeStoredComeOnce(b *bench) {
	o := quick()
	o.Attempts, o.BreakAfter = 100, 100
	b.start(o, Step{Verdict: "unknown"}, Step{Lose: true}, Step{Verdict: "unknown", All: true},
		Step{Status: 503, Code: "store_unavailable"},
		Step{Verdict: "retry"}, Step{})
	b.delivers(400, 16)
}

func noKeyIsUsedForTooLong(b *bench) {
	o := quick()
	o.Attempts, o.BreakAfter, o.KeyWindow = 1_000_000, 1_000_000, 100*time.Millisecond
	o.Batch, o.Linger = 5, time.Hour
	b.start(o, Step{Lose: true}, Step{Status: 500, Code: "internal"}, Step{Status: 503,
		Code: "store_unavailable"})
	b.report(0, 5, 1)
	b.flush()
	b.has(0, map[string]int64{"unknown": 5})
}

// malformed are bodies with status 200, one a line, that Spillway does not send for five entries.
const malformed = `<html>welcome</html>
null
true
7
[]
{}
"accepted"
{"accepted":5
{"accepted":5} x
{"x":{"accepted":5}}
{"accepted":null}
{"accepted":"5"}
{"accepted":[5]}
{"accepted":true}
{"accepted":4.5}
{"accepted":-1}
{"accepted":6}
{"accepted":1e400}
{"accepted":4,"results":{}}
{"accepted":4,"results":7}
{"accepted":4,"results":"i"}
{"accepted":4,"results":[null]}
{"accepted":4,"results":[7]}
{"accepted":4,"results":[[]]}
{"accepted":4,"results":[{}]}
{"accepted":4,"results":[{"i":0}]}
{"accepted":4,"results":[{"result":"drop"}]}
{"accepted":4,"results":[{"i":0,"result":null}]}
{"accepted":4,"results":[{"i":0,"result":7}]}
{"accepted":4,"results":[{"i":0,"result":["drop"]}]}
{"accepted":4,"results":[{"i":0,"result":"drop"},null]}
{"accepted":4,"results":[{"i":0,"result":"drop"}
{"accepted":4,"results":[{"i":null,"result":"drop"}]}
{"accepted":4,"results":[{"i":"0","result":"drop"}]}
{"accepted":4,"results":[{"i":0.5,"result":"drop"}]}
{"accepted":4,"results":[{"i":-1,"result":"drop"}]}
{"accepted":4,"results":[{"i":5,"result":"drop"}]}
{"accepted":4,"results":[{"i":99999999999999999999,"result":"drop"}]}`

func malformedAnswersAreTriedAgain(b *bench) {
	o := quick()
	o.Batch, o.Linger, o.Attempts, o.BreakAfter = 5, time.Hour, 1000, 1000
	o.BackoffMax = time.Millisecond
	bodies, script := append(strings.Split(malformed, "\n"), strings.Repeat("[", 100_000)), []Step{}
	for _, body := range bodies {
		script = append(script, Step{Body: body})
	}
	b.start(o, append(script, Step{})...)
	b.report(0, 5, 5)
	b.flush()
	if n := b.server.Calls(); n <= len(bodies) {
		b.Errorf("%.60q was taken for an answer", bodies[n-1])
	}
	b.has(5, nil)
	b.ordered(0, 5, 5)
}

func resultsOfOtherKindsAreTaken(b *bench) {
	o := quick()
	o.Batch, o.Linger = 5, time.Hour
	b.start(o, Step{Body: ` { "more" : [ { "i" : 7 , "x" : "\"}]\u007b" } ] , "results" : [ { "reason" : "unskewed" , "result" : "warning" , "i" : 4 } ,` +
		` {"i":1,"result":"drop","reason":"stale"}, {"i":2,"result":"new","reason":""} ] , "accepted" : 4 }` + "\r\n"})
	b.report(0, 5, 1)
	b.flush()
	b.has(4, map[string]int64{"rejected": 1})
}

func entriesWantedForEverAreDropped(b *bench) {
	o := quick()
	o.Batch, o.Linger, o.MaxAge = 2, time.Hour, 500*time.Millisecond
	b.start(o, Step{Verdict: "retry", All: true})
	b.report(0, 2, 1)
	b.flush()
	b.has(0, map[string]int64{"stale": 2})
}

// With the defaults' attempts and times between them.
func aRestartCostsNoEntry(b *bench) {
	b.start(Options{Linger: 5 * time.Millisecond})
	b.report(0, 300, 3)
	b.flush()
	b.server.Restart(b, 2500*time.Millisecond)
	b.report(300, 2320, 3)
	b.flush()
	b.has(2320, nil)
	b.ordered(0, 2320, 3)
}

func aServiceThatIsAwayWearsOutNoAttempts(b *bench) {
	o := quick()
	o.Batch, o.Linger, o.Attempts = 40, time.Hour, 2
	b.start(o, Step{Cut: true}, Step{Status: 502}, Step{Status: 503}, Step{Status: 504}, Step{Status: 503, Code: "store_unavailable"},
		Step{Cut: true}, Step{Lose: true}, Step{Verdict: "retry"}, Step{Verdict: "retry", All: true}, Step{Status: 500}, Step{})
	b.delivers(40, 8)
}

func whatIsStaleBehindWhatIsFreshIsNotSent(b *bench) {
	o := quick()
	o.Batch, o.Linger = 10, time.Hour
	b.start(o)
	b.sdk.ReportAt("p", number(0), time.Now().Add(time.Hour))
	b.sdk.ReportAt("p", number(1), time.Now().Add(-time.Hour))
	b.sdk.ReportAt("q", number(2), time.Now().Add(-time.Hour))
	b.sdk.ReportAt("p", number(3), time.Now().Add(time.Hour))
	b.flush()
	b.has(2, map[string]int64{"stale": 2})
	if got := b.numbers("p"); !slices.Equal(got, []int{0, 3}) {
		b.Errorf("the server has %v, want what is fresh", got)
	}
}

func aPartitionIsInOneRequestAtATime(b *bench) {
	o := quick()
	o.Batch = 10
	b.start(o, Step{Delay: 20 * time.Millisecond})
	b.delivers(200, 2)
}

func theOldestOfAllMakeRoom(b *bench) {
	o := quick()
	o.Queue, o.Batch, o.Linger = 100, 1000, time.Hour
	b.start(o)
	for _, name := range []string{"old", "newer", "newest"} {
		for i := range 40 {
			b.sdk.Report(name, number(i))
		}
	}
	b.flush()
	b.has(100, map[string]int64{"queue_overflow": 20})
	if got := b.numbers("old"); len(got) != 20 || got[0] != 20 {
		b.Errorf("of the oldest partition %s are left, want the newest 20", brief(got))
	}
}

func entriesDroppedByTheServerAreCounted(b *bench) {
	o := quick()
	o.Batch, o.Linger = 20, time.Hour
	b.start(o, Step{Verdict: "drop"}, Step{})
	b.report(0, 20, 1)
	b.flush()
	b.has(10, map[string]int64{"rejected": 10})
}

func aRejectedRequestIsDropped(b *bench) {
	o := quick()
	o.Batch, o.Linger = 5, time.Hour
	b.start(o, Step{Status: 401, Code: "unauthorized"}, Step{})
	b.report(0, 5, 1)
	b.flush()
	b.has(0, map[string]int64{"rejected": 5})
	if n := b.server.Calls(); n != 1 {
		b.Errorf("%d calls, want 1", n)
	}
	b.report(5, 10, 1)
	b.flush()
	b.has(5, map[string]int64{"rejected": 5})
}

func attemptsEnd(b *bench) {
	o := quick()
	o.Batch, o.Linger, o.Attempts, o.BreakAfter = 5, time.Hour, 3, 100
	b.start(o, Step{Status: 500, Code: "internal"})
	b.report(0, 5, 1)
	b.flush()
	b.has(0, map[string]int64{"retries_exhausted": 5})
	if n := b.server.Calls(); n != 3 {
		b.Errorf("%d calls, want 3", n)
	}
}

func theOldestMakeRoom(b *bench) {
	o := quick()
	o.Queue, o.Batch, o.Linger = 100, 1000, time.Hour
	b.start(o)
	b.report(0, 250, 5)
	if c := b.sdk.Counts(); c.Pending != 100 || c.Dropped["queue_overflow"] != 150 {
		b.Errorf("got %+v, want 100 pending", c)
	}
	b.flush()
	b.has(100, map[string]int64{"queue_overflow": 150})
	b.ordered(150, 250, 5)
}

func onePartitionLeavesHalfToOthers(b *bench) {
	o := quick()
	o.Queue, o.Batch, o.Linger = 100, 1000, time.Hour
	b.start(o)
	for i := range 10 {
		b.sdk.Report("calm", number(i))
	}
	for i := range 500 {
		b.sdk.Report("loud", number(i))
	}
	b.flush()
	b.has(60, map[string]int64{"queue_overflow": 450})
	if n := len(b.numbers("calm")); n != 10 {
		b.Errorf("the calm partition has %d of 10", n)
	}
}

func nothingStaleIsSent(b *bench) {
	o := quick()
	o.MaxAge, o.Attempts, o.BreakAfter = 500*time.Millisecond, 1000, 1000
	b.start(o, Step{Status: 503, Code: "store_unavailable"})
	b.report(0, 20, 4)
	b.until("all are dropped", func() bool { return b.sdk.Counts().Pending == 0 })
	b.has(0, map[string]int64{"stale": 20})
	b.server.Script(Step{})
	for i := 20; i < 40; i++ { // however slow the machine is, these are stale
		b.sdk.ReportAt("stale", number(i), time.Now().Add(-time.Hour))
	}
	for i := 20; i < 40; i++ { // and these are not
		b.sdk.ReportAt(fmt.Sprint("p", i%4), number(i), time.Now().Add(time.Hour))
	}
	b.flush()
	b.ordered(20, 40, 4)
	b.has(20, map[string]int64{"stale": 40})
	if late := b.numbers("stale"); len(late) > 0 {
		b.Errorf("the server has %v, which were stale before they were sent", late)
	}
}

func aDeadServerIsProbed(b *bench) {
	o := quick()
	o.BreakAfter, o.ProbeEvery, o.Attempts = 5, 200*time.Millisecond, 1000
	o.BackoffBase, o.BackoffMax = time.Millisecond, time.Millisecond
	b.start(o, Step{Status: 503, Code: "store_unavailable"})
	b.report(0, 50, 50)
	b.until("a second of probes", func() bool {
		at := b.server.Times()
		return len(at) > 0 && time.Since(at[0]) > time.Second
	})
	at := b.server.Times()
	n := len(slices.DeleteFunc(at, func(t time.Time) bool { return t.Sub(at[0]) > time.Second }))
	// Five failures, up to three more that were on their way, and five probes a second.
	if n > 5+3+7 {
		b.Errorf("%d calls in a second of a dead server", n)
	}
	b.server.Script(Step{})
	b.flush()
	b.has(50, nil)
}

func dropsAreToldToTheServer(b *bench) {
	o := quick()
	o.Queue, o.Batch, o.Linger = 10, 1000, time.Hour
	b.start(o, Step{Status: 503, Code: "store_unavailable"}, Step{})
	b.report(0, 40, 4)
	b.flush()
	b.has(10, map[string]int64{"queue_overflow": 30})
	if told := b.server.Discards(); len(told) != 1 || told["queue_overflow"] != 30 {
		b.Errorf("the server was told %v", told)
	}
}

func closeEndsInTime(b *bench) {
	b.start(quick(), Step{Hang: true})
	b.report(0, 20, 20)
	b.until("a request hangs", func() bool { return b.server.Calls() > 0 })
	began := time.Now()
	if err := b.sdk.Close(300 * time.Millisecond); err == nil {
		b.Error("close: got no error, though entries were dropped")
	}
	if took := time.Since(began); took > 5*time.Second {
		b.Errorf("close took %v of its 300ms", took)
	}
	b.sdk.Report("p0", number(99))
	b.has(0, map[string]int64{"shutdown": 21})
	if err := b.sdk.Close(time.Second); err != nil {
		b.Errorf("close again: %v", err)
	}
}
