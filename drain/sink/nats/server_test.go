//go:build sinks

package nats

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/lua/redistest"
)

// server is a real nats-server with JetStream, in a temporary folder.
type server struct {
	t    testing.TB
	addr string
	args []string
	cmd  *exec.Cmd
}

// startServer runs a server with extra lines of configuration.
func startServer(t testing.TB, config ...string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, addr: redistest.FreeAddr(t)}
	file := filepath.Join(dir, "nats.conf")
	lines := append([]string{"listen: " + s.addr, fmt.Sprintf("jetstream: {store_dir: %q}", dir)}, config...)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{"-c", file, "-l", filepath.Join(dir, "nats.log")}
	s.launch()
	t.Cleanup(s.kill)
	return s
}

// launch starts the server, again on the same port and folder, and waits until it answers.
func (s *server) launch() {
	s.t.Helper()
	s.cmd = exec.Command("nats-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start nats-server, which make test-sinks installs: %v", err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for give := time.Now().Add(20 * time.Second); ; <-tick.C {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(give) {
			s.t.Fatalf("nats-server does not listen: %v", err)
		}
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// freeze stops the server until thaw is called. It returns when every thread has stopped.
func (s *server) freeze() (thaw func()) {
	signal := func(sig syscall.Signal) {
		if err := s.cmd.Process.Signal(sig); err != nil {
			s.t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		s.t.Errorf("the server has not stopped: %v", err)
	}
	return func() { signal(syscall.SIGCONT) }
}

// client is a connection of its own, to make streams and read them.
func (s *server) client(options ...nats.Option) jetstream.JetStream {
	s.t.Helper()
	var nc *nats.Conn
	var err error
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		if nc, err = nats.Connect("nats://"+s.addr, options...); err == nil {
			break
		}
		<-tick.C
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	return js
}

// makeStream makes or changes the stream EVENTS.
func makeStream(t testing.TB, js jetstream.JetStream, config jetstream.StreamConfig) {
	t.Helper()
	config.Name = "EVENTS"
	if config.Subjects == nil {
		config.Subjects = []string{"events.>"}
	}
	if _, err := js.CreateOrUpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// stored reads a stream from its beginning to its end.
func stored(t testing.TB, js jetstream.JetStream) (list []jetstream.Msg) {
	t.Helper()
	stream, err := js.Stream(t.Context(), "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	reader, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for missing := int(stream.CachedInfo().State.Msgs); len(list) < missing; {
		batch, err := reader.Fetch(min(missing-len(list), 1000), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			list = append(list, m)
		}
		if batch.Error() != nil {
			t.Fatalf("%d of %d messages read: %v", len(list), missing, batch.Error())
		}
	}
	return list
}

// newSink makes a sink; rest is subject and options, login "user:password@" or "".
func newSink(t testing.TB, s *server, login, rest string) *Sink {
	t.Helper()
	return sinktest.Make[*Sink](t, New, "nats://"+login+s.addr+"/"+rest)
}

func open(t testing.TB, s *server, rest string) *Sink {
	t.Helper()
	k := newSink(t, s, "", rest)
	if err := k.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// batch has n entries of a partition from a sequence on.
func batch(partition string, from int64, n int) *sink.Batch {
	return sinktest.Batch(partition, from, sinktest.Numbered(n)...)
}
