package app

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/klauspost/compress/gzip"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/command"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/lua/redistest"
)

// lacksRight makes, for each type of sink, the URL of a target that lacks a right, or takes it away with revoke once the
// sink is open. nil: the sink has no target that could.
var lacksRight = map[string]func(t *testing.T) (url string, revoke func()){
	"stdout":        nil,
	"null":          nil,
	"namespaces":    nil, // its targets are in the store
	"file":          fileRight,
	"http":          func(t *testing.T) (string, func()) { return forbidding(t, "", 403, "").URL, nil },
	"exec":          commandRight,
	"redis-stream":  redisRight,
	"clickhouse":    clickhouseRight,
	"postgres":      postgresRight,
	"kafka":         kafkaRight,
	"nats":          natsRight,
	"s3":            s3Right,
	"elasticsearch": elasticsearchRight,
}

// A right that is missing says nothing of an entry: the sink waits for the person who gives it, and no entry is dead for it,
// nor does a job lose a try.
func TestAMissingRightAtTheTargetIsTheFaultOfNoEntry(t *testing.T) {
	t.Parallel()
	for _, of := range sinkTypes {
		name := of.Schemes[0]
		lacking, known := lacksRight[name]
		if !known {
			t.Errorf("the sink %s has no row in lacksRight", name)
		}
		if lacking == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, revoke := lacking(t)
			open := of.Open
			if path, is := strings.CutPrefix(url, "exec:"); is {
				url, open = "exec:", command.New([]string{path}, nil)
			}
			s := sinktest.Make[sink.Sink](t, open, url)
			err := s.Open(t.Context())
			switch {
			case err != nil && (revoke != nil || sink.IsPermanent(err)):
				t.Fatal(err)
			case err != nil:
				return // nothing is written
			case revoke != nil:
				revoke()
			}
			batch := sinktest.Batch("p", 1, sinktest.Numbered(3)...)
			err = s.Write(t.Context(), []*sink.Batch{batch})
			var each *sink.BatchError
			if !errors.As(err, &each) {
				each = &sink.BatchError{}
				for i := range batch.Entries {
					each.Fail(0, i, err)
				}
			}
			for _, failed := range each.Failed {
				if !sink.IsUnsent(failed.Err) || sink.IsPermanent(failed.Err) {
					t.Errorf("got %s, %v, want Unsent and retryable", sinktest.Kind(err), err)
				}
			}
			if len(each.Failed) != len(batch.Entries) {
				t.Errorf("got %v, want an error for each entry", err)
			}
		})
	}
}

// fileRight is a file in a directory that is not there for root, who lacks no right.
func fileRight(t *testing.T) (string, func()) {
	dir := filepath.Join(t.TempDir(), "closed")
	if os.Getuid() != 0 {
		if err := os.Mkdir(dir, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + filepath.Join(dir, "x.ndjson"), nil
}

func commandRight(t *testing.T) (string, func()) {
	path := writeFile(t, "program", "#!/bin/sh\n")
	mode := func(m os.FileMode) {
		if err := os.Chmod(path, m); err != nil {
			t.Error(err)
		}
	}
	mode(0o700)
	return "exec:" + path, func() { mode(0o600) }
}

func redisRight(t *testing.T) (string, func()) {
	server := redistest.Start(t)
	rules := func(rules ...any) {
		if err := server.Client().Do(t.Context(), append([]any{"acl", "setuser", "writer", "on", ">s3cret"}, rules...)...).Err(); err != nil {
			t.Error(err)
		}
	}
	rules("~*", "+@all")
	return "redis-stream://writer:s3cret@" + server.Addr, func() { rules("-xadd") }
}

// forbidding answers requests that have something to store with a status and a body, and others with 200 and what
// empty says.
func forbidding(t *testing.T, empty string, status int, body string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			if z, err := gzip.NewReader(r.Body); err == nil {
				in = z
			}
		}
		if text, _ := io.ReadAll(in); len(text) == 0 {
			if !strings.HasPrefix(r.URL.Query().Get("query"), "INSERT") { // of ClickHouse, which says nothing to one
				_, _ = io.WriteString(w, empty)
			}
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server
}

func clickhouseRight(t *testing.T) (string, func()) {
	server := forbidding(t, "max_insert_block_size\n", 500, "Code: 497. DB::Exception: writer: Not enough privileges.\n")
	return "clickhouse://" + server.Listener.Addr().String() + "/game?table=events", func() {}
}

func s3Right(t *testing.T) (string, func()) {
	server := forbidding(t, "<ListBucketResult/>", 403, "<Error><Code>AccessDenied</Code></Error>")
	return "s3://KEY:s3cret@" + server.Listener.Addr().String() + "/events?insecure=1", func() {}
}

func elasticsearchRight(t *testing.T) (string, func()) {
	const item = `{"create":{"status":403,"error":{"type":"security_exception"}}}`
	server := forbidding(t, "{}", 200, `{"errors":true,"items":[`+item+","+item+","+item+"]}")
	return "elasticsearch://" + server.Listener.Addr().String() + "/events", func() {}
}

func kafkaRight(t *testing.T) (string, func()) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return "kafka://" + cluster.ListenAddrs()[0] + "/events", func() {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "events", Err: kerr.TopicAuthorizationFailed, Count: -1})
	}
}

