package fallback

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// failures are the entries that an error names, by sequence.
func failures(t *testing.T, err error, batches ...*sink.Batch) map[int64]error {
	t.Helper()
	all := map[int64]error{}
	for i, list := range spread(err, batches) {
		for j, err := range list {
			if err != nil {
				all[batches[i].Entries[j].Seq] = err
			}
		}
	}
	return all
}

func want(t *testing.T, what string, got []int64, seqs ...int64) {
	t.Helper()
	if !slices.Equal(got, seqs) {
		t.Errorf("%s has %v, want %v", what, got, seqs)
	}
}

func TestEntriesThatATierRejectsGoOnAtOnce(t *testing.T) {
	t.Parallel()
	first, second := &box{fail: naming(sink.Permanent(errDead), 2, 4)}, &box{}
	s := newSink(config(), zap.NewNop(), first, second)
	if err := s.Write(t.Context(), []*sink.Batch{batch(1, 5, time.Minute)}); err != nil {
		t.Fatal(err)
	}
	want(t, "the first tier", first.seqs(), 1, 3, 5)
	want(t, "the second tier", second.seqs(), 2, 4)
	for i, n := range []float64{3, 2} {
		if got := testutil.ToFloat64(s.tiers[i].Accepted); got != n {
			t.Errorf("tier %d counts %v entries, want %v", i+1, got, n)
		}
	}
}

func TestAWriteThatIsRejectedWithoutNamesIsBisectedByTheDrain(t *testing.T) {
	t.Parallel()
	first, second := &box{fail: poisoned(3)}, &box{}
	s := newSink(config(), zap.NewNop(), first, second)
	if err := s.Write(t.Context(), []*sink.Batch{batch(1, 4, time.Minute)}); !rejectsUnnamed(err) {
		t.Errorf("got %v, want a rejection of all", err)
	}
	if err := s.Write(t.Context(), []*sink.Batch{batch(3, 1, time.Minute)}); err != nil {
		t.Errorf("got %v", err)
	}
	want(t, "the first tier", first.seqs())
	want(t, "the second tier", second.seqs(), 3)
}

func TestWhatTheLastTierRejectsIsRejected(t *testing.T) {
	t.Parallel()
	first, second, third := &box{fail: everything}, &box{fail: poisoned(2, 7)}, &box{fail: naming(sink.Permanent(errDead), 7)}
	s := newSink(config(), zap.NewNop(), first, second, third)
	b := batch(1, 9, time.Minute)
	failed := failures(t, s.Write(t.Context(), []*sink.Batch{b}), b)
	if err := failed[7]; len(failed) != 1 || !sink.IsPermanent(err) || !strings.HasPrefix(err.Error(), "not here; next tier: bad record; next tier: ") {
		t.Errorf("got %v, want entry 7 rejected by all", failed)
	}
	want(t, "the second tier", second.seqs(), 1, 3, 4, 5, 6, 8, 9)
	want(t, "the third tier", third.seqs(), 2)
}

func TestADeadLetterHasTheDetailOfTheLastTierThatGaveOne(t *testing.T) {
	t.Parallel()
	said := func(text string) error { return sink.Permanent(sink.WithDetail(errDead, text)) }
	for want, details := range map[string][2]string{"second": {"first", "second"}, "first": {"first", ""}, "": {"", ""}} {
		first, second := &box{fail: naming(said(details[0]), 1)}, &box{fail: naming(said(details[1]), 1)}
		b := batch(1, 2, time.Minute)
		err := failures(t, newSink(config(), zap.NewNop(), first, second).Write(t.Context(), []*sink.Batch{b}), b)[1]
		if got := sink.Detail(err); got != want || !sink.IsPermanent(err) {
			t.Errorf("%v: got %q of %v", details, got, err)
		}
	}
}

