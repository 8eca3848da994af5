package e2e

import (
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// More connections come than the process may have descriptors: it neither ends
// nor forgets what it has, and serves again when they are gone.
func TestAServerOutOfFileDescriptorsRecovers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	limited := exec.Command("sh", "-c", `ulimit -n 64; exec "$0" "$@"`, binary)
	s := serveBy(t, limited, "--redis", redis.URL(), "--sink", "null:", "--linger", "10ms").ready(200)
	if a := s.post("/v1/default/kart", "application/json", `{"n":1}`); a.status != 200 {
		t.Fatalf("before: %d %s", a.status, a.body)
	}
	var crowd []net.Conn
	for range 150 {
		c, err := net.DialTimeout("tcp", s.data, time.Second)
		if err != nil {
			break // the backlog is full, too
		}
		crowd = append(crowd, c)
	}
	if len(crowd) < 65 {
		t.Fatalf("only %d connections: this proves nothing", len(crowd))
	}
	// Nobody answers the last of them: it was not accepted.
	last := crowd[len(crowd)-1]
	_ = last.SetDeadline(time.Now().Add(500 * time.Millisecond))
	_, _ = last.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"))
	if n, err := last.Read(make([]byte, 1)); err == nil && n > 0 {
		t.Error("150 connections are served with 64 descriptors")
	}
	for _, c := range crowd {
		_ = c.Close()
	}
	eventually(t, "it takes entries again", func() bool {
		return s.post("/v1/default/kart", "application/json", `{"n":2}`).status == 200
	})
	eventually(t, "it is ready", func() bool { s.ready(200); return true })
	eventually(t, "they are delivered", func() bool { l := s.ledger(); return l.Delivered >= 2 && l.Buffered == 0 })
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
