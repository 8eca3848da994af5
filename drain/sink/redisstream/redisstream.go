// Package redisstream is the sink "redis-stream://host:port": one stream entry an
// entry, by pipelined XADD.
//
// Delivered means that Redis answered the XADD: how safe that is, is a matter of its
// persistence. The fields of a stream entry are
//
//	namespace, partition, seq, ts, id (if given), batch, attempt, data
//
// as in the lines of the file sink; data is the payload, byte for byte.
//
// Where the stream's name contains {namespace} and {partition}, an entry's stream id is its
// sequence, so one that is written again is found and left alone: it arrives once, as long as
// readers do not delete it from the stream, and no later entry overtook it. A stream that
// partitions share gets ids of Redis's own. There, and in those cases, an entry arrives at
// least once, and a reader can tell repeats by (partition, seq).
package redisstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxBatches is how many batches of a partition share a pipeline: some 2,000
// commands at most, which Redis runs in a few milliseconds.
const maxBatches = 16

// Sink adds entries to streams of one Redis.
type Sink struct {
	options *redis.Options
	stream  string // with {namespace} and {partition}
	maxLen  int64  // 0: streams are not trimmed
	byPart  bool   // each partition has a stream of its own

	client *redis.Client // nil before Open
}

// New makes the sink of "redis-stream://[user:password@]host:port[/db]", with the options
//
//	stream=NAME       may contain {namespace} and {partition}; default spillway:{namespace}
//	max_len=100000    trims a stream to about so many entries (MAXLEN ~); default: not at all;
//	                  not with {partition}
//	tls=1             by TLS
func New(u *url.URL) (sink.Sink, error) {
	o, err := sink.Options(u, "stream", "max_len", "tls")
	if err != nil {
		return nil, err
	}
	switch {
	case u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("names no host: write redis-stream://host:6379")
	case u.Fragment != "":
		return nil, errors.New("a # in the URL is written %23")
	case o["tls"] != "" && o["tls"] != "1":
		return nil, fmt.Errorf("tls: %q, want 1 or nothing", o["tls"])
	}
	plain := url.URL{Scheme: "redis", User: u.User, Host: u.Host, Path: u.Path}
	if o["tls"] == "1" {
		plain.Scheme = "rediss"
	}
	s := &Sink{stream: o["stream"]}
	if s.options, err = redis.ParseURL(plain.String()); err != nil {
		return nil, errors.New("path: want the number of a database, such as /0")
	}
	if text := o["max_len"]; text != "" {
		if s.maxLen, err = strconv.ParseInt(text, 10, 64); err != nil || s.maxLen < 1 {
			return nil, fmt.Errorf("max_len: %q, want a number of entries, 1 or more", text)
		}
	}
	if s.stream == "" {
		s.stream = "spillway:{namespace}"
	}
	s.byPart = strings.Contains(s.stream, "{partition}")
	switch {
	case s.byPart && !strings.Contains(s.stream, "{namespace}"):
		return nil, errors.New("stream: a name with {partition} needs {namespace}, too: two namespaces may have a partition of one name")
	case s.byPart && s.maxLen > 0:
		return nil, errors.New(
			"max_len: a stream that forgets entries cannot tell which of them are written again; leave max_len out, or {partition}",
		)
	}
	s.options.MaxRetries = -1 // the drain retries
	s.options.DisableIdentity = true
	s.options.ContextTimeoutEnabled = true
	return s, nil
}

// Open connects, and finds a wrong password or an address that is no Redis.
func (s *Sink) Open(ctx context.Context) error {
	if s.client == nil {
		s.client = redis.NewClient(s.options)
	}
	if err := s.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("open redis: %w", brief(err))
	}
	return nil
}

// Close frees the connections.
func (s *Sink) Close(context.Context) error {
	if s.client == nil {
		return nil
	}
	err := s.client.Close()
	s.client = nil
	return err
}

// Caps allows several batches of a partition a pipeline.
func (s *Sink) Caps() sink.Caps { return sink.Caps{MaxBatches: maxBatches} }

// A position is where in the Write a command's entry is.
type position struct{ batch, entry int }

// Write adds all entries by one pipeline. A command that Redis rejects concerns its
// entry: Permanent where a key is not a stream, Unsent where a right is missing, Throttle for 1 s where
// Redis is out of memory, else plain. Where the connection breaks, everything comes again.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.client == nil {
		return sink.ErrNotConnected
	}
	pipe := s.client.Pipeline()
	var commands []*redis.StringCmd
	var at []position
	for i, b := range batches {
		common := s.commonArgs(b)
		for j := range b.Entries {
			id := "*"
			if s.byPart {
				id = strconv.FormatInt(b.Entries[j].Seq, 10) + "-0"
			}
			commands = append(commands, common.add(ctx, pipe, id, &b.Entries[j]))
			at = append(at, position{i, j})
		}
	}
	_, err := pipe.Exec(ctx)
	failed := &sink.BatchError{}
	var repeated []int
	for k, c := range commands {
		switch err := c.Err(); {
		case err == nil:
		case s.byPart && isRepeat(err):
			repeated = append(repeated, k)
		case !isReply(err):
			return fmt.Errorf("write stream: %w", brief(err))
		default:
			failed.Fail(at[k].batch, at[k].entry, judge(err))
		}
	}
	if len(repeated) > 0 {
		if err := s.settleRepeated(ctx, batches, at, repeated, failed); err != nil {
			return err
		}
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	if err != nil && len(repeated) == 0 {
		return fmt.Errorf("write stream: %w", brief(err))
	}
	return nil
}

