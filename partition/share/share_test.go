package share

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestATenantLeavesMemoryToOthers(t *testing.T) {
	t.Parallel()
	all := NewBudget(1000)
	a, b := all.Tenant(), all.Tenant()
	fill := func(of *Account) (took int64) {
		for of.Take(1, 0) {
			took++
		}
		return took
	}
	if took := fill(a); took != 800 {
		t.Errorf("alone it takes %d, want four fifths", took)
	}
	if took := fill(b); took != 160 {
		t.Errorf("the second takes %d, want four fifths of the rest", took)
	}
	// Who has too much gives back as its work ends, and gets nothing until it has its share.
	a.Give(300)
	if took := fill(b); took != 240 || a.Take(1, 0) {
		t.Errorf("the second takes %d more, the first takes again: %d", took, a.Used())
	}
	if all.Used() != a.Used()+b.Used() {
		t.Errorf("all hold %d, want %d and %d", all.Used(), a.Used(), b.Used())
	}
}

func TestTheOnlyRequestOfATenantMayHaveAllThatIsLeft(t *testing.T) {
	t.Parallel()
	all := NewBudget(1000)
	one, other := all.Tenant(), all.Tenant()
	if !one.Take(500, 0) || !one.Take(450, 500) {
		t.Error("a single request is rejected with room for it")
	}
	if !other.Take(50, 0) || other.Take(1, 50) {
		t.Error("the other one gets more, or less, than is left")
	}
	one.Give(950)
	other.Give(50)
	if all.Used() != 0 || one.Used() != 0 {
		t.Errorf("%d and %d are held by nobody", all.Used(), one.Used())
	}
}

func TestTheTokensOfATenantShareWhatItMayHold(t *testing.T) {
	t.Parallel()
	all := NewBudget(1000)
	tenant := all.Tenant()
	greedy, calm := tenant.Tenant(), tenant.Tenant()
	tenant.Divide(true)
	for greedy.Take(1, 0) {
	}
	if !calm.Take(100, 0) || greedy.Used() != 640 {
		t.Errorf("one token holds %d, and the other has no room", greedy.Used())
	}
	tenant.Divide(false)
	for greedy.Take(1, 0) {
	}
	if got := tenant.Used(); got != 800 {
		t.Errorf("undivided, the tenant holds %d, want 800", got)
	}
}

func TestWhoWaitsForATurnIsServedTenantByTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(4, 128)
		var mu sync.Mutex
		var served []string
		enter := func(tenant string) {
			go func() {
				if turns.enter(t.Context(), tenant) {
					mu.Lock()
					served = append(served, tenant)
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		for range 10 {
			enter("greedy")
		}
		if len(served) != 3 {
			t.Fatalf("%d of one tenant run, want all places but one", len(served))
		}
		enter("calm")
		enter("calm")
		enter("late")
		enter("calm")
		served = nil
		turns.leave("greedy")
		turns.leave("calm")
		turns.leave("greedy")
		turns.leave("calm")
		synctest.Wait()
		if slices.Sort(served); !slices.Equal(served, []string{"calm", "calm", "greedy", "late"}) {
			t.Errorf("served %v", served)
		}
		for range 12 { // all that wait, and leave again
			for tenant := range turns.running {
				turns.leave(tenant)
				break
			}
			synctest.Wait()
		}
		if turns.free != 4 || len(turns.running)+len(turns.waiting)+len(turns.order) != 0 {
			t.Errorf("left: %+v", turns)
		}
	})
}

const maxWaiting = 128

func TestWhoWaitsForATurnInVainLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1, maxWaiting)
		if !turns.enter(t.Context(), "a") {
			t.Fatal("the only place is not free")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var rejected sync.WaitGroup
		for range maxWaiting {
			rejected.Go(func() {
				if turns.enter(ctx, "a") {
					t.Error("it got a place that is taken")
				}
			})
		}
		synctest.Wait()
		if began := time.Now(); turns.enter(ctx, "a") || time.Since(began) > 0 {
			t.Error("it waits behind many others")
		}
		rejected.Wait()
		if len(turns.waiting)+len(turns.order) != 0 {
			t.Errorf("left: %+v", turns)
		}
		turns.leave("a")
		if !turns.enter(t.Context(), "b") {
			t.Error("the place is not free again")
		}
	})
}
