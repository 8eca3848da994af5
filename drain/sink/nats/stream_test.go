//go:build sinks

package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/drain/sink/tlstest"
)

// count is how often a stream has each entry, by its Nats-Msg-Id.
func count(t *testing.T, js jetstream.JetStream) map[string]int {
	t.Helper()
	got := map[string]int{}
	for _, m := range stored(t, js) {
		got[m.Headers().Get(nats.MsgIdHdr)]++
	}
	return got
}

// deliver writes a batch as the drain does: again what failed, after Open where the sink asks for it.
func deliver(ctx context.Context, s *Sink, reopen *sync.RWMutex, b *sink.Batch) error {
	for {
		limit, cancel := context.WithTimeout(ctx, time.Second)
		reopen.RLock()
		err := s.Write(limit, []*sink.Batch{b})
		reopen.RUnlock()
		cancel()
		var named *sink.BatchError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case errors.As(err, &named):
			again := &sink.Batch{Namespace: b.Namespace, Partition: b.Partition, Attempt: b.Attempt + 1}
			for _, f := range named.Failed {
				again.Entries = append(again.Entries, b.Entries[f.Entry])
				err = f.Err
			}
			b = again
		}
		for errors.Is(err, sink.ErrNotConnected) && ctx.Err() == nil {
			reopen.Lock()
			if s.Open(ctx) == nil {
				err = nil
			}
			reopen.Unlock()
		}
	}
}

func TestEachEntryIsInTheStreamOnceAlthoughTheServerIsKilled(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	js := server.client(nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	makeStream(t, js, jetstream.StreamConfig{})
	s := open(t, server, "events.{namespace}.{partition}?stream=EVENTS")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const writers, each, size = 8, 40, 100
	var running sync.WaitGroup
	var reopen sync.RWMutex
	var done atomic.Int64
	for w := range writers {
		running.Go(func() {
			for i := range each {
				if err := deliver(ctx, s, &reopen, batch(fmt.Sprint("p", w), int64(1+i*size), size)); err != nil {
					t.Error(err)
				}
				done.Add(1)
			}
		})
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for kills := int64(1); kills <= 4; <-tick.C {
		if done.Load() >= kills*writers*each/5 {
			server.kill()
			server.launch()
			kills++
		}
	}
	running.Wait()
	got := count(t, js)
	if len(got) != writers*each*size {
		t.Errorf("%d entries are in the stream, want %d", len(got), writers*each*size)
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
}

func TestAMessageWrittenAgainIsDropped(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	js := server.client()
	makeStream(t, js, jetstream.StreamConfig{})
	s := open(t, server, "events.{partition}")
	for range 3 {
		if err := s.Write(t.Context(), []*sink.Batch{batch("p.1", 1, 50), batch("p.1", 51, 50)}); err != nil {
			t.Fatal(err)
		}
	}
	got := count(t, js)
	if len(got) != 100 || got["kart/p.1/7"] != 1 {
		t.Errorf("got %d messages, seq 7 %d times", len(got), got["kart/p.1/7"])
	}
}

func TestOneTooLargeMessageCostsOneMessage(t *testing.T) {
	t.Parallel()
	server := startServer(t, "max_payload: 5000")
	js := server.client()
	makeStream(t, js, jetstream.StreamConfig{MaxMsgSize: 1000})
	s := open(t, server, "events.all")
	b := batch("p", 1, 100)
	b.Entries[20].Payload = bytes.Repeat([]byte("x"), 1001)
	b.Entries[40].Payload = bytes.Repeat([]byte("x"), 5001)
	err := s.Write(t.Context(), []*sink.Batch{b})
	var named *sink.BatchError
	if !errors.As(err, &named) || len(named.Failed) != 2 {
		t.Fatalf("got %v, want two entries", err)
	}
	for i, f := range named.Failed {
		if f.Entry != 20+20*i || !sink.IsPermanent(f.Err) {
			t.Errorf("got %+v", f)
		}
	}
	if got := len(stored(t, js)); got != 98 {
		t.Errorf("%d messages arrived, want 98", got)
	}
}

func TestAServerThatReadsNothingHoldsWritesUpForSecondsOnly(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	js := server.client()
	makeStream(t, js, jetstream.StreamConfig{})
	s := open(t, server, "events.all")
	defer server.freeze()()
	var running, ready sync.WaitGroup
	ready.Add(16)
	for w := range 16 {
		running.Go(func() {
			b := batch(fmt.Sprint("p", w), 1, 128)
			for j := range b.Entries {
				b.Entries[j].Payload = bytes.Repeat([]byte("x"), 32<<10)
			}
			b.ID()
			ready.Done()
			ready.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := s.Write(ctx, []*sink.Batch{b})
			if took := time.Since(start); err == nil || took > 20*time.Second {
				t.Errorf("took %s, got %v", took, err)
			}
		})
	}
	running.Wait()
}

func TestOpenSaysWhatAPersonHasToMend(t *testing.T) {
	t.Parallel()
	secured := startServer(t, `authorization: {users: [
		{user: root, password: s3cret}
		{user: reader, password: s3cret, permissions: {publish: {deny: "events.>"}}}
		{user: mute, password: s3cret, permissions: {subscribe: {deny: "_INBOX.>"}}}]}`)
	makeStream(t, secured.client(nats.UserInfo("root", "s3cret")), jetstream.StreamConfig{})
	plain := startServer(t, "jetstream: disabled")
	for _, row := range []struct {
		name, login, rest, want string
		server                  *server
	}{
		{"all right", "root:s3cret@", "events.{namespace}.{partition}?stream=EVENTS", "", secured},
		{"without the stream's name", "root:s3cret@", "events.{namespace}.{partition}", "", secured},
		{"a wrong password", "root:hunter2@", "events.all", "Authorization Violation", secured},
		{"no password", "", "events.all", "Authorization", secured},
		{"no such stream", "root:s3cret@", "events.all?stream=NONE", "stream not found", secured},
		{"no stream for the subject", "root:s3cret@", "others.{partition}", "no stream takes the subject others.*", secured},
		{"a user who gets no answers", "mute:s3cret@", "events.all", "permissions violation", secured},
		{"no JetStream", "", "events.all", "runs without it", plain},
		{"no TLS", "root:s3cret@", "events.all?tls=1", "secure connection not available", secured},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, row.server, row.login, row.rest)
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
			case err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(row.want)):
				t.Errorf("got %v, want %s", err, row.want)
			case strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "s3cret"):
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
	t.Run("a user who may not publish", func(t *testing.T) {
		t.Parallel()
		s := newSink(t, secured, "reader:s3cret@", "events.all")
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 3)})
		var named *sink.BatchError
		if !errors.As(err, &named) || len(named.Failed) != 3 || !errors.Is(named.Failed[0].Err, sink.ErrNotConnected) || !strings.Contains(err.Error(), "may not publish") {
			t.Errorf("got %v, want the three entries, and Open again", err)
		}
	})
}

