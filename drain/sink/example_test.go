package sink_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/null"
)

func ExampleAppendLine() {
	b := &sink.Batch{Namespace: "default", Partition: "com.acme.kart", FirstSeq: 41, Attempt: 1, Entries: []sink.Entry{
		{Seq: 41, Occurred: 1763629675100, Payload: []byte(`{"score":7}`)},
		{Seq: 42, Occurred: 1763629675200, Payload: []byte("lap 3"), ID: []byte("order-81")},
	}}
	for i := range b.Entries {
		os.Stdout.Write(sink.AppendLine(nil, b, i))
	}
	// Output:
	// {"namespace":"default","partition":"com.acme.kart","seq":41,"ts":1763629675100,"batch":"e60dc63f723c0422dd42949e417649fb","attempt":1,"data":{"score":7}}
	// {"namespace":"default","partition":"com.acme.kart","seq":42,"ts":1763629675200,"id":"order-81","batch":"e60dc63f723c0422dd42949e417649fb","attempt":1,"text":"lap 3"}
}

func ExampleRegistry() {
	sinks := sink.Registry{
		"null": null.New,
		"mine": func(u *url.URL) (sink.Sink, error) {
			_, err := sink.Options(u, "color")
			return nil, err
		},
	}
	for _, raw := range []string{"null:", "mine://user:secret@host/?colour=red", "nul:"} {
		_, err := sinks.New(raw)
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// sink mine://…@host/?…: unknown option "colour": did you mean color? known are color
	// unknown sink scheme "nul": did you mean null:? want one of mine: null:
}

// textMessages is a sink for a target that takes at most ten bytes a message.
type textMessages struct{ sent []string }

func (t *textMessages) Open(context.Context) error  { return nil }
func (t *textMessages) Close(context.Context) error { return nil }

// Caps: one batch a Write, one Write at a time.
func (t *textMessages) Caps() sink.Caps { return sink.Caps{MaxBatches: 1, MaxInFlight: 1} }

// Write names the entries that can never be sent; the others were sent.
func (t *textMessages) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	failed := &sink.BatchError{}
	for i, e := range batches[0].Entries {
		if len(e.Payload) > 10 {
			failed.Fail(0, i, sink.Permanent(errors.New("longer than 10 bytes")))
			continue
		}
		t.sent = append(t.sent, string(e.Payload))
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}

// A sink of one's own writes the batches it is given, and says in its error what
// failed and whether a retry can help. The drain retries, counts and keeps the
// dead letters.
func Example_ownSink() {
	var target sink.Sink = &textMessages{}
	err := target.Write(context.Background(), []*sink.Batch{{Namespace: "default", Partition: "kart-7", FirstSeq: 1, Attempt: 1, Entries: []sink.Entry{
		{Seq: 1, Payload: []byte("lap 3")},
		{Seq: 2, Payload: []byte(strings.Repeat("x", 20))},
		{Seq: 3, Payload: []byte("finish")},
	}}})
	fmt.Println(target.(*textMessages).sent)
	var failed *sink.BatchError
	if errors.As(err, &failed) {
		for _, e := range failed.Failed {
			fmt.Printf("entry %d: %v, permanent %v\n", e.Entry, e.Err, sink.IsPermanent(e.Err))
		}
	}
	// Output:
	// [lap 3 finish]
	// entry 1: longer than 10 bytes, permanent true
}

func TestNearestFindsWhatAMisspeltNameMeans(t *testing.T) {
	t.Parallel()
	known := []string{"max_size", "rotate_every", "compress", "keep", "capacity", "max_age", "gzip"}
	for given, want := range map[string]string{
		"maxsize": "max_size", "max-size": "max_size", "MAX_SIZE": "max_size", "max_sise": "max_size",
		"compression": "compress", "kepe": "keep", "capcity": "capacity", "max_aeg": "max_age", "gzp": "gzip",
		"": "", "x": "", "ttl": "", "zone": "", "kart": "", "parallelism": "", strings.Repeat("max_size", 1000): "",
	} {
		if got := sink.Nearest(given, known); got != want {
			t.Errorf("%.20s: got %q, want %q", given, got, want)
		}
	}
}
