package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/lua/proc"
)

// conditions are the same for all sides of a run.
type conditions struct {
	spillway    string // its binary
	redisServer string
	duration    time.Duration // of the load
	senders     int           // goroutines that send at the same time; 0 as many as suit the side
	limit       int64         // stop the load after so many events; 0 only by time
	partitions  int
	payload     int // bytes an event
	capacity    int // newest events kept of a partition
}

func (c conditions) validate(rounds int) error {
	switch {
	case c.duration <= 0 || rounds < 1 || c.partitions < 1 || c.capacity < 1:
		return fmt.Errorf("duration, rounds, partitions, capacity: %v, %d, %d, %d; want more than 0 of each",
			c.duration, rounds, c.partitions, c.capacity)
	case c.senders < 0:
		return fmt.Errorf("senders: %d; want 0 or more", c.senders)
	case c.payload < bench.MinPayload:
		return fmt.Errorf("payload: %d bytes; want at least %d", c.payload, bench.MinPayload)
	}
	return nil
}

const (
	batch = 128 // events a consumer takes of a partition at once, where it can

	// pause is how long a consumer that has to poll waits after a look that
	// found no full batch. Without it, it would take Redis's time for batches
	// of one or two.
	pause = 100 * time.Millisecond
	// linger is how long the sides that can wait for a full batch do: the
	// default of Spillway, and the shortest that asynq accepts.
	linger = time.Second
	maxAge = 3 * time.Minute
)

// contender is a side and the way its library wants to be driven. Spillway's
// senders are the connections of its goal; each peer's are of those tried in
// README.md the ones that served it best.
type contender struct {
	name    string
	senders int  // unless the conditions say otherwise
	lot     int  // events a sender hands over together
	grouped bool // all events of a lot are of one partition
	open    func(context.Context, conditions) (side, error)
}

// contenders in the order of their turns. NAME/1 sends one event a request and
// waits for its acknowledgement, NAME/128 hands over 128 at once.
var contenders = []contender{
	{name: "seed/1", senders: 128, lot: 1, open: openSeed},
	{name: "streams/1", senders: 128, lot: 1, open: openStreams},
	{name: "streams-auto/1", senders: 512, lot: 1, open: openStreamsAuto},
	{name: "asynq/1", senders: 128, lot: 1, open: openAsynq},
	{name: "spillway/1", senders: 512, lot: 1, open: openSpillway},
	{name: "streams/128", senders: 64, lot: 128, open: openStreams},
	{name: "jetstream/128", senders: 64, lot: 128, open: openJetStream},
	{name: "jetstream-mixed/128", senders: 64, lot: 128, open: openJetStreamMixed},
	{name: "spillway/128", senders: 512, lot: 128, grouped: true, open: openSpillway},
}

// side is a system that runs, empty, alone on its own Redis or folder.
type side interface {
	// send hands events over and returns nil once all are acknowledged. It is
	// called by all senders at once; the payloads are its own until it returns.
	send(ctx context.Context, events []event) error
	// deliver takes events out as they come and tells the tally, until ctx
	// ends; by then everything that was taken has been told.
	deliver(ctx context.Context, t *tally) error
	// servers are the processes that work for it, besides this one.
	servers() []*proc.Process
	close()
}

// event is what a producer reports.
type event struct {
	partition int
	payload   []byte
}

// partitionName is how every side calls a partition.
func partitionName(n int) string { return fmt.Sprintf("game-%03d", n) }

func partitionNames(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = partitionName(i)
	}
	return all
}
