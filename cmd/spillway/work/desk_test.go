package work

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
)

// A desk with 4 idle children, whose jobs take so long.
func seated(took time.Duration) *desk {
	d := newDesk()
	d.seat(4)
	d.idle = 4
	for range 200 {
		d.learn(took)
	}
	return d
}

func TestADeskAsksForMoreThanItsChildrenTakeOnlyWhileJobsAreShort(t *testing.T) {
	t.Parallel()
	if n := seated(time.Second).want(); n != 4 {
		t.Errorf("with slow jobs it wants %d", n)
	}
	last := seated(time.Millisecond)
	if last.last = true; last.want() != 4 {
		t.Error("with jobs at their last try it wants more than 4")
	}
	paused := seated(time.Millisecond)
	if paused.paused = true; paused.want() != 0 {
		t.Error("while it is paused it wants jobs")
	}
	quick := seated(time.Millisecond)
	if n := quick.want(); n < 40 || n > maxAhead+4 {
		t.Errorf("with quick jobs it wants %d", n)
	}
	quick.idle = 0
	if quick.promised -= 10; quick.want() != 0 {
		t.Error("with few gone it wants more")
	}
	if quick.promised = 4; quick.want() < 20 {
		t.Error("with most gone it does not want more")
	}
}

func TestAJobThatWaitsForAChildForTooLongGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		d.seat(1)
		began := time.Now()
		if err := d.handle(t.Context(), client.Job{ID: "a"}); err != client.ErrNotBegun || time.Since(began) != staleAfter {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		go func() {
			task := d.next(t.Context(), nil)
			task.done <- errors.New("no")
		}()
		if err := d.handle(t.Context(), client.Job{ID: "a"}); err == nil || err.Error() != "no" {
			t.Errorf("got %v", err)
		}
		d.paused = true
		go func() {
			if task := d.next(t.Context(), nil); task != nil {
				t.Error("a job begins while the worker is paused")
			}
		}()
		if err := d.handle(t.Context(), client.Job{ID: "a"}); err != client.ErrNotBegun {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

func TestPlacesWaitUntilThereIsOne(t *testing.T) {
	t.Parallel()
	d := newDesk()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan int)
	go func() { got <- d.places(ctx, 0); got <- d.places(ctx, 1); got <- d.places(ctx, 0) }()
	d.note(func() { d.seated, d.idle = 1, 1 })
	if a, b := <-got, <-got; a != 1 || b != 1 {
		t.Errorf("got %d, then %d", a, b)
	}
	cancel()
	if n := <-got; n != 0 {
		t.Errorf("got %d when it ends", n)
	}
}