func TestAnEntryThatFailsStaysUntilItsLifeEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		attempt int
		left    time.Duration
		err     error
		stays   bool
	}{
		{1, 46 * time.Second, errDead, true},
		{1, 45 * time.Second, errDead, false},
		{5, 47 * time.Second, errDead, true}, // the next wait is 1.6 s at most
		{5, 46 * time.Second, errDead, false},
		{20, 76 * time.Second, errDead, true}, // and here 30 s
		{20, 74 * time.Second, errDead, false},
		{1 << 20, 74 * time.Second, errDead, false},
		{1, 106 * time.Second, sink.Throttle(errDead, time.Minute), true},
		{1, 104 * time.Second, sink.Throttle(errDead, time.Minute), false},
	} {
		t.Run(fmt.Sprint(tt.attempt, tt.left, tt.err), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first, second := &box{fail: always(tt.err)}, &box{}
				s := newSink(config(), zap.NewNop(), first, second)
				b := batch(1, 3, tt.left)
				b.Attempt = tt.attempt
				err := s.Write(t.Context(), []*sink.Batch{b})
				if n := len(failures(t, err, b)); tt.stays && (n != 3 || len(second.seqs()) != 0) || !tt.stays && (n != 0 || len(second.seqs()) != 3) {
					t.Errorf("stays %t, got %v, the second tier has %v", tt.stays, err, second.seqs())
				}
			})
		})
	}
}

func TestOnlyTheOldEntriesOfABatchGoOn(t *testing.T) {
	t.Parallel()
	first, second := &box{fail: always(errDead)}, &box{}
	s := newSink(config(), zap.NewNop(), first, second)
	b := batch(1, 4, 2*time.Minute)
	b.Entries[0].Occurred -= 90_000
	b.Entries[2].Occurred -= 91_000
	failed := failures(t, s.Write(t.Context(), []*sink.Batch{b}), b)
	if len(failed) != 2 || failed[2] == nil || failed[4] == nil || sink.IsPermanent(failed[2]) {
		t.Errorf("got %v, want 2 and 4 to be retried", failed)
	}
	want(t, "the second tier", second.seqs(), 1, 3)
}

func TestATierThatHangsLeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := &box{fail: hang}, &box{}
		s := newSink(config(), zap.NewNop(), first, second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := s.Write(ctx, []*sink.Batch{batch(1, 3, 50*time.Second)}); err != nil {
			t.Error(err)
		}
		want(t, "the second tier", second.seqs(), 1, 2, 3)
		if left, _ := ctx.Deadline(); time.Until(left) != 5*time.Second {
			t.Errorf("%s left, want half of 10s", time.Until(left))
		}
	})
}

// Entries live for less than a Write may take, and the first tier hangs: the drain's next
// attempt gets them to the second.
func TestShortLivesReachTheNextTierThoughTheFirstHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.MaxAge = 5 * time.Second
		first, second := &box{fail: hang}, &box{}
		s := newSink(cfg, zap.NewNop(), first, second)
		end := time.Now().Add(cfg.MaxAge)
		ctx, cancel := context.WithDeadline(t.Context(), end)
		defer cancel()
		for attempt := 1; attempt <= 3 && len(second.seqs()) == 0; attempt++ {
			b := batch(1, 2, time.Until(end))
			b.Attempt = attempt
			_ = s.Write(ctx, []*sink.Batch{b})
		}
		want(t, "the second tier", second.seqs(), 1, 2)
		if left := time.Until(end); left < cfg.MaxAge/5 {
			t.Errorf("with %s left, want more", left)
		}
	})
}

