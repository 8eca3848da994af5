// Package kafka is the sink "kafka://host1:9092,host2:9092/topic": one record an entry, by
// an idempotent producer.
//
// Delivered means that the brokers acknowledged the record: with acks=all every replica in
// sync has it, with acks=1 the leader alone, whose loss then loses it. A record is
//
//	key        the partition, so that Kafka keeps its entries in order
//	value      the payload, byte for byte
//	timestamp  when the entry occurred
//	headers    namespace, seq, ts, id (if given), batch, attempt: as in the lines of the file sink
//
// A record arrives at least once. A connection that breaks repeats nothing: the brokers
// know a record that the same producer sends again. What a Write left with an unknown
// outcome comes again from a new producer and is there twice if the first one arrived, also
// where that one arrives late. A consumer tells repeats by (namespace, key, seq), and sees
// the entries of a partition in order when it drops them.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

const (
	// maxBatches share a Write: enough of them for preferEntries, also where a partition has
	// one or two entries at a time.
	maxBatches = 1000
	// maxInFlight is the number of producers, each with its own connections.
	maxInFlight = 4
	// preferEntries of 200 B are requests of 400 kB before compression; linger is what an
	// entry of a quiet namespace waits for others.
	preferEntries = 2000
	linger        = 5 * time.Millisecond
	// maxAnswer bounds an answer of a broker, in bytes: memory is taken for what it announces.
	// The longest one lists the brokers, and the partitions of the topic.
	maxAnswer = 16 << 20
)

var (
	topicName    = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	compressions = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
)

// Sink produces records to one topic.
//
// Each running Write has a producer to itself: its records reach the brokers in one piece,
// nobody else's fail with them, and a producer whose Write ran out of time is closed with
// all that it holds.
type Sink struct {
	options []kgo.Opt
	codec   kgo.CompressionCodec
	topic   string
	limit   int32 // bytes of a batch of records that the topic takes; known after Open

	producers chan *kgo.Client // maxInFlight of them, nil where one is yet to be made; nil before Open
	closing   sync.WaitGroup
}

// New makes the sink of "kafka://[user:password@]host:port[,host:port…]/topic", with the options
//
//	acks=1            the leader's answer is enough, and repeats are not told apart; default: all
//	compression=NAME  none, gzip, snappy, lz4 or zstd; default snappy
//	sasl=NAME         plain, scram-sha-256 or scram-sha-512, with the user and password of the URL;
//	                  without tls=1, plain shows the password to whoever sees the network
//	tls=1             by TLS; with tls_ca=/FILE, and tls_cert=/FILE and tls_key=/FILE, see sink.TLS
//
// The hosts are where the cluster is found; a host without a port has 9092, and the last
// has a port if any has one.
func New(u *url.URL) (sink.Sink, error) {
	o, err := sink.Options(u, "acks", "compression", "sasl", "tls", "tls_ca", "tls_cert", "tls_key")
	if err != nil {
		return nil, err
	}
	s := &Sink{topic: strings.TrimPrefix(u.Path, "/"), limit: defaultLimit}
	hosts := strings.Split(u.Host, ",")
	for i, host := range hosts {
		if hosts[i] = strings.TrimSpace(host); strings.TrimLeft(host, " :0123456789") == "" {
			return nil, errors.New("names no host, or an empty one: write kafka://host:9092/topic")
		}
	}
	switch {
	case u.Opaque != "":
		return nil, errors.New("names no host: write kafka://host:9092/topic")
	case u.Fragment != "":
		return nil, errors.New("a # in the URL is written %23")
	case !topicName.MatchString(s.topic):
		return nil, errors.New("path: want the name of a topic: 1 to 249 letters, digits, and . _ -")
	}
	s.options = []kgo.Opt{
		kgo.SeedBrokers(hosts...),
		kgo.ClientID("spillway"),
		kgo.DefaultProduceTopic(s.topic),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // as Kafka's own clients do
		kgo.ManualFlushing(),
		kgo.MaxBufferedRecords(maxBatches * partition.MaxBatch),
		// A record that a broker rejected, or that was never sent, fails at once: the drain
		// retries. One that may have arrived is sent again under its number until the Write's
		// ctx ends, for nobody but this producer can do that without a repeat.
		kgo.RecordRetries(0),
		kgo.UnknownTopicRetries(0),
		kgo.RequestRetries(3),                      // of Open: other hosts of the URL get a turn
		kgo.MetadataMinAge(500 * time.Millisecond), // a new leader is found soon
		kgo.DisableClientMetrics(),
		kgo.BrokerMaxReadBytes(maxAnswer),
		kgo.FetchMaxBytes(maxAnswer), // nothing is fetched; it must not be larger than the one above
	}
	switch o["acks"] {
	case "", "all":
	case "1":
		s.options = append(s.options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, fmt.Errorf("acks: %q, want all or 1", o["acks"])
	}
	name, known := o["compression"], false
	if name == "" {
		name = "snappy"
	}
	if s.codec, known = compressions[name]; !known {
		return nil, fmt.Errorf("compression: %q, want none, gzip, snappy, lz4 or zstd", name)
	}
	secure, err := sink.TLS(o)
	if err != nil {
		return nil, err
	}
	if secure != nil {
		s.options = append(s.options, kgo.DialTLSConfig(secure))
	}
	mechanism, err := authentication(o["sasl"], u.User)
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		s.options = append(s.options, mechanism)
	}
	if err := kgo.ValidateOpts(s.options...); err != nil {
		return nil, brief(err)
	}
	return s, nil
}

