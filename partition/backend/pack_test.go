package backend

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var errMoving = Classify(AnsweredError("TRYAGAIN Multiple keys request during rehashing of slot"))

// packs are calls for items of one shard.
func packs(b *Breaker, items ...[]string) (all []Pack[string]) {
	for _, of := range items {
		all = append(all, Pack[string]{&Call{breaker: b}, of})
	}
	return all
}

// slot is a slot that moves: it rejects calls with an item of which the key is not there.
type slot struct {
	absent map[string]bool
	items  map[*Call][]string
	ran    [][]string
}

func newSlot(absent ...string) *slot {
	s := &slot{map[string]bool{}, map[*Call][]string{}, nil}
	for _, item := range absent {
		s.absent[item] = true
	}
	return s
}

func (s *slot) fill(b *Breaker) func(*Call, []string) {
	return func(c *Call, items []string) { c.breaker, s.items[c] = b, items }
}

func (s *slot) run(calls []*Call) {
	for _, c := range calls {
		s.ran = append(s.ran, s.items[c])
		c.Err = nil
		if slices.ContainsFunc(s.items[c], func(item string) bool { return s.absent[item] }) {
			c.Err = errMoving
		}
	}
}

func always(string, []string) bool { return true }

// errorsOf are the errors of the items.
func errorsOf(packs []Pack[string]) map[string]error {
	all := map[string]error{}
	for _, pack := range packs {
		for _, item := range pack.Items {
			all[item] = pack.Err
		}
	}
	return all
}

func TestOnlyItemsOfRejectedCallsRunAgainByThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := &Breaker{backend: &Backend{patience: 1}}, newSlot("new")
		got := errorsOf(RunPacks(t.Context(), packs(b, []string{"a", "new", "b"}, []string{"c", "d"}), s.fill(b), s.run, nil))
		if len(got) != 5 || !Moving(got["new"]) || got["a"] != nil || got["b"] != nil || got["c"] != nil || got["d"] != nil {
			t.Errorf("got %v", got)
		}
		want := [][]string{{"a", "new", "b"}, {"c", "d"}, {"a"}, {"new"}, {"b"}}
		if !slices.EqualFunc(s.ran, want, slices.Equal) {
			t.Errorf("ran %v, want %v", s.ran, want)
		}
	})
}

func TestARejectedItemIsRepeatedUntilItsKeysAreThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := &Breaker{backend: &Backend{patience: 1}}, newSlot("new", "newer")
		time.AfterFunc(time.Second, func() { delete(s.absent, "new") })
		time.AfterFunc(2*time.Second, func() { delete(s.absent, "newer") })
		began := time.Now()
		got := errorsOf(RunPacks(t.Context(), packs(b, []string{"new", "a", "newer"}), s.fill(b), s.run, always))
		if took := time.Since(began); got["new"] != nil || got["newer"] != nil || took > 2*time.Second+2*movePause {
			t.Errorf("after %v got %v", took, got)
		}
	})
}

func TestCallsOfAShardAreRepeatedForFiveSecondsAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := &Breaker{backend: &Backend{patience: 1}}, newSlot("new")
		waits := func(b *Breaker) time.Duration {
			began := time.Now()
			if got := errorsOf(RunPacks(t.Context(), packs(b, []string{"new"}), s.fill(b), s.run, always)); !Moving(got["new"]) {
				t.Errorf("got %v", got)
			}
			return time.Since(began)
		}
		near := func(got, want time.Duration) bool { return got >= want && got <= want+2*movePause }
		if took := waits(b); !near(took, moveBudget) {
			t.Errorf("the first took %v, want %v", took, moveBudget)
		}
		if took := waits(b); took != 0 {
			t.Errorf("the next took %v", took)
		}
		if took := waits(&Breaker{backend: &Backend{patience: 1}}); !near(took, moveBudget) {
			t.Errorf("that of another shard took %v, want %v", took, moveBudget)
		}
		time.Sleep(moveRest)
		if took := waits(b); !near(took, moveBudget) {
			t.Errorf("a minute later it took %v, want %v", took, moveBudget)
		}
		if took := waits(nil); took != 0 {
			t.Errorf("without a shard it took %v", took)
		}
	})
}

func TestAContextThatEndsEndsTheRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b, s := &Breaker{backend: &Backend{patience: 1}}, newSlot("new")
		began := time.Now()
		got := errorsOf(RunPacks(ctx, packs(b, []string{"a", "new"}), s.fill(b), s.run, always))
		if took := time.Since(began); took != time.Second || !Moving(got["new"]) || got["a"] != nil {
			t.Errorf("after %v got %v", took, got)
		}
	})
}

// Of a name, "p2" is behind "p1".
func TestNoItemRunsAfterOneBehindItWasAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keepsOrder := func(item string, answered []string) bool {
			return !slices.ContainsFunc(answered, func(later string) bool { return later[0] == item[0] })
		}
		b, s := &Breaker{backend: &Backend{patience: 1}}, newSlot("new", "q1", "q2")
		time.AfterFunc(time.Second, func() { delete(s.absent, "q2") })
		got := errorsOf(RunPacks(t.Context(), packs(b, []string{"new", "p1", "q1"}, []string{"p2", "q2"}, []string{"p3"}), s.fill(b), s.run, keepsOrder))
		for item, ran := range map[string]bool{"new": false, "p1": false, "p2": false, "p3": true, "q1": false, "q2": true} {
			if (got[item] == nil) != ran || !ran && !Moving(got[item]) {
				t.Errorf("%s: %v", item, got[item])
			}
		}
	})
}

func TestOneCallIsRepeatedInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, ran := &Call{breaker: &Breaker{backend: &Backend{patience: 1}}}, 0
		other := errors.New("another")
		RunOne(t.Context(), c, func(calls []*Call) {
			if ran++; ran < 3 {
				calls[0].Err = errMoving
			} else {
				calls[0].Err = other
			}
		})
		if ran != 3 || c.Err != other {
			t.Errorf("ran %d times, %v", ran, c.Err)
		}
	})
}
