package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/drain/sink/tlstest"
	"github.com/spillway-io/spillway/lua/redistest"
)

// batch has n entries of a partition from a sequence on.
func batch(partition string, from int64, n int) *sink.Batch {
	return sinktest.Batch(partition, from, sinktest.Numbered(n)...)
}

// sequences of a partition, in the order in which a consumer sees them.
func sequences(t *testing.T, cluster *kfake.Cluster, partition string) (list []int64) {
	t.Helper()
	for _, r := range records(t, cluster) {
		if string(r.Key) == partition {
			list = append(list, number(t, r, "seq"))
		}
	}
	return list
}

func span(from, to int64) (list []int64) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

func TestOneTooLargeRecordCostsOneRecord(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, kfake.NumBrokers(1))
	if err := cluster.CreateTopic("small", 1, map[string]string{"max.message.bytes": "2000"}); err != nil {
		t.Fatal(err)
	}
	s := open(t, cluster, "small?compression=none")
	b := batch("p", 1, 100) // 15 kB: several batches of records
	b.Entries[40].Payload = []byte(strings.Repeat("x", 2000))
	err := s.Write(t.Context(), []*sink.Batch{batch("other", 1, 5), b})
	var named *sink.BatchError
	if !errors.As(err, &named) || len(named.Failed) != 1 {
		t.Fatalf("got %v, want one entry", err)
	}
	if f := named.Failed[0]; f.Batch != 1 || f.Entry != 40 || !sink.IsPermanent(f.Err) || !strings.Contains(f.Err.Error(), "max.message.bytes") {
		t.Errorf("got %+v", f)
	}
	if got := cluster.PartitionInfo("small", 0).HighWatermark; got != 104 {
		t.Errorf("%d records arrived, want 104", got)
	}
}

func TestARecordThatTheBrokerRejectsIsFoundByBisecting(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	s := open(t, cluster, topic)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidTimestamp, Count: 2})
	err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 2)})
	if named := (*sink.BatchError)(nil); !sink.IsPermanent(err) || errors.As(err, &named) {
		t.Errorf("got %v, want all of it permanent: nobody knows which entry it is", err)
	}
	err = s.Write(t.Context(), []*sink.Batch{batch("p", 1, 1)})
	var named *sink.BatchError
	if !errors.As(err, &named) || len(named.Failed) != 1 || !sink.IsPermanent(named.Failed[0].Err) {
		t.Errorf("got %v, want the one entry, permanent", err)
	}
	if err := s.Write(t.Context(), []*sink.Batch{batch("p", 2, 1)}); err != nil {
		t.Error(err)
	}
	if got := sequences(t, cluster, "p"); !slices.Equal(got, []int64{2}) {
		t.Errorf("got %v", got)
	}
}

func TestAPartitionOfTheTopicThatFailsConcernsItsEntriesOnly(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	s := open(t, cluster, topic)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{0, 3}, Err: kerr.NotEnoughReplicas, Count: -1})
	const many = 64
	var batches []*sink.Batch
	for i := range many {
		batches = append(batches, batch(fmt.Sprintf("p%d", i), 1, 10))
	}
	err := s.Write(t.Context(), batches)
	var named *sink.BatchError
	if !errors.As(err, &named) {
		t.Fatalf("got %v, want a BatchError", err)
	}
	failed, told := map[int]int{}, 0
	for _, f := range named.Failed {
		failed[f.Batch]++
		if sink.IsPermanent(f.Err) || errors.Is(f.Err, sink.ErrNotConnected) {
			t.Fatalf("got %v", f.Err)
		}
		if errors.Is(f.Err, kerr.NotEnoughReplicas) { // those behind them in a queue of the client may end without a word
			told++
		}
	}
	if told == 0 {
		t.Errorf("none of %d failures says why: %v", len(named.Failed), named.Failed[0].Err)
	}
	if len(failed) == 0 || len(failed) == many {
		t.Fatalf("%d of %d batches failed", len(failed), many)
	}
	fault.Remove()
	for i, b := range batches {
		if failed[i] == 0 {
			continue
		}
		if err := s.Write(t.Context(), []*sink.Batch{b}); err != nil {
			t.Error(err)
		}
	}
	got := map[string][]int64{}
	for _, r := range records(t, cluster) {
		got[string(r.Key)] = append(got[string(r.Key)], number(t, r, "seq"))
	}
	for i, b := range batches {
		want := span(1, 10)
		if n := failed[i]; n > 0 && n < 10 { // of another partition, in a request behind one that failed
			want = append(span(1, int64(10-n)), want...)
		}
		if list := got[b.Partition]; !slices.Equal(list, want) {
			t.Errorf("%s: got %v, want %v", b.Partition, list, want)
		}
	}
}

