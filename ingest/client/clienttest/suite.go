// Package clienttest is the conformance suite of Spillway's client libraries, in whatever language:
// servers that follow a script, and what every library must make of them, events and jobs. PROTOCOL.md
// says how it drives a program.
//
//	func TestConformance(t *testing.T) {
//		clienttest.Run(t, func(t testing.TB, url string, o clienttest.Options) clienttest.SDK { … })
//	}
package clienttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Options are the knobs that the suite turns; 0 means the library's default. They are
// those of spillway.ReporterConfig.
type Options struct {
	Token                   string
	Batch, Queue            int
	Linger, MaxAge, Timeout time.Duration
	Attempts                int
	BackoffBase, BackoffMax time.Duration
	BreakAfter              int
	ProbeEvery              time.Duration
	ThrowHooks              bool          // onDrop and onError write "drop_hook 1" or "error_hook 1" to standard error, with how often they were called, and throw "fault 1 of …"
	KeyWindow               time.Duration // how long a key is used after the first attempt that may have stored entries; default 110s
}

// Counts are a library's own. Reported = Acked + Pending + the sum of Dropped, always.
type Counts struct {
	Reported, Acked, Pending int64
	Dropped                  map[string]int64
}

// SDK is a library at work.
type SDK interface {
	// Report queues a payload. The suite reports from several goroutines.
	Report(partition, payload string)
	// ReportAt is Report of an entry that occurred at a time.
	ReportAt(partition, payload string, at time.Time)
	// Flush returns when nothing is pending of what was reported before, or within timeout.
	Flush(timeout time.Duration) error
	// Close is Flush, and then the end; what is left after timeout is dropped.
	Close(timeout time.Duration) error
	Counts() Counts
	// Said is what the library wrote to standard error, or where else it warns.
	Said() string
}

// Open makes an SDK that reports to url. The suite closes it.
type Open func(t testing.TB, url string, o Options) SDK

// patience bounds whatever a case waits for.
const patience = 20 * time.Second

// cases are those of Run.
var cases = map[string]func(*bench){
	"what is accepted is stored once and in order":           whatIsAcceptedIsStoredOnceAndInOrder,
	"a batch goes before its linger, the rest after it":      aBatchGoesBeforeItsLinger,
	"payloads that are no JSON arrive as they are":           payloadsThatAreNoJSONArriveAsTheyAre,
	"payloads that nest too deep cost no other entry":        payloadsThatNestTooDeepCostNoOtherEntry,
	"a clock that goes back harms nobody":                    aClockThatGoesBackHarmsNobody,
	"429 waits as long as it is told":                        tooManyWaitsAsLongAsItIsTold,
	"503 is tried again under the same key":                  unavailableIsTriedAgain,
	"a hanging server is left after the timeout":             aHangingServerIsLeft,
	"a lost answer counts once":                              aLostAnswerCountsOnce,
	"a cut connection is tried again":                        aCutConnectionIsTriedAgain,
	"a slow server blocks nobody":                            aSlowServerBlocksNobody,
	"entries that the server wants again come again":         entriesWantedAgainComeAgain,
	"entries that may be stored come again under their key":  entriesThatMayBeStoredComeOnce,
	"no key is used for longer than the server remembers it": noKeyIsUsedForTooLong,
	"malformed answers are tried again":                      malformedAnswersAreTriedAgain,
	"results of kinds that are new are taken":                resultsOfOtherKindsAreTaken,
	"entries that the server drops are counted":              entriesDroppedByTheServerAreCounted,
	"a rejected request is dropped, not repeated":            aRejectedRequestIsDropped,
	"entries that the server always wants again are dropped": entriesWantedForEverAreDropped,
	"a partition is in one request at a time":                aPartitionIsInOneRequestAtATime,
	"the oldest of all partitions make room":                 theOldestOfAllMakeRoom,
	"attempts end":                                           attemptsEnd,
	"the oldest make room":                                   theOldestMakeRoom,
	"one partition leaves half of the queue to others":       onePartitionLeavesHalfToOthers,
	"nothing stale is sent":                                  nothingStaleIsSent,
	"what is stale behind what is fresh is not sent":         whatIsStaleBehindWhatIsFreshIsNotSent,
	"a dead server is probed, not hammered":                  aDeadServerIsProbed,
	"a restart costs no entry":                               aRestartCostsNoEntry,
	"a service that is away wears out no attempts":           aServiceThatIsAwayWearsOutNoAttempts,
	"drops are told to the server":                           dropsAreToldToTheServer,
	"close ends in time and counts what it drops":            closeEndsInTime,
	"many reporters at once lose nothing":                    manyReportersLoseNothing,
	"a reporter without a hook warns once of each failure":   aReporterWithoutAHookWarns,
	"hooks that throw change nothing":                        hooksThatThrowChangeNothing,
}

