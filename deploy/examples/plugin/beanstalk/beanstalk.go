// Package beanstalk is the sink "beanstalk://host:port": each entry is a job in the tube
// "default" of a beanstalkd, with a line of JSON as its body.
//
// Delivered means that beanstalkd answered INSERTED. After a lost answer jobs come twice.
package beanstalk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// Sink puts jobs over one connection.
type Sink struct {
	address string
	conn    net.Conn // nil: not open
	answers *bufio.Reader
}

// New makes the sink of a URL. It touches nothing else: connecting is for Open.
func New(u *url.URL) (sink.Sink, error) {
	if _, err := sink.Options(u); err != nil {
		return nil, err
	}
	if u.Hostname() == "" || u.Port() == "" || u.User != nil || u.Path != "" {
		return nil, errors.New("want beanstalk://host:port")
	}
	return &Sink{address: u.Host}, nil
}

// Open connects, and closes a connection from before.
func (s *Sink) Open(ctx context.Context) error {
	_ = s.Close(ctx)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("open beanstalk: %w", err)
	}
	s.conn, s.answers = conn, bufio.NewReader(conn)
	return nil
}

// Close closes the connection.
func (s *Sink) Close(context.Context) error {
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	s.conn = nil
	return err
}

// Caps allows one Write at a time: there is one connection.
func (s *Sink) Caps() sink.Caps { return sink.Caps{MaxInFlight: 1} }

// Write puts all entries. After anything but a full conversation it wants a new
// connection: which answer belongs to which job is unknown then.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.conn == nil {
		return sink.ErrNotConnected
	}
	conn := s.conn
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	err := s.put(batches)
	if err != nil && !errors.As(err, new(*sink.BatchError)) {
		_ = s.Close(ctx)
		return fmt.Errorf("%w: %w", sink.ErrNotConnected, err)
	}
	return err
}

// put sends all jobs, then reads an answer for each.
func (s *Sink) put(batches []*sink.Batch) error {
	var jobs []byte
	for _, b := range batches {
		for i := range b.Entries {
			line := bytes.TrimSuffix(sink.AppendLine(nil, b, i), []byte("\n"))
			jobs = fmt.Appendf(jobs, "put 0 0 60 %d\r\n%s\r\n", len(line), line)
		}
	}
	if _, err := s.conn.Write(jobs); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	failed := &sink.BatchError{}
	for i, b := range batches {
		for j := range b.Entries {
			answer, err := s.answers.ReadSlice('\n')
			if err != nil {
				return fmt.Errorf("read answer: %w", err)
			}
			switch word, _, _ := bytes.Cut(bytes.TrimSpace(answer), []byte(" ")); string(word) {
			case "INSERTED":
			case "JOB_TOO_BIG": // no retry can help
				failed.Fail(i, j, sink.Permanent(errors.New("job too big")))
			case "OUT_OF_MEMORY", "DRAINING": // later
				failed.Fail(i, j, sink.Throttle(errors.New("server takes no jobs"), time.Second))
			default: // not quoted: an error holds nothing of the peer
				return errors.New("unexpected answer")
			}
		}
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}