// flaky is a listener whose connections break now and then, when the broker answers.
type flaky struct {
	net.Listener
	calm *atomic.Bool // from then on, none breaks
}

func (l flaky) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return flakyConn{conn, l.calm}, nil
}

type flakyConn struct {
	net.Conn
	calm *atomic.Bool
}

func (c flakyConn) Write(p []byte) (int, error) {
	if !c.calm.Load() && rand.IntN(20) == 0 {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func TestAConnectionThatBreaksRepeatsNothingAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	var calm atomic.Bool
	calm.Store(true)
	cluster := startCluster(t, kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return flaky{l, &calm}, err
	}))
	s := open(t, cluster, topic)
	calm.Store(false)
	const writers, each, size = 8, 15, 40
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := range each {
				b := batch(fmt.Sprint("p", w), int64(1+i*size), size)
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					err := s.Write(ctx, []*sink.Batch{b})
					cancel()
					if err == nil {
						break
					}
					b = remaining(t, b, err)
				}
			}
		})
	}
	running.Wait()
	calm.Store(true)
	got := map[string][]int64{}
	for _, r := range records(t, cluster) {
		got[string(r.Key)] = append(got[string(r.Key)], number(t, r, "seq"))
	}
	for w := range writers {
		if list := got[fmt.Sprint("p", w)]; !slices.Equal(list, span(1, each*size)) {
			t.Errorf("p%d: %d records, want 1 to %d once and in order: %v", w, len(list), each*size, list)
		}
	}
}

func TestWhateverTheBrokersRejectEachEntryArrivesInOrder(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	s := open(t, cluster, topic+"?compression=none")
	s.limit = 2000 // some ten records: a Write is many batches of records
	var faults []*kfake.FaultHandle
	for _, rejection := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.NotLeaderForPartition,
		kerr.UnknownServerError, kerr.OutOfOrderSequenceNumber, kerr.KafkaStorageError,
	} {
		faults = append(faults, cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: rejection, Count: -1, When: func(kmsg.Request) bool { return rand.IntN(40) == 0 },
		}))
	}
	const writers, each, size = 8, 10, 100
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := range each {
				b := batch(fmt.Sprint("p", w), int64(1+i*size), size)
				for {
					err := s.Write(t.Context(), []*sink.Batch{b})
					if err == nil {
						break
					}
					b = remaining(t, b, err)
				}
			}
		})
	}
	running.Wait()
	for _, f := range faults {
		f.Remove()
	}
	got := map[string][]int64{}
	for _, r := range records(t, cluster) {
		key, seq := string(r.Key), number(t, r, "seq")
		if list := got[key]; len(list) == 0 || seq > list[len(list)-1] {
			got[key] = append(list, seq) // a consumer's way to drop repeats
		}
	}
	for w := range writers {
		if list := got[fmt.Sprint("p", w)]; !slices.Equal(list, span(1, each*size)) {
			t.Errorf("p%d: %d entries in order, want 1 to %d", w, len(list), each*size)
		}
	}
}

// remaining is what the drain writes again after an error.
func remaining(t *testing.T, b *sink.Batch, err error) *sink.Batch {
	var named *sink.BatchError
	if !errors.As(err, &named) {
		t.Errorf("got %v, want the entries by name", err)
		return b
	}
	again := &sink.Batch{Namespace: b.Namespace, Partition: b.Partition, Attempt: b.Attempt + 1}
	for _, f := range named.Failed {
		again.Entries = append(again.Entries, b.Entries[f.Entry])
	}
	again.FirstSeq = again.Entries[0].Seq
	return again
}

func TestEntriesOfAnUnknownOutcomeComeAgainInOrder(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	s := open(t, cluster, topic)
	next := int64(1)
	for range 5 {
		release := stall(cluster)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		b := batch("p", next, 20)
		if err := s.Write(ctx, []*sink.Batch{b}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		cancel()
		release()
		if err := s.Write(t.Context(), []*sink.Batch{b}); err != nil {
			t.Error(err)
		}
		next += 20
	}
	var unseen []int64
	for _, seq := range sequences(t, cluster, "p") {
		if !slices.Contains(unseen, seq) {
			unseen = append(unseen, seq)
		}
	}
	if !slices.Equal(unseen, span(1, next-1)) {
		t.Errorf("without repeats got %v", unseen)
	}
}

func TestAWriteWithoutAServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	s := open(t, cluster, topic)
	if err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 3)}); err != nil {
		t.Fatal(err)
	}
	cluster.Close()
	write := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return s.Write(ctx, []*sink.Batch{batch("p", 4, 3)})
	}
	for range 100 { // Close does not wait for its connections, which may take some more
		if write() != nil {
			break
		}
	}
	for range maxInFlight + 1 {
		start := time.Now()
		if write() == nil {
			t.Error("got no error")
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("took %s", took)
		}
	}
}

