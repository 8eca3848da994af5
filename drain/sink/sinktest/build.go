package sinktest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
)

// Make makes the sink of a URL, which the end of the test closes, or fails the test.
func Make[S sink.Sink](t testing.TB, newSink func(*url.URL) (sink.Sink, error),
	raw string) S {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	made, err := newSink(u)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := made.(S)
	if !ok {
		t.Fatalf("got a %T", made)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// Batch has an entry without an id for each payload, from a sequence on, in the namespace
// "kart".
func Batch(partition string, from int64, payloads ...string) *sink.Batch {
	b := &sink.Batch{
		Namespace: "kart",
		Partition: partition,
		FirstSeq:  from,
		Attempt:   1,
	}
	for i, p := range payloads {
		b.Entries = append(b.Entries, sink.Entry{
			Seq:      from + int64(i),
			Occurred: 1_763_629_675_100,
			Payload:  []byte(p),
		})
	}
	return b
}

// Numbered are n payloads, {"n":0} and so on.
func Numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	return list
}

// Kind says what an error of Write asks of the drain: accepted (nil), permanent, throttle 1s
// or another time, not connected, retry. Of a BatchError it says so for each entry, by batch
// and entry, as in "0.1 permanent, 0.3 retry".
func Kind(err error) string {
	var named *sink.BatchError
	after, throttled := sink.ThrottledFor(err)
	switch {
	case err == nil:
		return "accepted"
	case errors.As(err, &named):
		var parts []string
		for _, e := range named.Failed {
			parts = append(parts, fmt.Sprintf("%d.%d %s", e.Batch, e.Entry, Kind(e.Err)))
		}
		return strings.Join(parts, ", ")
	case sink.IsPermanent(err):
		return "permanent"
	case throttled:
		return "throttle " + after.String()
	case errors.Is(err, sink.ErrNotConnected):
		return "not connected"
	}
	return "retry"
}

// RejectURLs checks that New rejects each URL, and that no error shows the password s3cret.
func RejectURLs(t *testing.T, newSink func(*url.URL) (sink.Sink, error),
	wrong ...string) {
	t.Helper()
	for _, raw := range wrong {
		if err := rejects(newSink, raw, ""); err != nil {
			t.Error(err)
		}
	}
}

func rejects(newSink func(*url.URL) (sink.Sink, error), raw, want string) error {
	scheme, _, _ := strings.Cut(raw, ":")
	_, err := sink.Registry{scheme: newSink}.New(raw)
	switch {
	case err == nil:
		return fmt.Errorf("%s: New took it", raw)
	case strings.Contains(err.Error(), secret):
		return fmt.Errorf("%s: the error shows the password: %w", raw, err)
	case !strings.HasSuffix(err.Error(), want):
		return fmt.Errorf("%s:\ngot  %w\nwant %s", raw, err, want)
	}
	return nil
}