// Run tries a library with every case, in parallel, but for those that it leaves out.
func Run(t *testing.T, open Open, except ...string) {
	t.Helper()
	each(t, cases, except, func(t *testing.T, try func(*bench)) { try(&bench{T: t, open: open}) })
}

// each runs cases in parallel, but for those that are left out.
func each[B any](t *testing.T, cases map[string]func(B), except []string, run func(*testing.T, func(B))) {
	t.Helper()
	for _, name := range except {
		if cases[name] == nil {
			t.Errorf("%q is left out, and no case", name)
		}
	}
	for name, try := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if slices.Contains(except, name) {
				t.Skip("this library leaves it out")
			}
			run(t, try)
		})
	}
}

// bench is what a case works on.
type bench struct {
	*testing.T
	open   Open
	server *Server
	sdk    SDK
}

// quick are options under which a case takes little time.
func quick() Options {
	return Options{
		Linger: 5 * time.Millisecond, BackoffBase: time.Millisecond, BackoffMax: 20 * time.Millisecond,
		Timeout: 5 * time.Second, ProbeEvery: 50 * time.Millisecond,
	}
}

func (b *bench) start(o Options, script ...Step) {
	b.Helper()
	b.server = NewServer(b, script...)
	b.sdk = b.open(b, b.server.URL, o)
	b.Cleanup(func() {
		_ = b.sdk.Close(time.Second)
		b.adds(b.sdk.Counts())
	})
}

// adds checks the one equation.
func (b *bench) adds(c Counts) {
	b.Helper()
	sum := c.Acked + c.Pending
	for _, n := range c.Dropped {
		sum += n
	}
	if sum != c.Reported || c.Pending < 0 {
		b.Errorf("the account does not add up: %+v", c)
	}
}

func (b *bench) flush() {
	b.Helper()
	if err := b.sdk.Flush(patience); err != nil {
		b.Errorf("flush: %v", err)
	}
}

// has checks counts that are not zero: acked, and dropped by reason.
func (b *bench) has(acked int64, dropped map[string]int64) {
	b.Helper()
	c := b.sdk.Counts()
	b.adds(c)
	if c.Acked != acked || c.Pending != 0 {
		b.Errorf("got %+v, want %d acked and none pending", c, acked)
	}
	for why, n := range dropped {
		if c.Dropped[why] != n {
			b.Errorf("got %+v, want %d %s", c, n, why)
		}
	}
	sum := int64(0)
	for _, n := range c.Dropped {
		sum += n
	}
	for _, n := range dropped {
		sum -= n
	}
	if sum != 0 {
		b.Errorf("got %+v, want dropped %v", c, dropped)
	}
}

// number is a payload of which the suite knows the order.
func number(i int) string { return fmt.Sprintf(`{"n":%d}`, i) }

// report reports the numbers of [from, to), each to partition p0, p1 … of so many in turn.
func (b *bench) report(from, to, partitions int) {
	for i := from; i < to; i++ {
		b.sdk.Report(fmt.Sprint("p", i%partitions), number(i))
	}
}

// numbers are those that a partition has stored.
func (b *bench) numbers(partition string) (list []int) {
	b.Helper()
	for _, e := range b.server.Stored() {
		if e.Partition == partition {
			n := 0
			if _, err := fmt.Sscanf(e.Data, `{"n":%d}`, &n); err != nil {
				b.Errorf("%s has %q", partition, e.Data)
			}
			list = append(list, n)
		}
	}
	return list
}

// delivers reports n entries to partitions in turn: the server gets all, those of a partition in order.
func (b *bench) delivers(n, partitions int) {
	b.Helper()
	b.report(0, n, partitions)
	b.flush()
	b.has(int64(n), nil)
	b.ordered(0, n, partitions)
}