func TestOpenSaysWhatAPersonHasToMend(t *testing.T) {
	t.Parallel()
	secured := startCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("SCRAM-SHA-256", "root", "s3cret"),
		kfake.Superuser("PLAIN", "root", "s3cret"), kfake.Superuser("SCRAM-SHA-512", "root", "s3cret"),
		kfake.User("PLAIN", "reader", "s3cret", kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true,
		}))
	cert := httptest.NewTLSServer(nil)
	defer cert.Close()
	encrypted := startCluster(t, kfake.TLS(cert.TLS))
	nobody := redistest.FreeAddr(t)
	for _, row := range []struct{ name, url, want string }{
		{"scram-sha-256", "kafka://root:s3cret@" + addr(secured) + "/events?sasl=scram-sha-256", ""},
		{"scram-sha-512", "kafka://root:s3cret@" + addr(secured) + "/events?sasl=scram-sha-512", ""},
		{"plain", "kafka://root:s3cret@" + addr(secured) + "/events?sasl=plain", ""},
		{"a wrong password", "kafka://root:hunter2@" + addr(secured) + "/events?sasl=plain", "check user, password"},
		{"a topic that does not exist", "kafka://root:s3cret@" + addr(secured) + "/evnts?sasl=plain", "topic evnts does not exist: create it"},
		{"a user who may read only", "kafka://reader:s3cret@" + addr(secured) + "/events?sasl=plain", "the user may not write"},
		{"a certificate of unknown origin", "kafka://" + addr(encrypted) + "/events?tls=1", "certificate"},
		{"no server", "kafka://" + nobody + "/events", "connection refused"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := sinktest.Make[*Sink](t, New, row.url)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := s.Open(ctx)
			switch {
			case row.want == "":
				if err == nil {
					err = s.Write(ctx, []*sink.Batch{batch("p", 1, 3)})
				}
				if err != nil {
					t.Error(err)
				}
			case err == nil || !strings.Contains(err.Error(), row.want):
				t.Errorf("got %v, want %s", err, row.want)
			case strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "s3cret"):
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func addr(cluster *kfake.Cluster) string { return cluster.ListenAddrs()[0] }

func TestURLsThatCannotWorkAreRejectedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	sinktest.RejectURLs(t, New,
		"kafka:", "kafka:h/t", "kafka:///t", "kafka://h:9092", "kafka://h:9092/", "kafka://h/a/b", "kafka://h/t%20t", "kafka://:9092/t", "kafka://h:1,:2/t",
		"kafka://h,/t", "kafka://h/t#x", "kafka://h/t?acks=0", "kafka://h/t?compression=best", "kafka://h/t?tls=yes", "kafka://h/t?ack=all",
		"kafka://u:s3cret@h/t", "kafka://u@h/t?sasl=plain", "kafka://h/t?sasl=plain", "kafka://u:s3cret@h/t?sasl=gssapi",
	)
	for _, raw := range []string{
		"kafka://h/t", "kafka://h1:9092,h2:9093/t.x_y-z", "kafka://[::1]:9094/t", "kafka://u:p%40@h1,h2:9092/t?sasl=scram-sha-512&tls=1&acks=all&compression=none",
	} {
		sinktest.Make[*Sink](t, New, raw)
	}
}

func TestErrorsShowNoAddressAndAreShort(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 9092}, Err: errors.New("connection refused")},
		&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 9092}, Err: context.DeadlineExceeded},
		errors.New(strings.Repeat("é", 5000)),
		fmt.Errorf("%w (uncompressed_bytes=5)", kerr.MessageTooLarge),
	} {
		if text := brief(err).Error(); len(text) > 200 || strings.Contains(text, "10.1.2.3") {
			t.Errorf("got %q", text)
		}
	}
}

func TestAClusterThatAsksForACertificateGetsIt(t *testing.T) {
	t.Parallel()
	dir, server := tlstest.Certificate(t)
	cluster := startCluster(t, kfake.TLS(server))
	own := "events?tls=1&tls_ca=" + dir + "/cert.pem"
	for rest, works := range map[string]bool{
		own + "&tls_cert=" + dir + "/cert.pem&tls_key=" + dir + "/key.pem":  true,
		own + "&tls_cert=" + dir + "/cert.pem&tls_key=" + dir + "/none.pem": false,
		own:            false,
		"events?tls=1": false,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := newSink(t, cluster, rest).Open(ctx)
		if cancel(); (err == nil) != works || err != nil && strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v", strings.ReplaceAll(rest, dir, ""), err)
		}
	}
}
