package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const topic = "events"

// startCluster is a Kafka of three brokers in this process, with one topic.
func startCluster(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(6, topic)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// newSink makes a sink for the cluster's topic, or another path and options.
func newSink(t testing.TB, cluster *kfake.Cluster, rest string) *Sink {
	t.Helper()
	return sinktest.Make[*Sink](t, New, "kafka://"+strings.Join(cluster.ListenAddrs(), ",")+"/"+rest)
}

// open is newSink, opened.
func open(t testing.TB, cluster *kfake.Cluster, rest string) *Sink {
	t.Helper()
	s := newSink(t, cluster, rest)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// records reads the topic from its beginning to its end.
func records(t testing.TB, cluster *kfake.Cluster) (list []*kgo.Record) {
	t.Helper()
	missing := int64(0)
	for _, p := range cluster.PartitionInfos(topic) {
		missing += p.HighWatermark
	}
	if missing == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for int64(len(list)) < missing {
		fetched := client.PollFetches(t.Context())
		if err := fetched.Err(); err != nil {
			t.Fatalf("%d of %d records read: %v", len(list), missing, err)
		}
		list = append(list, fetched.Records()...)
	}
	return list
}

func header(r *kgo.Record, name string) []byte {
	for _, h := range r.Headers {
		if h.Key == name {
			return h.Value
		}
	}
	return nil
}

func number(t testing.TB, r *kgo.Record, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(string(header(r, name)), 10, 64)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return n
}

// stall makes the brokers keep produce requests until release is called.
func stall(cluster *kfake.Cluster) (release func()) {
	released := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-released:
			cluster.DropControl()
		default:
			cluster.SleepControl(func() { <-released })
		}
		return nil, nil, false
	})
	return sync.OnceFunc(func() { close(released) })
}

func fixture(t testing.TB, query string) sinktest.Fixture {
	cluster := startCluster(t)
	reject := func(err *kerr.Error) func() func() {
		return func() func() {
			return cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: err, Count: -1}).Remove
		}
	}
	return sinktest.Fixture{
		Sink: newSink(t, cluster, topic+query),
		Received: func() (list []sinktest.Record, err error) {
			for _, r := range records(t, cluster) {
				if at := r.Timestamp.UnixMilli(); at != number(t, r, "ts") {
					t.Errorf("timestamp %d, want that of the header ts, %d", at, number(t, r, "ts"))
				}
				list = append(list, sinktest.Record{
					Namespace: string(header(r, "namespace")), Partition: string(r.Key), Seq: number(t, r, "seq"),
					Occurred: number(t, r, "ts"), ID: header(r, "id"), Payload: r.Value,
					Batch: string(header(r, "batch")), Attempt: int(number(t, r, "attempt")),
				})
			}
			return list, nil
		},
		Stall: func() func() { return stall(cluster) },
		Faults: []sinktest.Fault{
			{Name: "too few replicas", Start: reject(kerr.NotEnoughReplicas)},
			{Name: "a leader that moves", Start: reject(kerr.NotLeaderForPartition)},
			{Name: "a user without the right", Start: reject(kerr.TopicAuthorizationFailed)},
			{Name: "a topic that is gone", Start: reject(kerr.UnknownTopicOrPartition)},
			{Name: "a lost sequence", Start: reject(kerr.OutOfOrderSequenceNumber)},
			{Name: "records that the broker rejects", Permanent: true, Start: reject(kerr.InvalidRecord)},
		},
	}
}

func TestConforms(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture { return fixture(t, "") }})
}

func TestConformsWithTheLeadersAnswerAlone(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture { return fixture(t, "?acks=1&compression=zstd") }})
}

var _ sink.Sink = (*Sink)(nil)

// A peer that accepts connections and never says a word must not hold up a Stop.
func TestOpenEndsWithItsContextWhereNobodyAnswers(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s, err := New(&url.URL{Scheme: "kafka", Host: listener.Addr().String(), Path: "/events"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Open(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A broker that announces 90 MB and sends nothing must not make the sink reserve them.
func TestALongAnswerIsRejectedWhenItIsAnnounced(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 4096)) // a request
			_, _ = conn.Write([]byte{0x05, 0x5d, 0x4a, 0x80})
		}
	}()
	s, err := New(&url.URL{Scheme: "kafka", Host: listener.Addr().String(), Path: "/events"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.Open(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an error at once", err)
	}
}

// BenchmarkWrite writes 16 batches of 128 entries of 200 B a Write, from as many goroutines
// as there are producers, to a broker in this process that forgets the records.
func BenchmarkWrite(b *testing.B) {
	for _, compression := range []string{"none", "snappy", "lz4", "zstd"} {
		b.Run(compression, func(b *testing.B) {
			cluster := startCluster(b, kfake.BlackholeProduce())
			s := open(b, cluster, topic+"?compression="+compression)
			writes := make(chan int64)
			var running sync.WaitGroup
			for w := range maxInFlight {
				running.Go(func() {
					for n := range writes {
						if err := s.Write(b.Context(), load(w, n)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ResetTimer()
			for n := range int64(b.N) {
				writes <- n
			}
			close(writes)
			running.Wait()
			b.ReportMetric(float64(b.N*loadEntries)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

const loadEntries = 16 * 128

var payload = bytes.Repeat([]byte(`{"player":"8d1f20","kind":"move","x":1024.5,"y":88.25}`), 4)[:200]

func load(writer int, n int64) (batches []*sink.Batch) {
	for i := range 16 {
		p := &sink.Batch{Namespace: "kart", Partition: fmt.Sprintf("player-%d-%d", writer, i), FirstSeq: n * 128, Attempt: 1}
		for j := range int64(128) {
			p.Entries = append(p.Entries, sink.Entry{Seq: n*128 + j, Occurred: 1763629675100, Payload: payload})
		}
		batches = append(batches, p)
	}
	return batches
}
