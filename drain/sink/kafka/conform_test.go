package kafka

import (
	"strconv"
	"strings"
	"sync"
	"testing"

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