func TestATierThatIsDownIsTriedOnceASecondUntilItAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		first, second := &box{fail: always(errDead)}, &box{}
		s := newSink(config(), zap.New(core), first, second)
		next := 1
		write := func() error {
			next++
			return s.Write(t.Context(), []*sink.Batch{batch(next, 1, 2*time.Minute)})
		}
		grace := config().MaxAge / 8
		for end := time.Now().Add(grace); time.Now().Before(end); clocktest.Pass(500 * time.Millisecond) {
			if err := write(); err == nil {
				t.Fatal("an entry went on before the tier is down")
			}
		}
		before, _ := first.counts()
		for range 100 {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if testutil.ToFloat64(s.tiers[0].Down) != 1 {
				t.Fatal("the gauge does not say that the tier is down")
			}
			clocktest.Pass(100 * time.Millisecond)
		}
		if n, _ := first.counts(); n-before < 9 || n-before > 11 {
			t.Errorf("%d Writes to a tier that is down in 10 s, want one a second", n-before)
		}
		first.set(nil)
		clocktest.Pass(time.Second)
		taken := len(second.seqs())
		for range 10 {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(second.seqs()); got != taken || len(first.seqs()) != 10 {
			t.Errorf("after the tier came back the second got %d more", got-taken)
		}
		if testutil.ToFloat64(s.tiers[0].Down) != 0 {
			t.Error("the gauge still says that the tier is down")
		}
		if down, up := logs.FilterMessage("sink tier down, its entries go to the next").Len(), logs.FilterMessage("sink tier up").Len(); down != 1 || up != 1 {
			t.Errorf("%d and %d log lines, want one each", down, up)
		}
	})
}

func TestATierThatAnswersNowAndThenIsNotDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := &box{}, &box{}
		s := newSink(config(), zap.NewNop(), first, second)
		answers := []func(context.Context, []*sink.Batch) error{nil, naming(errDead, 1), always(sink.Permanent(errDead))}
		for i := range 60 {
			first.set(always(errDead))
			if i%10 == 0 {
				first.set(answers[i/10%len(answers)])
			}
			_ = s.Write(t.Context(), []*sink.Batch{batch(1, 2, 2*time.Minute)})
			clocktest.Pass(2 * time.Second)
		}
		if s.tiers[0].isDown() {
			t.Error("a tier that answers every 20 s is down")
		}
		// Nor are two failures with an hour between them.
		for range 2 {
			first.set(always(errDead))
			clocktest.Pass(time.Hour)
			if err := s.Write(t.Context(), []*sink.Batch{batch(1, 2, 2*time.Minute)}); err == nil {
				t.Error("an entry went on at the first failure")
			}
		}
	})
}

func TestAnEntryThatOnlyTheNextTierRejectsWaitsUnlessItsLifeEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := &box{fail: always(errDead)}, &box{fail: everything}
		s := newSink(config(), zap.NewNop(), first, second)
		_ = s.Write(t.Context(), []*sink.Batch{batch(1, 1, 2*time.Minute)})
		clocktest.Pass(config().MaxAge / 8)
		for left, rejected := range map[time.Duration]bool{2 * time.Minute: false, 40 * time.Second: true} {
			b := batch(1, 1, left)
			if err := failures(t, s.Write(t.Context(), []*sink.Batch{b}), b)[1]; sink.IsPermanent(err) != rejected {
				t.Errorf("with %s left: got %v", left, err)
			}
		}
	})
}

func TestUnderAtMostOnceOnlyWhatWasNotSentOrRejectedGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.AtMostOnce = true
		first, second := &box{fail: hang}, &box{}
		s := newSink(cfg, zap.NewNop(), first, second)
		write := func(first int, left time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return s.Write(ctx, []*sink.Batch{batch(first, 2, left)})
		}
		for range 4 { // the last one makes the tier down
			if err := write(1, time.Second); err == nil {
				t.Fatal("a Write with an unknown outcome went on")
			}
		}
		if err := write(3, time.Minute); err != nil {
			t.Errorf("a tier that is down: %v", err)
		}
		want(t, "the second tier", second.seqs(), 3, 4)
		first.set(poisoned(5))
		clocktest.Pass(time.Second)
		if err := write(5, time.Minute); err != nil {
			t.Errorf("a rejected batch: %v", err)
		}
		want(t, "the second tier", second.seqs(), 3, 4, 5, 6)
		if n, _ := first.counts(); n != 5 {
			t.Errorf("%d Writes to the first tier, want 5: nothing twice", n)
		}
	})
}

func TestOneTierThatOpensIsEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := &box{open: func() error { return errDead }}, &box{open: func() error { return errDead }}
		s := newSink(config(), zap.NewNop(), first, second)
		if err := s.Open(t.Context()); !errors.Is(err, errDead) || !strings.Contains(err.Error(), "box0:") || !strings.Contains(err.Error(), "box1:") {
			t.Errorf("got %v, want the errors of both", err)
		}
		second.open = nil
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), []*sink.Batch{batch(1, 1, 2*time.Minute)}); err == nil || errors.Is(err, sink.ErrNotConnected) {
			t.Errorf("got %v, want a plain error", err)
		}
		if err := s.Write(t.Context(), []*sink.Batch{batch(2, 1, 20*time.Second)}); err != nil {
			t.Errorf("an entry that ends: %v", err)
		}
		first.open = nil
		clocktest.Pass(probePause)
		if err := s.Write(t.Context(), []*sink.Batch{batch(3, 1, 2*time.Minute)}); err != nil {
			t.Errorf("after the first tier came: %v", err)
		}
		want(t, "the first tier", first.seqs(), 3)
		want(t, "the second tier", second.seqs(), 2)
	})
}

func TestATierThatLosesItsConnectionIsOpenedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := &box{fail: naming(sink.ErrNotConnected, 1)}, &box{}
		s := newSink(config(), zap.NewNop(), first, second)
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		b := batch(1, 2, 2*time.Minute)
		failed := failures(t, s.Write(t.Context(), []*sink.Batch{b}), b)
		if len(failed) != 1 || errors.Is(failed[1], sink.ErrNotConnected) {
			t.Errorf("got %v, want a plain error for 1", failed)
		}
		if err := s.Write(t.Context(), []*sink.Batch{batch(2, 2, 2*time.Minute)}); err != nil || first.opens != 2 {
			t.Errorf("got %v after %d Opens, want 2", err, first.opens)
		}
	})
}

func TestANextTierWhoseIdleConnectionBrokeIsOpenedAndWrittenAtOnce(t *testing.T) {
	t.Parallel()
	first, second := &box{fail: everything}, &box{}
	broken := true
	second.fail = func(context.Context, []*sink.Batch) error {
		if broken {
			broken = false
			return fmt.Errorf("%w: broken pipe", sink.ErrNotConnected)
		}
		return nil
	}
	s := newSink(config(), zap.NewNop(), first, second)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), []*sink.Batch{batch(1, 3, time.Minute)}); err != nil || second.opens != 2 {
		t.Errorf("got %v after %d Opens, want nil after 2", err, second.opens)
	}
	want(t, "the second tier", second.seqs(), 1, 2, 3)
}

// The next tier takes one batch of one partition a Write, and two Writes at once.
func TestTheNextTierGetsWritesAsItWantsThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := &box{caps: sink.Caps{MaxBatches: 100, Linger: time.Second}, fail: everything}
		slow := func(ctx context.Context, batches []*sink.Batch) error {
			for _, b := range batches {
				if b.Partition != batches[0].Partition {
					t.Errorf("%s and %s in one Write", batches[0].Partition, b.Partition)
				}
			}
			if len(batches) > 2 {
				t.Errorf("%d batches in a Write, want 2 at most", len(batches))
			}
			clocktest.Take(time.Second)
			return nil
		}
		second := &box{caps: sink.Caps{MaxBatches: 2, MaxInFlight: 2}, fail: slow}
		s := newSink(config(), zap.NewNop(), first, second)
		if s.Caps() != first.caps {
			t.Errorf("got %+v, want the Caps of the first tier", s.Caps())
		}
		for range 5 {
			go func() {
				var batches []*sink.Batch
				for i := range 6 {
					b := batch(i*10, 2, time.Minute)
					b.Partition = fmt.Sprint("p", i/3)
					batches = append(batches, b)
				}
				if err := s.Write(t.Context(), batches); err != nil {
					t.Error(err)
				}
			}()
		}
		clocktest.Pass(time.Minute)
		if writes, most := second.counts(); writes != 5*4 || most != 2 || len(second.seqs()) != 60 {
			t.Errorf("%d Writes, %d at once, %d entries; want 20, 2 and 60", writes, most, len(second.seqs()))
		}
	})
}

