package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-io/spillway/lua/proc"
)

// subjects is NATS JetStream: one stream on disk, a subject a partition, and
// durable pull consumers.
type subjects struct {
	dir      string
	server   *server.Server
	producer *nats.Conn
	consumer *nats.Conn
	publish  jetstream.JetStream
	stream   jetstream.Stream
	pulls    []jetstream.Consumer
	ahead    int      // messages on their way to a consumer, at most
	names    []string // of each partition's subject
}

// How many batches may be on their way to a consumer: the one of all partitions
// has more, as those of one each have together.
const (
	ownAhead   = 2 * batch
	mixedAhead = 16 * batch
)

// openJetStream gives every partition a consumer of its own, for only that
// gives batches of one partition.
func openJetStream(ctx context.Context, c conditions) (side, error) {
	s, err := newSubjects(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, name := range partitionNames(c.partitions) {
		if err := s.consume(ctx, name, "events."+name, ownAhead); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// openJetStreamMixed has one consumer of all partitions: less work for the
// server, and every batch holds events of all of them.
func openJetStreamMixed(ctx context.Context, c conditions) (side, error) {
	s, err := newSubjects(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.consume(ctx, "all", "events.*", mixedAhead); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *subjects) consume(ctx context.Context, name, subject string, ahead int) error {
	pull, err := s.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: subject, MaxAckPending: 4 * ahead,
		AckPolicy: jetstream.AckAllPolicy, // one acknowledgement a batch
	})
	if err != nil {
		return fmt.Errorf("create consumer: %w", err)
	}
	s.pulls, s.ahead = append(s.pulls, pull), ahead
	return nil
}

func newSubjects(ctx context.Context, c conditions) (_ *subjects, err error) {
	dir, err := os.MkdirTemp("", "spillway-peers-")
	if err != nil {
		return nil, err
	}
	s := &subjects{dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	s.server, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: dir,
		SyncInterval: time.Second, // as Redis's appendfsync everysec; its default is two minutes
	})
	if err != nil {
		return nil, err
	}
	s.server.Start()
	if !s.server.ReadyForConnections(startTimeout) {
		return nil, errors.New("the embedded server does not answer")
	}
	if s.producer, err = nats.Connect(s.server.ClientURL()); err != nil {
		return nil, err
	}
	if s.consumer, err = nats.Connect(s.server.ClientURL()); err != nil {
		return nil, err
	}
	if s.publish, err = jetstream.New(s.producer, jetstream.WithPublishAsyncMaxPending(c.senders*batch)); err != nil {
		return nil, err
	}
	js, err := jetstream.New(s.consumer)
	if err != nil {
		return nil, err
	}
	s.stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "events", Subjects: []string{"events.*"}, Storage: jetstream.FileStorage,
		MaxMsgsPerSubject: int64(c.capacity), Discard: jetstream.DiscardOld, MaxAge: maxAge,
	})
	if err != nil {
		return nil, err
	}
	for _, name := range partitionNames(c.partitions) {
		s.names = append(s.names, "events."+name)
	}
	return s, nil
}

// send publishes the lot without waiting, then waits for each acknowledgement.
func (s *subjects) send(ctx context.Context, events []event) error {
	acks := make([]jetstream.PubAckFuture, len(events))
	for i, e := range events {
		ack, err := s.publish.PublishAsync(s.names[e.partition], e.payload)
		if err != nil {
			return err
		}
		acks[i] = ack
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *subjects) deliver(ctx context.Context, t *tally) error {
	var pulling sync.WaitGroup
	errs := make([]error, len(s.pulls))
	for i, pull := range s.pulls {
		pulling.Go(func() { errs[i] = s.pull(ctx, t, pull) })
	}
	pulling.Wait()
	return errors.Join(errs...)
}

// pull reads from a lasting subscription. A Fetch a batch would do as well until
// its time is up just when messages are on their way: they are dropped, and
// the next acknowledgement covers them.
func (s *subjects) pull(ctx context.Context, t *tally, pull jetstream.Consumer) error {
	messages, err := pull.Messages(jetstream.PullMaxMessages(s.ahead))
	if err != nil {
		return ended(ctx, "pull", err)
	}
	defer messages.Stop()
	payloads := make([][]byte, 0, batch)
	for {
		last, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return ended(ctx, "pull", err)
		}
		payloads = append(payloads[:0], last.Data())
		due := time.Now().Add(linger)
		for wait := linger; len(payloads) < batch && wait > 0; wait = time.Until(due) {
			msg, err := messages.Next(jetstream.NextMaxWait(wait))
			if errors.Is(err, nats.ErrTimeout) {
				break
			}
			if err != nil {
				return ended(ctx, "pull", err)
			}
			last, payloads = msg, append(payloads, msg.Data())
		}
		t.batch(payloads...)
		if err := last.Ack(); err != nil {
			return ended(ctx, "acknowledge", err)
		}
	}
}

// servers is empty: it is embedded, so its work is in this process's.
func (s *subjects) servers() []*proc.Process { return nil }

func (s *subjects) close() {
	for _, conn := range []*nats.Conn{s.producer, s.consumer} {
		if conn != nil {
			conn.Close()
		}
	}
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
	_ = os.RemoveAll(s.dir) // a temp folder; the system clears what is left
}