// ordered checks that each partition has what was reported, once and in order.
func (b *bench) ordered(from, to, partitions int) {
	b.Helper()
	for p := range partitions {
		var want []int
		for i := from; i < to; i++ {
			if i%partitions == p {
				want = append(want, i)
			}
		}
		if got := b.numbers(fmt.Sprint("p", p)); !slices.Equal(got, want) {
			b.Errorf("partition p%d has %v, want %v", p, brief(got), brief(want))
		}
	}
}

func brief(list []int) string {
	if len(list) > 20 {
		return fmt.Sprintf("%d from %v to %v", len(list), list[:5], list[len(list)-5:])
	}
	return fmt.Sprint(list)
}

// until waits for something to become true.
func (b *bench) until(what string, true func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !true() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("%s: not within %v; %+v, %d calls", what, patience, b.sdk.Counts(), b.server.Calls())
		}
	}
}

func manyReportersLoseNothing(b *bench) {
	b.start(quick())
	var reporters sync.WaitGroup
	for g := range 8 {
		reporters.Go(func() {
			for i := range 500 {
				b.sdk.Report(fmt.Sprint("g", g), number(i))
			}
		})
	}
	reporters.Wait()
	b.flush()
	b.has(4000, nil)
	for g := range 8 {
		if got := b.numbers(fmt.Sprint("g", g)); len(got) != 500 || !slices.IsSorted(got) {
			b.Errorf("reporter %d: stored %s", g, brief(got))
		}
	}
}

// wantWarnings checks what a library said of a service: a line for each failure.
func wantWarnings(t testing.TB, said, url string, failures ...string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(said) {
		if strings.Contains(line, url) {
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		if i >= len(failures) || !strings.Contains(line, failures[i]) || !strings.Contains(line, "as the script says") {
			t.Errorf("warned %q, want %v", line, failures)
		}
	}
	if len(lines) != len(failures) || strings.Contains(said, "s3cret") {
		t.Errorf("warned %q, want %v", said, failures)
	}
}

// wantFaults checks that of each hook that throws it is told once.
func wantFaults(t testing.TB, said string, hooks ...string) {
	t.Helper()
	for _, hook := range hooks {
		if !strings.Contains(said, "fault 1 of "+hook) || strings.Contains(said, "fault 2 of "+hook) {
			t.Errorf("want the first fault of %s told, and no other: %s", hook, said)
		}
	}
}

func hooksThatThrowChangeNothing(b *bench) {
	o := quick()
	o.Queue, o.Linger, o.ThrowHooks = 10, time.Hour, true
	b.start(o, Step{Status: 503, Code: "store_unavailable"}, Step{})
	b.report(0, 40, 2)
	b.flush()
	b.until("both are told", func() bool {
		return strings.Contains(b.sdk.Said(), "fault 1 of drop_hook") && strings.Contains(b.sdk.Said(), "fault 1 of error_hook")
	})
	b.server.Script(Step{Status: 401, Code: "unauthorized"})
	b.report(40, 60, 2)
	b.flush()
	b.until("both are told again", func() bool {
		return strings.Contains(b.sdk.Said(), "drop_hook 2") && strings.Contains(b.sdk.Said(), "error_hook 2")
	})
	b.server.Script(Step{})
	b.report(60, 70, 2)
	b.flush()
	b.has(20, map[string]int64{"queue_overflow": 40, "rejected": 10})
	wantFaults(b, b.sdk.Said(), "drop_hook", "error_hook")
}

func aReporterWithoutAHookWarns(b *bench) {
	o := quick()
	o.Token = "s3cret"
	b.start(o, Step{Status: 401, Code: "unauthorized"})
	for i := range 3 {
		b.report(i, i+1, 1)
		b.flush()
	}
	b.until("it warns", func() bool { return strings.Contains(b.sdk.Said(), b.server.URL) })
	b.server.Script(Step{Status: 400, Code: "bad_item"})
	b.report(3, 4, 1)
	b.flush()
	b.until("it warns again", func() bool { return strings.Contains(b.sdk.Said(), "bad_item") })
	wantWarnings(b, b.sdk.Said(), b.server.URL, "unauthorized", "bad_item")
	b.has(0, map[string]int64{"rejected": 4})
}