func TestASinkThatNamesWhatWasNotWrittenIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, bad := range []*sink.BatchError{{}, {Failed: []sink.EntryError{{Batch: 1, Err: sink.Permanent(errDead)}}}, {Failed: []sink.EntryError{{Entry: -1, Err: errDead}}}} {
		first, second := &box{}, &box{}
		first.set(func(context.Context, []*sink.Batch) error { return bad })
		s := newSink(config(), zap.NewNop(), first, second)
		b := batch(1, 2, 2*time.Minute)
		if err := s.Write(t.Context(), []*sink.Batch{b}); err == nil || len(failures(t, err, b)) != 2 || len(second.seqs()) != 0 {
			t.Errorf("%v: got %v", bad, err)
		}
	}
}

// As many as an S3 object has, each for a POST of its own.
func TestManyBatchesGoOnOneByOneWithoutQuadraticWork(t *testing.T) {
	const n = 50_000
	first, second := &box{caps: sink.Caps{MaxBatches: n, Linger: time.Second}, fail: everything}, &box{}
	s := newSink(config(), zap.NewNop(), first, second)
	batches := make([]*sink.Batch, n)
	for i := range batches {
		batches[i] = batch(i+1, 1, time.Minute)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := s.Write(t.Context(), batches); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<30 {
		t.Errorf("%d MiB for %d batches", used>>20, n)
	}
	if got := len(second.seqs()); got != n {
		t.Errorf("the second tier has %d entries, want %d", got, n)
	}
}

// A job has no max_age: it goes on when this is its last delivery, or it expires first.
func TestAJobGoesOnWhenItIsItsLastDelivery(t *testing.T) {
	t.Parallel()
	first, second := &box{fail: func(context.Context, []*sink.Batch) error { return errDead }}, &box{}
	s := New(Config{MaxAge: time.Minute, BackoffBase: time.Second, BackoffMax: time.Minute}, []Tier{{Sink: first}, {Sink: second}}, zap.NewNop())
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	jobs := []sink.Job{
		{Attempt: 1, Tries: 3},
		{Attempt: 3, Tries: 3},
		{Attempt: 1, Tries: 3, Expires: time.Now().Add(time.Second)},
		{Attempt: 1, Tries: 3, Expires: time.Now().Add(time.Hour)},
	}
	b := &sink.Batch{Namespace: "mail", Partition: "mail-eu", Attempt: 3, Jobs: jobs}
	for i := range jobs {
		b.Entries = append(b.Entries, sink.Entry{Seq: int64(i), Payload: []byte("1")}) // years ago
	}
	err := s.Write(t.Context(), []*sink.Batch{b})
	var failed *sink.BatchError
	if !errors.As(err, &failed) || len(failed.Failed) != 2 || failed.Failed[0].Entry != 0 || failed.Failed[1].Entry != 3 {
		t.Errorf("got %v, want the jobs 0 and 3 to be tried again", err)
	}
	var taken []int64
	for _, r := range second.records {
		taken = append(taken, r.Seq)
	}
	if !slices.Equal(taken, []int64{1, 2}) {
		t.Errorf("the fallback took %v, want 1 and 2", taken)
	}
}

// Unsent lets a job keep its try, so no tier may have seen it in any Write.
func TestAJobThatATierSawBeforeItWasAwayIsNotUnsent(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]error{"its connection broke": sink.ErrNotConnected, "it rejected the Write": sink.Permanent(errDead)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rejected := sink.Unsent(errors.New("connection refused"))
			first, second := &box{fail: always(rejected)}, &box{}
			second.fail = func(context.Context, []*sink.Batch) error {
				second.set(always(rejected))
				return seen
			}
			s := newSink(config(), zap.NewNop(), first, second)
			if err := s.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			second.open = func() error { return errors.New("connection refused") }
			last := sink.Job{Attempt: 3, Tries: 3}
			b := &sink.Batch{
				Namespace: "mail", Partition: "mail-eu", Attempt: 3, Jobs: []sink.Job{last, last},
				Entries: []sink.Entry{{Seq: 1, Payload: []byte("1")}, {Seq: 2, Payload: []byte("2")}},
			}
			failed := failures(t, s.Write(t.Context(), []*sink.Batch{b}), b)
			if len(failed) != 2 || sink.IsUnsent(failed[1]) || sink.IsUnsent(failed[2]) {
				t.Errorf("got %v, unsent %t and %t", failed, sink.IsUnsent(failed[1]), sink.IsUnsent(failed[2]))
			}
			if again := failures(t, s.Write(t.Context(), []*sink.Batch{b}), b); !sink.IsUnsent(again[1]) || !sink.IsUnsent(again[2]) {
				t.Errorf("nobody has seen it: got %v", again)
			}
		})
	}
}

