package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/spillway-io/spillway/drain/sink"
)

// Write produces all entries and waits for every answer.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.producers == nil {
		return sink.ErrNotConnected
	}
	producer, err := s.take(ctx)
	if err != nil {
		return fmt.Errorf("write kafka: %w", err)
	}
	w := s.encode(batches)
	// Nothing leaves before Flush. So when a record fails, those behind it in its partition,
	// which franz-go fails with it, are all there: none overtakes it.
	for i := range w.records {
		producer.Produce(context.Background(), &w.records[i], w.fail)
	}
	if err := producer.Flush(ctx); err != nil {
		// The producer would go on sending. Its records are copies.
		s.closing.Go(producer.Close)
		s.producers <- nil
		return fmt.Errorf("write kafka: %w", err)
	}
	s.producers <- producer
	return w.outcome()
}

// A position is where in the Write a record's entry is.
type position struct{ batch, entry int }

// A write is the records of one Write.
type write struct {
	records  []kgo.Record
	at       []position // of the record of the same index
	failed   []failure  // written by the producer before Flush returns
	rejected sink.BatchError
}

type failure struct {
	record *kgo.Record
	err    error
}

func (w *write) fail(r *kgo.Record, err error) {
	if err != nil {
		w.failed = append(w.failed, failure{r, err})
	}
}

// maxHeaders is how many a record has: namespace, seq, ts, id, batch, attempt.
const maxHeaders = 6

// batchOverhead is what a batch of one record has beside it, at least.
const batchOverhead = 61

// encode copies the entries into records. One that is larger than the topic takes is rejected here.
func (s *Sink) encode(batches []*sink.Batch) *write {
	n, bytes := 0, 0
	for _, b := range batches {
		n += len(b.Entries)
		bytes += len(b.Namespace) + len(b.Partition) + 64
		for i := range b.Entries {
			bytes += len(b.Entries[i].Payload) + len(b.Entries[i].ID) + 40
		}
	}
	w := &write{records: make([]kgo.Record, 0, n), at: make([]position, 0, n)}
	headers := make([]kgo.RecordHeader, 0, n*maxHeaders)
	memory := make(arena, 0, bytes)
	for i, b := range batches {
		namespace, key := keep(&memory, b.Namespace), keep(&memory, b.Partition)
		id, attempt := keep(&memory, b.ID()), keepInt(&memory, int64(b.Attempt))
		for j := range b.Entries {
			e := &b.Entries[j]
			first := len(headers)
			headers = append(headers,
				kgo.RecordHeader{Key: "namespace", Value: namespace},
				kgo.RecordHeader{Key: "seq", Value: keepInt(&memory, e.Seq)},
				kgo.RecordHeader{Key: "ts", Value: keepInt(&memory, e.Occurred)})
			if e.ID != nil {
				headers = append(headers, kgo.RecordHeader{Key: "id", Value: keep(&memory, e.ID)})
			}
			headers = append(headers, kgo.RecordHeader{Key: "batch", Value: id},
				kgo.RecordHeader{Key: "attempt", Value: attempt})
			size := batchOverhead + len(key) + len(e.Payload)
			for _, h := range headers[first:] {
				size += len(h.Key) + len(h.Value)
			}
			if size > int(s.limit) {
				w.rejected.Fail(
					i,
					j,
					sink.Permanent(fmt.Errorf("the record has %d bytes or more, the topic takes %d (max.message.bytes)", size, s.limit)),
				)
				continue
			}
			w.records = append(w.records, kgo.Record{
				Key:       key,
				Value:     keep(&memory, e.Payload),
				Headers:   headers[first:len(headers):len(headers)],
				Timestamp: time.UnixMilli(e.Occurred),
				Context:   context.Background(),
			})
			w.at = append(w.at, position{i, j})
		}
	}
	return w
}

// An arena is one piece of memory for what the records of a Write copy.
type arena []byte

// keep returns a copy.
func keep[T string | []byte](a *arena, t T) []byte {
	from := len(*a)
	*a = append(*a, t...)
	return (*a)[from:len(*a):len(*a)]
}

func keepInt(a *arena, n int64) []byte {
	from := len(*a)
	*a = strconv.AppendInt(*a, n, 10)
	return (*a)[from:len(*a):len(*a)]
}

// outcome says what became of the records. Flush has returned.
func (w *write) outcome() error {
	if len(w.failed) > 0 {
		index := make(map[*kgo.Record]int, len(w.records))
		for i := range w.records {
			index[&w.records[i]] = i
		}
		for _, f := range w.failed {
			err := judge(f.err)
			if sink.IsPermanent(err) && len(w.records)+len(w.rejected.Failed) > 1 {
				// The broker rejected a batch of records for one of them, and does not say
				// which. The drain finds it: alone in its Write, a record is alone in its
				// batch.
				return err
			}
			at := w.at[index[f.record]]
			w.rejected.Fail(at.batch, at.entry, err)
		}
	}
	if len(w.rejected.Failed) > 0 {
		return &w.rejected
	}
	return nil
}

// judge says what the failure of a record means. What a person has to mend, a right or a
// topic, keeps the entries until they are stale: the sink is opened again, says there what is
// wrong, and takes nothing meanwhile. Only what is wrong with the record itself is permanent.
//
//	no such topic, no right, a wrong password   ErrNotConnected, Unsent
//	larger than the topic takes                 Permanent; it is not sent
//	rejected for what it holds                   Permanent; by name where it is alone
//	no replicas, a leader that moves, all else  plain, for the records of that partition
//
// A connection that breaks is no failure while ctx lasts: the producer sends again. After
// ctx a record may still arrive, and comes again from another producer.
func judge(err error) error {
	for _, bad := range []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord,
		kerr.InvalidTimestamp} {
		if errors.Is(err, bad) {
			return sink.Permanent(brief(err))
		}
	}
	for _, unusable := range []error{
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException,
		kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed,
	} {
		if errors.Is(err, unusable) {
			return sink.Unsent(fmt.Errorf("%w: %w", sink.ErrNotConnected, brief(err)))
		}
	}
	return brief(err)
}

// brief is an error without addresses, and with a bound on what a broker said.
func brief(err error) error {
	var answer *kerr.Error
	var network *net.OpError
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.As(err, &network) && network.Err != nil:
		return network.Err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, kgo.ErrRecordRetries):
		return errors.New("the request to the broker failed, or has no answer")
	case errors.Is(err, io.EOF):
		return errors.New("the broker closed the connection: if it does so each time, check user, password, sasl and tls")
	}
	if text := err.Error(); len(text) > 200 {
		return errors.New(strings.ToValidUTF8(text[:200], ""))
	}
	return err
}