func TestAStreamForSomeOfTheSubjectsIsEnoughToOpen(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	js := server.client()
	makeStream(t, js, jetstream.StreamConfig{Subjects: []string{"events.kart.*"}})
	s := open(t, server, "events.{namespace}.{partition}")
	if err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 3)}); err != nil {
		t.Error(err)
	}
}

func TestAnotherStreamThanTheNamedOneTakesNothing(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	js := server.client()
	makeStream(t, js, jetstream.StreamConfig{})
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	s := open(t, server, "events.all?stream=OTHER")
	err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 3)})
	var named *sink.BatchError
	if !errors.As(err, &named) || len(named.Failed) != 3 || !errors.Is(named.Failed[0].Err, sink.ErrNotConnected) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkWrite writes 16 batches of 128 entries of 200 B a Write, from several goroutines.
func BenchmarkWrite(b *testing.B) {
	for _, storage := range []jetstream.StorageType{jetstream.FileStorage, jetstream.MemoryStorage} {
		for _, stream := range []string{"", "?stream=EVENTS"} {
			b.Run(storage.String()+stream, func(b *testing.B) {
				server := startServer(b)
				makeStream(b, server.client(), jetstream.StreamConfig{Storage: storage})
				s := open(b, server, "events.{namespace}.{partition}"+stream)
				writes := make(chan int64)
				var running sync.WaitGroup
				for w := range 4 {
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
				b.ReportMetric(float64(b.N*16*128)/b.Elapsed().Seconds(), "entries/s")
			})
		}
	}
}

var payload = bytes.Repeat([]byte(`{"player":"8d1f20","kind":"move","x":1024.5,"y":88.25}`), 4)[:200]

func load(writer int, n int64) (batches []*sink.Batch) {
	for i := range int64(16) {
		p := &sink.Batch{Namespace: "kart", Partition: fmt.Sprint("player-", writer), FirstSeq: (n*16 + i) * 128, Attempt: 1}
		for j := range int64(128) {
			p.Entries = append(p.Entries, sink.Entry{Seq: p.FirstSeq + j, Occurred: 1763629675100, Payload: payload})
		}
		batches = append(batches, p)
	}
	return batches
}

func TestAServerThatAsksForACertificateGetsIt(t *testing.T) {
	t.Parallel()
	dir, _ := tlstest.Certificate(t)
	server := startServer(t, fmt.Sprintf(`tls: {cert_file: "%[1]s/cert.pem", key_file: "%[1]s/key.pem", ca_file: "%[1]s/cert.pem", verify: true}`, dir))
	makeStream(t, server.client(nats.RootCAs(dir+"/cert.pem"), nats.ClientCert(dir+"/cert.pem", dir+"/key.pem")), jetstream.StreamConfig{})
	own := "?tls=1&tls_ca=" + dir + "/cert.pem"
	for rest, works := range map[string]bool{own + "&tls_cert=" + dir + "/cert.pem&tls_key=" + dir + "/key.pem": true, own: false, "?tls=1": false} {
		s, err := New(parse(t, "nats://"+server.addr+"/events.all"+rest))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Open(t.Context()); (err == nil) != works {
			t.Errorf("%s: got %v", strings.ReplaceAll(rest, dir, ""), err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestAStreamThatForgetsAnEntryBeforeItExpiresIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	js := server.client()
	for _, row := range []struct {
		window, maxAge time.Duration
		want           string
	}{
		{0, 3 * time.Minute, "stream EVENTS drops repeats for 2m0s (its duplicate window), but entries are tried again up to max_age, 3m0s: later ones are stored twice; run nats stream edit EVENTS --dupe-window=3m0s"},
		{3 * time.Minute, 3 * time.Minute, ""},
		{time.Second, 0, ""}, // of a queue
	} {
		makeStream(t, js, jetstream.StreamConfig{Duplicates: row.window})
		for _, rest := range []string{"events.{partition}", "events.{partition}?stream=EVENTS"} {
			s := newSink(t, server, "", rest)
			var warnings []string
			s.WarnTo(func(text string) { warnings = append(warnings, text) }, row.maxAge)
			for range 2 {
				if err := s.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if len(warnings) > 1 || strings.Join(warnings, "") != row.want {
				t.Errorf("%s: window %s, max_age %s: got %q, want %q", rest, row.window, row.maxAge, warnings, row.want)
			}
		}
	}
}

func TestAUserWhoMayNotAskForTheWindowIsNotWarnedAndPublishes(t *testing.T) {
	t.Parallel()
	server := startServer(t, `authorization: {users: [
		{user: root, password: s3cret}
		{user: writer, password: s3cret, permissions: {publish: {deny: "$JS.API.STREAM.INFO.>"}}}]}`)
	makeStream(t, server.client(nats.UserInfo("root", "s3cret")), jetstream.StreamConfig{})
	s := newSink(t, server, "writer:s3cret@", "events.{partition}")
	s.WarnTo(func(text string) { t.Error(text) }, 3*time.Minute)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 3)}); err != nil {
		t.Error(err)
	}
}

func fixture(t testing.TB, rest string) sinktest.Fixture {
	server := startServer(t)
	js := server.client()
	makeStream(t, js, jetstream.StreamConfig{})
	change := func(config jetstream.StreamConfig) func() func() {
		return func() func() {
			makeStream(t, js, config)
			return func() { makeStream(t, js, jetstream.StreamConfig{MaxMsgs: -1, MaxMsgSize: -1, MaxBytes: -1}) }
		}
	}
	return sinktest.Fixture{
		Sink: newSink(t, server, "", rest),
		Received: func() (list []sinktest.Record, err error) {
			for _, m := range stored(t, js) {
				field := m.Headers().Get
				number := func(name string) int64 {
					n, err := strconv.ParseInt(field(name), 10, 64)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					return n
				}
				r := sinktest.Record{
					Namespace: field("namespace"), Partition: field("partition"), Seq: number("seq"), Occurred: number("ts"),
					Payload: m.Data(), Batch: field("batch"), Attempt: int(number("attempt")),
				}
				if id := field("id"); id != "" {
					r.ID = []byte(id)
				}
				list = append(list, r)
			}
			return list, nil
		},
		Stall: server.freeze,
		Faults: []sinktest.Fault{
			{Name: "a full stream", Start: change(jetstream.StreamConfig{MaxMsgs: 3, Discard: jetstream.DiscardNew})},
			{Name: "a stream that takes short messages", Permanent: true, Start: change(jetstream.StreamConfig{MaxMsgSize: 10})},
			{Name: "no stream for the subject", Start: change(jetstream.StreamConfig{Subjects: []string{"others.>"}})},
			{Name: "no server", Start: func() func() {
				server.kill()
				return server.launch
			}},
		},
	}
}

func TestConforms(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture { return fixture(t, "events.all") }})
}

func TestConformsWithASubjectAPartition(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		return fixture(t, "events.{namespace}.{partition}?stream=EVENTS")
	}})
}
