// Package nats is the sink "nats://host:4222/subject": one message an entry, into a stream of
// JetStream.
//
// Delivered means that the stream acknowledged the message: how many servers have it, and on
// which disks, is a matter of the stream. A message is the payload, byte for byte, with the
// headers
//
//	namespace, partition, seq, ts, id (if given), batch, attempt
//
// as in the lines of the file sink, and Nats-Msg-Id: namespace/partition/seq. By that the
// stream drops a message that it got before, as long as its duplicate window remembers it:
// an entry is there once if the window (2 minutes unless the stream says otherwise) is as long
// as the age at which entries of the namespace go stale, or, for jobs, as the time for which one
// is tried. Past the window it can be there twice. Open warns of a window shorter than that age.
//
// The messages of a partition are published in order over one connection. One that the
// stream rejects comes again behind those that it took.
package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxBatches is how many batches of a partition share a Write: some 2,000 messages at most.
const maxBatches = 16

// Sink publishes messages over one connection.
type Sink struct {
	options nats.Options
	subject string // with {namespace} and {partition}
	stream  string // "": whichever takes the subject

	maxAge time.Duration     // at which entries expire; 0: not known
	warn   func(text string) // nil: no more

	conn *connection // nil before Open
}

// New makes the sink of "nats://[user:password@]host:port[,host:port…]/subject", with the options
//
//	stream=NAME   the stream must exist, and no other may take a message; default: whichever takes the subject
//	creds=/FILE   a user's JWT and the seed of its nkey, read for each connection
//	tls=1         by TLS; with tls_ca=/FILE, and tls_cert=/FILE and tls_key=/FILE, see sink.TLS
//
// A user without a password is a token. The subject may contain {namespace} and {partition}
// as, or in, its tokens; a dot in the name of a partition or namespace, which would end the
// token, is written %2E.
func New(u *url.URL) (sink.Sink, error) {
	o, err := sink.Options(u, "stream", "creds", "tls", "tls_ca", "tls_cert", "tls_key")
	if err != nil {
		return nil, err
	}
	s := &Sink{subject: strings.TrimPrefix(u.Path, "/"), stream: o["stream"],
		options: nats.GetDefaultOptions()}
	for host := range strings.SplitSeq(u.Host, ",") {
		if strings.TrimLeft(host, " :0123456789") == "" {
			return nil, errors.New("names no host, or an empty one: write nats://host:4222/subject")
		}
		s.options.Servers = append(s.options.Servers, "nats://"+host)
	}
	switch {
	case u.Fragment != "":
		return nil, errors.New("a # in the URL is written %23")
	case strings.ContainsAny(s.stream, " .*>/\\\t\r\n"):
		return nil, fmt.Errorf("stream: %q is not the name of a stream", s.stream)
	}
	if err := checkSubject(s.subject); err != nil {
		return nil, err
	}
	if s.options.TLSConfig, err = sink.TLS(o); err != nil {
		return nil, err
	}
	s.options.Secure = s.options.TLSConfig != nil
	if password, given := u.User.Password(); given {
		s.options.User, s.options.Password = u.User.Username(), password
	} else {
		s.options.Token = u.User.Username()
	}
	if file := o["creds"]; file != "" {
		if u.User != nil {
			return nil, errors.New("creds is a user already: leave out the one before the @")
		}
		if _, err := os.Stat(file); err != nil { // #nosec G703 -- the operator names the file
			return nil, fmt.Errorf("creds: %w", err)
		}
		if err := nats.UserCredentials(file)(&s.options); err != nil {
			return nil, err
		}
	}
	s.options.Name = "spillway"
	s.options.AllowReconnect = false // Open does, and nothing waits unseen for a connection
	s.options.NoCallbacksAfterClientClose = true
	s.options.PingInterval, s.options.MaxPingsOut = 5*time.Second, 2
	s.options.FlusherTimeout = time.Second // how long a write to the socket may outlive ctx
	return s, nil
}

// checkSubject says why messages cannot be published to a subject.
func checkSubject(subject string) error {
	rest := strings.NewReplacer("{namespace}", "n", "{partition}", "p").Replace(subject)
	switch {
	case subject == "":
		return errors.New("path: want a subject, such as /events.{namespace}.{partition}")
	case strings.ContainsAny(rest, "{}"):
		return errors.New("path: the subject knows {namespace} and {partition} only")
	case strings.ContainsAny(rest, "*> \t\r\n") || len(rest) > 200:
		return errors.New("path: a subject has no wildcard and no space, and 200 characters at most")
	case strings.HasPrefix(rest, "$") || strings.HasPrefix(rest, "_INBOX."):
		return errors.New("path: subjects that begin with $ or _INBOX. belong to the server")
	}
	for token := range strings.SplitSeq(rest, ".") {
		if token == "" {
			return errors.New("path: the subject has an empty token: a dot at an end, or two in a row")
		}
	}
	return nil
}

// name is the subject of a batch. Names are letters, digits, and . _ -
func (s *Sink) name(b *sink.Batch) string {
	return strings.NewReplacer("{namespace}", token(b.Namespace), "{partition}",
		token(b.Partition)).Replace(s.subject)
}

func token(name string) string { return strings.ReplaceAll(name, ".", "%2E") }

// Caps allows several batches of a partition a Write. Smaller ones lose little: all share
// the connection.
func (s *Sink) Caps() sink.Caps { return sink.Caps{MaxBatches: maxBatches} }

// WarnTo implements sink.Warner: Open warns once of streams that forget an entry before it expires.
func (s *Sink) WarnTo(log func(text string), maxAge time.Duration) { s.warn, s.maxAge = log, maxAge }

// Open connects, and finds a wrong password, a server without JetStream, and a stream that
// does not exist or a subject that no stream takes, where the user may ask.
func (s *Sink) Open(ctx context.Context) error {
	if s.conn == nil || s.conn.isLost() {
		s.conn.close()
		s.conn = nil
		conn, err := connect(ctx, s.options)
		if err != nil {
			return fmt.Errorf("open nats: %w", brief(err))
		}
		s.conn = conn
	}
	streams, err := s.conn.checkStream(ctx, s.stream, s.subject)
	if err != nil {
		return fmt.Errorf("open nats: %w", brief(err))
	}
	if s.warn != nil && s.maxAge > 0 {
		s.checkWindows(ctx, streams)
	}
	return nil
}

// checkWindows warns of streams that store an entry twice when it comes again late.
func (s *Sink) checkWindows(ctx context.Context, streams []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	warn := s.warn
	for _, name := range streams {
		info, err := s.conn.request(ctx, streamInfo+name, nil)
		// No window: the user may not ask, or nobody knows.
		if window := info.Config.DuplicateWindow; err == nil && window > 0 && window < s.maxAge {
			warn(
				fmt.Sprintf(
					"stream %s drops repeats for %s (its duplicate window), but entries are tried again up to max_age, %s: later ones are stored twice; "+
						"run nats stream edit %s --dupe-window=%[3]s",
					name,
					window,
					s.maxAge,
					name,
				),
			)
			s.warn = nil
		}
	}
}

// Close frees the connection.
func (s *Sink) Close(context.Context) error {
	s.conn.close()
	s.conn = nil
	return nil
}
