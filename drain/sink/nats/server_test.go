//go:build sinks

package nats

import (
	"encoding/base64"
	"encoding/json"
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
	"github.com/nats-io/nkeys"

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

// identity is an operator, an account or a user: a pair of keys.
type identity struct {
	t    testing.TB
	keys nkeys.KeyPair
}

func newIdentity(t testing.TB, create func() (nkeys.KeyPair, error)) identity {
	t.Helper()
	keys, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return identity{t, keys}
}

func (i identity) public() string {
	i.t.Helper()
	key, err := i.keys.PublicKey()
	if err != nil {
		i.t.Fatal(err)
	}
	return key
}

// vouch is the JWT by which i vouches for another; claims say what that one is and may do.
func (i identity) vouch(other identity, claims map[string]any) string {
	i.t.Helper()
	claims["version"] = 2
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			i.t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]string{"typ": "JWT", "alg": "ed25519-nkey"}) + "." +
		part(map[string]any{"jti": other.public(), "iat": 1763629675, "iss": i.public(), "sub": other.public(), "name": "test", "nats": claims})
	signature, err := i.keys.Sign([]byte(text))
	if err != nil {
		i.t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// credentials writes a file as nsc does: the user's JWT and its seed.
func (i identity) credentials(dir string, user identity) string {
	i.t.Helper()
	seed, err := user.keys.Seed()
	if err != nil {
		i.t.Fatal(err)
	}
	unlimited := map[string]any{"type": "user", "subs": -1, "data": -1, "payload": -1}
	text := fmt.Sprintf("-----BEGIN NATS USER JWT-----\n%s\n------END NATS USER JWT------\n\n"+
		"-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n", i.vouch(user, unlimited), seed)
	file := filepath.Join(dir, user.public()+".creds")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
	return file
}

func TestAUserOfAnOperatorsAccountPublishesByItsCredentials(t *testing.T) {
	t.Parallel()
	operator, system := newIdentity(t, nkeys.CreateOperator), newIdentity(t, nkeys.CreateAccount)
	account, stranger := newIdentity(t, nkeys.CreateAccount), newIdentity(t, nkeys.CreateAccount)
	limits := map[string]any{"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "wildcards": true}
	withStreams := map[string]any{"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
	for name, value := range limits {
		withStreams[name] = value
	}
	server := startServer(t, "operator: "+operator.vouch(operator, map[string]any{"type": "operator"}), "system_account: "+system.public(),
		fmt.Sprintf("resolver: MEMORY\nresolver_preload: {%s: %s\n%s: %s}",
			account.public(), operator.vouch(account, map[string]any{"type": "account", "limits": withStreams}),
			system.public(), operator.vouch(system, map[string]any{"type": "account", "limits": limits})))
	dir := t.TempDir()
	file := account.credentials(dir, newIdentity(t, nkeys.CreateUser))
	makeStream(t, server.client(nats.UserCredentials(file)), jetstream.StreamConfig{})
	s := open(t, server, "events.{partition}?creds="+file)
	if err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 3)}); err != nil {
		t.Error(err)
	}
	other := newSink(t, server, "", "events.all?creds="+stranger.credentials(dir, newIdentity(t, nkeys.CreateUser)))
	if err := other.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "Authorization Violation") {
		t.Errorf("a user of another operator: got %v", err)
	}
	if err := newSink(t, server, "", "events.all").Open(t.Context()); err == nil {
		t.Error("nobody was let in")
	}
	gone := newSink(t, server, "", "events.all?creds="+file)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := gone.Open(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a file that went away: got %v, want its name", err)
	}
}
