package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/drain/sink"
)

// Write publishes all entries and waits for the stream's answer to each. Where the connection
// breaks, the entries without an answer come again, and the stream drops what it has. A server
// that reads nothing holds Write up to 2 s past ctx, which a write to a socket does not heed.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.conn == nil {
		return sink.ErrNotConnected
	}
	n := 0
	for _, b := range batches {
		n += len(b.Entries)
	}
	w, err := s.conn.begin(n)
	if err != nil {
		return sink.Unsent(fmt.Errorf("write nats: %w", err))
	}
	err = s.publish(ctx, w, batches)
	if err == nil {
		select {
		case <-w.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.conn.end(w)
	if w.failed != nil {
		err = w.failed
	}
	return w.outcome(batches, err)
}

// publish sends a message for every entry. After an error the rest is not sent.
func (s *Sink) publish(ctx context.Context, w *write, batches []*sink.Batch) error {
	var values [8][1]string
	// The library encodes a message before it returns, so that one serves for all.
	m := &nats.Msg{Header: nats.Header{}}
	for i, name := range []string{"namespace", "partition", "batch", "attempt", "seq", "ts", nats.MsgIdHdr} {
		m.Header[name] = values[i][:]
	}
	if s.stream != "" {
		m.Header[nats.ExpectedStreamHdr] = []string{s.stream}
	}
	reply := append([]byte(s.conn.inbox), strconv.FormatUint(w.number, 36)+"."...)
	index := 0
	for _, b := range batches {
		m.Subject = s.name(b)
		values[0][0] = b.Namespace
		values[1][0] = b.Partition
		values[2][0] = b.ID()
		values[3][0] = strconv.Itoa(b.Attempt)
		for i := range b.Entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			e := &b.Entries[i]
			seq := strconv.FormatInt(e.Seq, 10)
			values[4][0], values[5][0] = seq, strconv.FormatInt(e.Occurred, 10)
			values[6][0] = b.Namespace + "/" + b.Partition + "/" + seq
			if e.ID != nil {
				values[7][0] = string(e.ID)
				m.Header["id"] = values[7][:]
			} else {
				delete(m.Header, "id")
			}
			m.Reply = string(strconv.AppendInt(reply, int64(index), 36))
			m.Data = e.Payload
			switch err := s.conn.nc.PublishMsg(m); {
			case errors.Is(err, nats.ErrMaxPayload):
				s.conn.reject(
					w,
					index,
					sink.Permanent(fmt.Errorf("the message has %d bytes and its headers, the server takes %d (max_payload)",
						len(e.Payload), s.conn.nc.MaxPayload())),
				)
			case err != nil:
				return s.conn.abandon(err)
			}
			index++
		}
	}
	return nil
}

// outcome says what became of the entries; err is for those without an answer.
func (w *write) outcome(batches []*sink.Batch, err error) error {
	failed := &sink.BatchError{}
	index := 0
	for i, b := range batches {
		for j := range b.Entries {
			switch a := w.answers[index]; {
			case !a.given:
				failed.Fail(i, j, err)
			case a.err != nil:
				failed.Fail(i, j, a.err)
			}
			index++
		}
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}

var (
	errNoJetStream = errors.New("nobody answers for JetStream: the server runs without it, or the user may not use it")
	errNoStream    = fmt.Errorf("%w: no stream answers for the subject", sink.ErrNotConnected)
)

// apiError is JetStream's description of an error.
type apiError struct {
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (%d)", strings.ToValidUTF8(e.Description[:min(len(e.Description), 200)], ""), e.Code)
}

// The codes of https://github.com/nats-io/nats-server/blob/main/server/errors.json that are
// told apart.
const (
	codeMessageTooLarge = 10054 // more than the stream's max_msg_size
	codeStreamMismatch  = 10060 // another stream than the expected one takes the subject
	codeStoreFailed     = 10077 // the stream is full and drops nothing
)

// judge says what the stream's answer to one message means; nil is accepted.
//
//	no stream for the subject, or another one   ErrNotConnected
//	larger than the stream takes                Permanent
//	the stream is full and drops nothing        Throttle for 1 s
//	all else                                    plain
func judge(m *nats.Msg) error {
	if len(m.Data) == 0 {
		// 503: no stream has the subject, which Open finds, or its servers are about to choose
		// a leader.
		return errNoStream
	}
	if gjson.GetBytes(m.Data, "stream").Str != "" && !gjson.GetBytes(m.Data, "error").Exists() {
		return nil // without decoding: one answer a message
	}
	var a apiAnswer
	if err := json.Unmarshal(m.Data, &a); err != nil || a.Error == nil {
		return errors.New("the answer is not that of a stream")
	}
	switch a.Error.Code {
	case codeMessageTooLarge:
		return sink.Permanent(a.Error)
	case codeStreamMismatch:
		return fmt.Errorf("%w: %w", sink.ErrNotConnected, a.Error)
	case codeStoreFailed:
		return sink.Throttle(a.Error, time.Second)
	}
	return a.Error
}

// brief is an error without addresses, and with a bound on what a server said.
func brief(err error) error {
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Err != nil:
		return network.Err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	}
	text := strings.TrimPrefix(err.Error(), "nats: ")
	return errors.New(strings.ToValidUTF8(text[:min(len(text), 200)], ""))
}
