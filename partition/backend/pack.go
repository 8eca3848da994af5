package backend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// A Pack is a call for several items, which are in order.
type Pack[T any] struct {
	*Call
	Items []T
}

// Join puts items, in order, into packs: each into the last one that it joins, or into another.
func Join[T any](items []T, joins func(others []T, item T) bool) (packs []Pack[T]) {
next:
	for _, item := range items {
		for i := range slices.Backward(packs) {
			if joins(packs[i].Items, item) {
				packs[i].Items = append(packs[i].Items, item)
				continue next
			}
		}
		packs = append(packs, Pack[T]{Call: &Call{}, Items: []T{item}})
	}
	return packs
}

// RunPacks fills the calls of packs and runs them. While a cluster moves a slot, it rejects a call
// whose keys are not all on one of the two masters (TRYAGAIN), although most items could be served.
// So these items run again one by one. What is rejected even so is repeated for as long as its shard
// allows: all others wait for it, so that is little.
//
// repeats says whether an item may still run when others behind it were answered already. nil: it
// runs once more by itself, and is never repeated. RunPacks returns the packs that ended, in no
// order.
func RunPacks[T any](ctx context.Context, packs []Pack[T], fill func(*Call, []T), run func([]*Call),
	repeats func(item T, answered []T) bool) []Pack[T] {
	for _, pack := range packs {
		fill(pack.Call, pack.Items)
	}
	run(callsOf(packs))
	if !slices.ContainsFunc(packs, func(p Pack[T]) bool { return Moving(p.Err) }) {
		return packs
	}
	ended, again := split(packs, fill, repeats)
	for len(again) > 0 && pause(ctx, movePause) {
		run(callsOf(again))
		var more []Pack[T]
		more, again = split(again, fill, repeats)
		ended = append(ended, more...)
	}
	return append(ended, again...)
}

// RunOne is RunPacks for a call that is filled, and that nothing follows.
func RunOne(ctx context.Context, c *Call, run func([]*Call)) {
	RunPacks(ctx, []Pack[*Call]{{Call: c, Items: []*Call{c}}}, func(*Call, []*Call) {}, run,
		func(*Call, []*Call) bool { return true })
}

func callsOf[T any](packs []Pack[T]) []*Call {
	calls := make([]*Call, len(packs))
	for i, pack := range packs {
		calls[i] = pack.Call
	}
	return calls
}

// split divides packs that ran into those that ended, and one for each item that runs again, in
// order.
func split[T any](packs []Pack[T], fill func(*Call, []T),
	repeats func(item T, answered []T) bool) (ended, again []Pack[T]) {
	var answered []T
	for _, pack := range slices.Backward(packs) {
		if !Moving(pack.Err) {
			ended, answered = append(ended, pack), append(answered, pack.Items...)
			continue
		}
		several := len(pack.Items) > 1
		for i, item := range slices.Backward(pack.Items) {
			one, runs := pack, several
			if several {
				one = Pack[T]{&Call{Err: pack.Err}, pack.Items[i : i+1]}
			}
			if repeats != nil {
				runs = repeats(item, answered) && (several || pack.breaker.repeats(time.Now()))
			}
			if !runs {
				ended, answered = append(ended, one), append(answered, item)
				continue
			}
			if several {
				fill(one.Call, one.Items)
			}
			again = append(again, one)
		}
	}
	slices.Reverse(again)
	return ended, again
}

// Moving reports whether an error says that a call did not run because its slot is on the way to
// another master. It runs once all its keys are there.
func Moving(err error) bool {
	if err == nil {
		return false
	}
	var e *storeError
	return errors.As(err, &e) && strings.HasPrefix(e.cause.Error(), "TRYAGAIN ")
}

// The calls of a shard that are rejected because its slot moves are repeated, every movePause, for
// moveBudget from the first of them on, and then for moveRest not: a move may also have been left
// half done.
const (
	movePause  = 5 * time.Millisecond
	moveBudget = 5 * time.Second
	moveRest   = time.Minute
)

// repeats reports whether a call of the shard that is rejected because its slot moves is repeated.
func (b *Breaker) repeats(now time.Time) bool {
	if b == nil {
		return false
	}
	since := b.moving.Load()
	if now.UnixNano()-since > int64(b.backend.patience*moveRest) && b.moving.CompareAndSwap(since, now.UnixNano()) {
		return true
	}
	return now.UnixNano()-b.moving.Load() < int64(b.backend.patience*moveBudget)
}

// pause waits, and reports whether the context has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
