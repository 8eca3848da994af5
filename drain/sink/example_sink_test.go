package sink_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spillway-io/spillway/drain/sink"
)

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
