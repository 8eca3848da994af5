//go:build sinks

package nats

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func fixture(t testing.TB, rest string) sinktest.Fixture {
	server := startServer(t)
	js := server.client()
	makeStream(t, js, jetstream.StreamConfig{})
	change := func(config jetstream.StreamConfig) func() func() {
		return func() func() {
			makeStream(t, js, config)
			return func() { makeStream(t, js, jetstream.StreamConfig{MaxMsgs: -1, MaxMsgSize: -1, MaxBytes: -1}) }
		}
	}
	return sinktest.Fixture{
		Sink: newSink(t, server, "", rest),
		Received: func() (list []sinktest.Record, err error) {
			for _, m := range stored(t, js) {
				field := m.Headers().Get
				number := func(name string) int64 {
					n, err := strconv.ParseInt(field(name), 10, 64)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					return n
				}
				r := sinktest.Record{
					Namespace: field("namespace"), Partition: field("partition"), Seq: number("seq"), Occurred: number("ts"),
					Payload: m.Data(), Batch: field("batch"), Attempt: int(number("attempt")),
				}
				if id := field("id"); id != "" {
					r.ID = []byte(id)
				}
				list = append(list, r)
			}
			return list, nil
		},
		Stall: server.freeze,
		Faults: []sinktest.Fault{
			{Name: "a full stream", Start: change(jetstream.StreamConfig{MaxMsgs: 3, Discard: jetstream.DiscardNew})},
			{Name: "a stream that takes short messages", Permanent: true, Start: change(jetstream.StreamConfig{MaxMsgSize: 10})},
			{Name: "no stream for the subject", Start: change(jetstream.StreamConfig{Subjects: []string{"others.>"}})},
			{Name: "no server", Start: func() func() {
				server.kill()
				return server.launch
			}},
		},
	}
}

func TestConforms(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture { return fixture(t, "events.all") }})
}

func TestConformsWithASubjectAPartition(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		return fixture(t, "events.{namespace}.{partition}?stream=EVENTS")
	}})
}