func (s *Sink) name(b *sink.Batch) string {
	return strings.NewReplacer("{namespace}", b.Namespace, "{partition}", b.Partition).Replace(s.stream)
}

// commonArgs are the arguments that the XADDs of a batch share, made once: one for each entry
// would be most of a Write's work.
type commonArgs struct {
	start []any // XADD, the stream, how to trim it
	names []any // namespace and partition, with their names
	batch []any // batch and attempt, with theirs
}

func (s *Sink) commonArgs(b *sink.Batch) commonArgs {
	c := commonArgs{
		start: []any{"xadd", s.name(b)},
		names: []any{"namespace", b.Namespace, "partition", b.Partition},
		batch: []any{"batch", b.ID(), "attempt", b.Attempt},
	}
	if s.maxLen > 0 {
		c.start = append(c.start, "maxlen", "~", s.maxLen)
	}
	return c
}

// add puts the XADD of one entry in the pipeline.
func (c *commonArgs) add(ctx context.Context, pipe redis.Pipeliner, id string,
	e *sink.Entry) *redis.StringCmd {
	args := make([]any, 0, 22)
	args = append(append(append(args, c.start...), id), c.names...)
	args = append(args, "seq", e.Seq, "ts", e.Occurred)
	if e.ID != nil {
		args = append(args, "id", e.ID)
	}
	args = append(append(args, c.batch...), "data", e.Payload)
	cmd := redis.NewStringCmd(ctx, args...)
	_ = pipe.Process(ctx, cmd) // queues it; the command has its error after Exec
	return cmd
}

// settleRepeated deals with entries whose id is not larger than the stream's last:
// they are there, from an earlier Write whose answer was lost, or they come behind
// entries that overtook them. The latter get the next id that Redis has.
func (s *Sink) settleRepeated(ctx context.Context, batches []*sink.Batch, at []position, repeated []int,
	failed *sink.BatchError) error {
	look := s.client.Pipeline()
	found := make([]*redis.XMessageSliceCmd, len(repeated))
	for n, k := range repeated {
		b := batches[at[k].batch]
		id := strconv.FormatInt(b.Entries[at[k].entry].Seq, 10)
		found[n] = look.XRangeN(ctx, s.name(b), id+"-0", id+"-0", 1)
	}
	if _, err := look.Exec(ctx); err != nil {
		return fmt.Errorf("look for repeated entries: %w", brief(err))
	}
	late := s.client.Pipeline()
	var commands []*redis.StringCmd
	var which []int
	for n, k := range repeated {
		b := batches[at[k].batch]
		if list := found[n].Val(); len(list) > 0 && isOf(list[0], b) {
			continue
		}
		common := s.commonArgs(b)
		commands = append(commands, common.add(ctx, late, "*", &b.Entries[at[k].entry]))
		which = append(which, k)
	}
	if len(commands) == 0 {
		return nil
	}
	_, _ = late.Exec(ctx) // each command has its own error
	for n, c := range commands {
		if err := c.Err(); err != nil && !isReply(err) {
			return fmt.Errorf("write stream: %w", brief(err))
		} else if err != nil {
			failed.Fail(at[which[n]].batch, at[which[n]].entry, judge(err))
		}
	}
	return nil
}

// isOf reports whether a stream entry is of b's partition. With a name such as
// {namespace}-{partition} others can have the same stream.
func isOf(m redis.XMessage, b *sink.Batch) bool {
	return m.Values["namespace"] == b.Namespace && m.Values["partition"] == b.Partition
}

// isReply reports whether Redis answered with an error, rather than not at all.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isRepeat reports whether Redis rejected an id because the stream is past it.
func isRepeat(err error) bool {
	return strings.Contains(err.Error(), "equal or smaller than the target stream top item")
}

// judge says what Redis's rejection of one entry means.
func judge(err error) error {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "WRONGTYPE"):
		return sink.Permanent(brief(err))
	case strings.HasPrefix(text, "NOPERM"), strings.HasPrefix(text, "NOAUTH"):
		return sink.Unsent(brief(err))
	case strings.HasPrefix(text, "OOM"):
		return sink.Throttle(brief(err), time.Second)
	}
	return brief(err)
}

// brief is an error without what go-redis adds of addresses, and without what Redis and
// go-redis quote of what was sent and read.
func brief(err error) error {
	var network *net.OpError
	if errors.As(err, &network) && network.Err != nil {
		return network.Err
	}
	text := err.Error()
	for _, quoting := range []string{", with args beginning with", `: "`} {
		text, _, _ = strings.Cut(text, quoting)
	}
	if text == err.Error() && len(text) <= 200 {
		return err
	}
	return errors.New(strings.ToValidUTF8(text[:min(len(text), 200)], ""))
}