// client makes a client of the cluster; it connects when it is used.
func (s *Sink) client() (*kgo.Client, error) {
	options := append(s.options[:len(s.options):len(s.options)],
		kgo.ProducerBatchMaxBytes(s.limit),
		kgo.ProducerBatchCompression(s.codec)) // not among the shared ones: making a client sorts its list
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, brief(err)
	}
	return client, nil
}

// authentication is the option for the user and password of the URL; nil without them.
func authentication(mechanism string, user *url.Userinfo) (kgo.Opt, error) {
	password, given := user.Password()
	switch {
	case mechanism == "" && user == nil:
		return nil, nil
	case mechanism == "":
		return nil, errors.New("sasl: the URL has a user: want plain, scram-sha-256 or scram-sha-512")
	case user.Username() == "" || !given:
		return nil, errors.New("sasl: want a user and a password in the URL: kafka://user:password@host:9092/topic")
	}
	switch mechanism {
	case "plain":
		return kgo.SASL(plain.Auth{User: user.Username(), Pass: password}.AsMechanism()), nil
	case "scram-sha-256":
		return kgo.SASL(scram.Auth{User: user.Username(), Pass: password}.AsSha256Mechanism()), nil
	case "scram-sha-512":
		return kgo.SASL(scram.Auth{User: user.Username(), Pass: password}.AsSha512Mechanism()), nil
	}
	return nil, fmt.Errorf("sasl: %q, want plain, scram-sha-256 or scram-sha-512", mechanism)
}

// Caps allows batches of many partitions a Write, and as many Writes as there are producers.
func (s *Sink) Caps() sink.Caps {
	return sink.Caps{
		MaxBatches:    maxBatches,
		MaxInFlight:   maxInFlight,
		PreferEntries: preferEntries,
		Linger:        linger,
	}
}

// Open connects, and finds a wrong password, a topic that does not exist and a user who may
// not write to it. It makes no topic: how many partitions one has is the operator's choice.
func (s *Sink) Open(ctx context.Context) error {
	limit, err := s.probe(ctx)
	if err != nil {
		return fmt.Errorf("open kafka: %w", err)
	}
	s.limit = limit
	// Also when it was open: producers take the topic's limit when they are made.
	s.drop()
	s.producers = make(chan *kgo.Client, maxInFlight)
	for range maxInFlight {
		s.producers <- nil
	}
	return nil
}

// probe checks the topic, and returns its limit. The library waits 10 s for the first answer
// of a connection, whatever ctx says.
func (s *Sink) probe(ctx context.Context) (limit int32, err error) {
	client, err := s.client()
	if err != nil {
		return 0, err
	}
	type answer struct {
		limit int32
		err   error
	}
	answers := make(chan answer, 1)
	s.closing.Go(func() {
		var a answer
		if a.err = checkTopic(ctx, client, s.topic); a.err == nil {
			a.limit = topicLimit(ctx, client, s.topic)
		}
		answers <- a
	})
	defer s.closing.Go(client.Close) // ends the requests, too
	select {
	case a := <-answers:
		return a.limit, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Close frees the connections.
func (s *Sink) Close(ctx context.Context) error {
	s.drop()
	closed := make(chan struct{})
	go func() {
		s.closing.Wait()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close kafka: %w", ctx.Err())
	}
}

// drop closes all producers. No Write is running.
func (s *Sink) drop() {
	if s.producers == nil {
		return
	}
	for range maxInFlight {
		if p := <-s.producers; p != nil {
			s.closing.Go(p.Close)
		}
	}
	s.producers = nil
}

// take returns a producer for one Write.
func (s *Sink) take(ctx context.Context) (*kgo.Client, error) {
	select {
	case p := <-s.producers:
		if p != nil {
			return p, nil
		}
		p, err := s.client()
		if err != nil {
			s.producers <- nil
		}
		return p, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