// everything rejects each entry by name.
func everything(_ context.Context, batches []*sink.Batch) error {
	failed := &sink.BatchError{}
	for i, b := range batches {
		for j := range b.Entries {
			failed.Fail(i, j, sink.Permanent(errors.New("not here")))
		}
	}
	return failed
}

func TestConforms(t *testing.T) {
	t.Parallel()
	// Entries of the suite have a minute to live, which is less than a quarter.
	ending := config()
	ending.MaxAge = time.Hour
	for name, x := range map[string]struct {
		cfg Config
		// how the first tier fails, for good; without any it takes the entries
		open func() error
		fail func(context.Context, []*sink.Batch) error
	}{
		"the first tier works":                                    {cfg: config()},
		"the first tier rejects all":                              {cfg: config(), fail: everything},
		"the first tier is dead and entries have no time to wait": {cfg: ending, fail: always(errDead)},
		"the first tier never opens and entries have no time":     {cfg: ending, open: func() error { return errDead }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, sinktest.Harness{New: func(testing.TB) sinktest.Fixture {
				first := &box{caps: sink.Caps{MaxBatches: 4}, fail: x.fail, open: x.open}
				second := &box{caps: sink.Caps{MaxBatches: 2, MaxInFlight: 3}}
				works := x.fail == nil && x.open == nil
				taker := second
				if works {
					taker = first
				}
				fault := func(err error) func() func() {
					return func() func() {
						taker.set(always(err))
						return func() { taker.set(nil) }
					}
				}
				fixture := sinktest.Fixture{
					Sink:     newSink(x.cfg, zap.NewNop(), first, second),
					Received: func() ([]sinktest.Record, error) { return append(first.received(), second.received()...), nil },
					Stall: func() func() {
						taker.set(hang)
						return func() { taker.set(nil) }
					},
					Faults: []sinktest.Fault{
						{Name: "dead", Start: fault(errDead)},
						{Name: "throttled", Start: fault(sink.Throttle(errDead, time.Second))},
						{Name: "not connected", Start: fault(sink.ErrNotConnected)},
					},
				}
				if !works {
					fixture.Faults = append(fixture.Faults, sinktest.Fault{Name: "rejects", Permanent: true, Start: fault(sink.Permanent(errDead))})
				}
				return fixture
			}})
		})
	}
}
