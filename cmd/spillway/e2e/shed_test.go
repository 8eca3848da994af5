package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// metric is the value of a series at /metrics, 0 without one.
func (s *server) metric(series string) int64 {
	s.t.Helper()
	resp, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), series+" "); found {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return int64(n)
		}
	}
	return 0
}

// client has connections of its own.
type client struct {
	*http.Client
	server *server
	token  string
}

func (s *server) client(token string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &client{&http.Client{Transport: transport, Timeout: 60 * time.Second}, s, token}
}

// send posts one body. The status 0 stands for no answer.
func (v *client) send(path, body string) (a answer) {
	req, err := http.NewRequest(http.MethodPost, "http://"+v.server.data+path, strings.NewReader(body))
	if err != nil {
		v.server.t.Error(err)
		return a
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	if v.token != "" {
		req.Header.Set("Authorization", "Bearer "+v.token)
	}
	resp, err := v.Do(req)
	if err != nil {
		return a
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a
	}
	_ = json.Unmarshal(text, &a)
	a.status, a.retryAfter, a.body = resp.StatusCode, resp.Header.Get("Retry-After"), string(text)
	return a
}

// More clients connect than the process has file descriptors. It keeps running, and
// serves again when they are gone.
func TestAServerOutOfFileDescriptorsRecovers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	limited := exec.Command("sh", "-c", `ulimit -n 64; exec "$0" "$@"`, binary)
	s := serveBy(t, limited, "--redis", redis.URL(), "--sink", "null:", "--linger", "10ms").ready(200)
	if a := s.post("/v1/default/kart", "application/json", `{"n":1}`); a.status != 200 {
		t.Fatalf("before: %d %s", a.status, a.body)
	}
	var conns []net.Conn
	for range 150 {
		c, err := net.DialTimeout("tcp", s.data, 30*time.Second)
		if err != nil {
			break // the listen backlog is full as well
		}
		conns = append(conns, c)
	}
	if len(conns) < 65 {
		t.Fatalf("only %d connections: too few to use up the descriptors", len(conns))
	}
	// The last one gets no answer: it was not accepted.
	last := conns[len(conns)-1]
	_ = last.SetDeadline(time.Now().Add(500 * time.Millisecond))
	_, _ = last.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"))
	if n, err := last.Read(make([]byte, 1)); err == nil && n > 0 {
		t.Error("150 connections are served with 64 descriptors")
	}
	for _, c := range conns {
		_ = c.Close()
	}
	eventually(t, "it accepts entries again", func() bool {
		return s.post("/v1/default/kart", "application/json", `{"n":2}`).status == 200
	})
	eventually(t, "it is ready", func() bool { s.ready(200); return true })
	eventually(t, "the entries are delivered", func() bool { l := s.ledger(); return l.Delivered >= 2 && l.Buffered == 0 })
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
