package sink

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestMarksSurviveWrapping(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	permanent := fmt.Errorf("post: %w", Permanent(cause))
	throttled := fmt.Errorf("post: %w", Throttle(cause, time.Minute))
	if !IsPermanent(permanent) || IsPermanent(throttled) || IsPermanent(cause) || IsPermanent(nil) {
		t.Error("IsPermanent is wrong")
	}
	if after, ok := ThrottledFor(throttled); after != time.Minute || !ok {
		t.Errorf("ThrottledFor: got %s, %t", after, ok)
	}
	if _, ok := ThrottledFor(permanent); ok {
		t.Error("ThrottledFor takes a permanent error for throttled")
	}
	for _, err := range []error{permanent, throttled} {
		if !errors.Is(err, cause) || err.Error() != "post: cause" {
			t.Errorf("%v hides its cause", err)
		}
	}
}

func TestABatchErrorIsNotPermanentByItsEntries(t *testing.T) {
	t.Parallel()
	err := &BatchError{}
	if got := err.Error(); got != "batch error that names no entry" {
		t.Errorf("got %q", got)
	}
	err.Fail(0, 5, Permanent(errors.New("too large")))
	err.Fail(1, 0, errors.New("later"))
	if IsPermanent(err) {
		t.Error("the whole Write counts as permanent")
	}
	if got, want := err.Error(), "2 entries failed, the first at batch 0 entry 5: too large"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