// listening serves each connection until the test ends.
func listening(t *testing.T, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// postgresRight is a server that takes the first query, which opens the sink, and no further one.
func postgresRight(t *testing.T) (string, func()) {
	addr := listening(t, func(conn net.Conn) {
		b := pgproto3.NewBackend(conn, conn)
		if _, err := b.ReceiveStartupMessage(); err != nil {
			return
		}
		b.Send(&pgproto3.AuthenticationOk{})
		for queries := 0; ; {
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			if b.Flush() != nil {
				return
			}
		receive:
			for {
				m, err := b.Receive()
				if err != nil {
					return
				}
				switch m.(type) {
				case *pgproto3.Describe:
					b.Send(&pgproto3.ParseComplete{})
					b.Send(&pgproto3.ParameterDescription{ParameterOIDs: []uint32{25, 25, 20, 20, 25, 25}})
					b.Send(&pgproto3.NoData{})
				case *pgproto3.Query:
					if queries++; queries == 1 {
						b.Send(&pgproto3.CommandComplete{CommandTag: []byte("COMMIT")})
					} else {
						b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "42501", Message: "permission denied for table events"})
					}
					break receive
				case *pgproto3.Sync:
					break receive
				}
			}
		}
	})
	return "postgres://writer:s3cret@" + addr + "/game?table=events&sslmode=disable", func() {}
}

// natsRight is a server where the user may ask about streams, and publish nothing.
func natsRight(t *testing.T) (string, func()) {
	addr := listening(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, `INFO {"server_id":"a","version":"2.10.0","headers":true,"max_payload":1048576,"proto":1}`+"\r\n")
		subscriptions := map[string]string{} // beginning of the subject to number
		for in := bufio.NewReader(conn); ; {
			line, err := in.ReadString('\n')
			words := strings.Fields(line)
			if err != nil || len(words) == 0 {
				return
			}
			switch last := words[len(words)-1]; strings.ToUpper(words[0]) {
			case "PING":
				_, _ = io.WriteString(conn, "PONG\r\n")
			case "SUB":
				subscriptions[strings.TrimRight(words[1], "*>")] = last
			case "PUB", "HPUB":
				var size int
				_, _ = fmt.Sscan(last, &size)
				if _, err := in.Discard(size + 2); err != nil {
					return
				}
				if !strings.HasPrefix(words[1], "$JS.API.") {
					_, _ = fmt.Fprintf(conn, "-ERR 'Permissions Violation for Publish to %q'\r\n", words[1])
					continue
				}
				for subject, number := range subscriptions {
					if strings.HasPrefix(words[2], subject) {
						_, _ = fmt.Fprintf(conn, "MSG %s %s 2\r\n{}\r\n", words[2], number)
					}
				}
			}
		}
	})
	return "nats://" + addr + "/events?stream=EVENTS", func() {}
}
