package sink

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestABatchIDRepeatsIfAndOnlyIfTheEntriesDo(t *testing.T) {
	t.Parallel()
	base := func() *Batch {
		b := batchOf("one", "two")
		b.Entries[0].ID = []byte("id")
		return b
	}
	id := base().ID()
	if !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(id) {
		t.Errorf("got %q, want 32 hex digits", id)
	}
	again := base()
	for range 2 { // computed, then remembered
		if again.ID() != id {
			t.Error("the same entries have another id")
		}
	}
	same := base()
	same.Attempt = 7
	if same.ID() != id {
		t.Error("another attempt has another id")
	}
	for name, change := range map[string]func(b *Batch){
		"namespace":         func(b *Batch) { b.Namespace += "x" },
		"partition":         func(b *Batch) { b.Partition += "x" },
		"namespace's end":   func(b *Batch) { b.Namespace, b.Partition = b.Namespace+"c", b.Partition[1:] },
		"seq":               func(b *Batch) { b.Entries[1].Seq++ },
		"entry id":          func(b *Batch) { b.Entries[0].ID = nil },
		"entry id's end":    func(b *Batch) { b.Entries[0].ID, b.Entries[0].Payload = []byte("ido"), []byte("ne") },
		"payload":           func(b *Batch) { b.Entries[1].Payload = []byte("twO") },
		"evicted first":     func(b *Batch) { b.Entries = b.Entries[1:] },
		"one more accepted": func(b *Batch) { b.Entries = append(b.Entries, b.Entries[1]) },
	} {
		b := base()
		change(b)
		if b.ID() == id {
			t.Errorf("%s: the id did not change", name)
		}
	}
}

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
	unsent := fmt.Errorf("post: %w", Unsent(cause))
	if !IsUnsent(unsent) || IsUnsent(permanent) || IsUnsent(throttled) || IsUnsent(cause) || IsUnsent(nil) {
		t.Error("IsUnsent is wrong")
	}
	for _, err := range []error{permanent, throttled, unsent} {
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

func TestADetailIsInTheDeadLetterAndNotInTheText(t *testing.T) {
	t.Parallel()
	b := &Batch{Namespace: "n", Partition: "p", Entries: []Entry{{Seq: 1, Payload: []byte("1")}}}
	for text, want := range map[string]string{
		"":                                "",
		" \r\n":                           "",
		"no such \"user\"\n\x1b[31m":      `,"detail":"no such \"user\"\n\u001b[31m"`,
		"a\xff\x00b":                      `,"detail":"a` + "\ufffd" + `\u0000b"`,
		strings.Repeat("x", 300):          `,"detail":"` + strings.Repeat("x", 256) + `"`,
		"x" + strings.Repeat("ü", 200):    `,"detail":"x` + strings.Repeat("ü", 127) + `"`,
		strings.Repeat("\xff\xfe", 10000): `,"detail":"` + strings.Repeat("\ufffd", 1) + `"`,
	} {
		err := fmt.Errorf("write: %w", Permanent(WithDetail(errors.New("answered 422"), []byte(text))))
		if err.Error() != "write: answered 422" || !IsPermanent(err) {
			t.Errorf("%.20q: got %v", text, err)
		}
		got := string(AppendDeadLine(nil, b, 0, "rejected", err))
		if !strings.HasSuffix(got, `,"reason":"rejected","error":"write: answered 422"`+want+"}\n") {
			t.Errorf("%.20q: got %s, want …%s", text, got, want)
		}
		if d := Detail(err); len(d) > MaxDetail || !utf8.ValidString(d) {
			t.Errorf("%.20q: got %q", text, d)
		}
	}
	if got := Detail(errors.New("x")); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestOnlyACodeOfAReasonIsRepeated(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"too_large": ": too_large", "a-b.c9": ": a-b.c9", "": "", "not a code": "", "Über": "", "line\n": "",
		strings.Repeat("x", 64): ": " + strings.Repeat("x", 64), strings.Repeat("x", 65): "",
	} {
		if got := reasonText(reason); got != want {
			t.Errorf("%q: got %q, want %q", reason, got, want)
		}
	}
}
