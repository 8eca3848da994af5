package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

func TestAConnectionFloodMakesRoomWhileOthersAreServed(t *testing.T) {
	t.Parallel()
	const bound, flood = 20, 200
	s := serve(t, "--redis", redistest.Start(t).URL(), "--sink", "null:", "--max-conns", strconv.Itoa(bound)).ready(200)
	good := s.client("")
	served := 0
	serveGood := func() {
		t.Helper()
		if a := good.send("/v1/default/good", "x"); a.status != 200 {
			t.Errorf("a client from before the flood gets %d %s", a.status, a.body)
		}
		served++
	}
	serveGood()

	var idle []net.Conn
	for range flood {
		c, err := net.Dial("tcp", s.data)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	// The oldest of those that never were admitted went for the newest.
	const evicted = flood - (bound - 1)
	eventually(t, "the server has taken all connections", func() bool { return s.metric("spillway_ingest_connections_evicted_total") >= evicted })
	open := 0
	for i, c := range idle {
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
			if open++; resp.StatusCode != 200 || i <= flood-bound {
				t.Errorf("connection %d: got %d", i, resp.StatusCode)
			}
		}
		serveGood()
	}
	if want := bound - 1; open != want {
		t.Errorf("%d connections are open, want %d", open, want)
	}
	if n := s.metric("spillway_ingest_connections"); n != bound {
		t.Errorf("%d connections are counted as open, want %d", n, bound)
	}
	if n := s.metric("spillway_ingest_connections_evicted_total"); n != evicted {
		t.Errorf("%d connections are counted as evicted, want %d", n, evicted)
	}
	for _, c := range idle {
		_ = c.Close()
	}
	eventually(t, "new clients are served again", func() bool { return s.client("").send("/v1/default/good", "x").status == 200 })
	served++
	if l := s.ledger(); l.Accepted != int64(served) {
		t.Errorf("%d entries are accepted, clients got %d acknowledged", l.Accepted, served)
	}
}

func TestPartitionFloodIsRejectedWhileOthersAreServed(t *testing.T) {
	t.Parallel()
	const bound, flood = 50, 400
	redis := redistest.Start(t)
	s := serve(t, "--redis", redis.URL(), "--role", "ingest", "--max-partitions", strconv.Itoa(bound)).ready(200)
	good, bad := s.client(""), s.client("")
	var acked int64
	send := func(v *client, name string) answer {
		a := v.send("/v1/default/"+name, "x")
		acked += int64(a.Accepted)
		return a
	}
	send(good, "good")
	accepted := 0
	for i := range flood {
		switch a := send(bad, fmt.Sprintf("flood-%d", i)); {
		case a.status == 200:
			accepted++
		case a.status != 429 || a.Error != "too_many_partitions" || a.retryAfter == "" || !strings.Contains(a.body, `"scope":"namespace"`):
			t.Fatalf("got %d %s", a.status, a.body)
		}
		if a := send(good, "good"); a.status != 200 {
			t.Fatalf("a partition from before the flood gets %d %s", a.status, a.body)
		}
	}
	if accepted != bound-1 {
		t.Errorf("%d partitions of the flood are accepted, want %d", accepted, bound-1)
	}
	if n := s.metric(`spillway_ingest_rejections_total{error="too_many_partitions"}`); n != int64(flood-accepted) {
		t.Errorf("%d rejections are counted, want %d", n, flood-accepted)
	}
	if l := s.ledger(); l.Accepted != acked {
		t.Errorf("%d entries are accepted, clients got %d acknowledged", l.Accepted, acked)
	}
	drainer := serve(t, "--redis", redis.URL(), "--role", "drain", "--sink", "null:", "--linger", "10ms").ready(200)
	eventually(t, "a new partition is accepted again", func() bool { return send(good, "late").status == 200 })
	eventually(t, "all is drained", func() bool { return drainer.ledger().Buffered == 0 })
	if l := drainer.ledger(); l.Delivered != acked || l.Accepted != acked {
		t.Errorf("got %+v, want %d accepted and delivered", l, acked)
	}
}

func TestPartitionFloodOfOneTokenLeavesRoomForAnother(t *testing.T) {
	t.Parallel()
	hash := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	text := fmt.Sprintf("namespaces:\n  default:\n    max_partitions: 100\n    tokens:\n      - {hash: %q, name: noisy, new_partitions: 30/h}\n      - %q\n", hash("noisy"), hash("good"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--redis", redistest.Start(t).URL(), "--role", "ingest", "--config", file).ready(200)
	noisy, good := s.client("noisy"), s.client("good")
	for i := range 200 {
		a := noisy.send(fmt.Sprintf("/v1/default/flood-%d", i), "x")
		if want := i < 30; (a.status == 200) != want || !want && (a.status != 429 || !strings.Contains(a.body, `"scope":"token"`)) {
			t.Fatalf("partition %d: got %d %s", i, a.status, a.body)
		}
		if i%4 == 0 {
			if a := good.send(fmt.Sprintf("/v1/default/good-%d", i), "x"); a.status != 200 {
				t.Fatalf("the other token's partition gets %d %s", a.status, a.body)
			}
		}
	}
	if n := s.metric(`spillway_ingest_token_limited_total{error="too_many_partitions",namespace="default",token="noisy"}`); n != 170 {
		t.Errorf("%d rejections are counted, want 170", n)
	}
}

func TestByteFloodDuringAStoreStallIsRejectedAndTheServiceRecovers(t *testing.T) {
	t.Parallel()
	const bound = 3 << 20
	redis := redistest.Start(t)
	s := serve(t, "--redis", redis.URL(), "--sink", "null:", "--max-inflight-bytes", "3MiB",
		"--max-body", "256KiB", "--max-decompressed", "256KiB", "--max-entry", "256KiB").ready(200)
	if a := s.client("").send("/v1/default/good", "x"); a.status != 200 {
		t.Fatalf("before the flood: %d %s", a.status, a.body)
	}
	acked, unknown := int64(1), atomic.Int64{}

	redis.Signal(syscall.SIGSTOP)
	body := strings.Repeat("x", 200<<10)
	var flood sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	done := make(chan struct{})
	for i := range 40 {
		flood.Go(func() {
			v := s.client("")
			for {
				select {
				case <-done:
					return
				default:
				}
				a := v.send(fmt.Sprintf("/v1/default/p%d", i), body)
				code := a.Error
				switch {
				case a.status == 200:
					code = "ok"
				case a.status != 503 || a.retryAfter == "":
					t.Errorf("got %d, Retry-After %q, %.200s", a.status, a.retryAfter, a.body)
					return
				case a.Outcome == "unknown":
					unknown.Add(1)
				}
				mu.Lock()
				codes[code]++
				acked += int64(a.Accepted)
				mu.Unlock()
			}
		})
	}
	seen := func(code string) int {
		mu.Lock()
		defer mu.Unlock()
		return codes[code]
	}
	bounded := func() {
		t.Helper()
		if n := s.metric("spillway_ingest_inflight_bytes"); n > bound {
			t.Errorf("%d bytes are in flight, want at most %d", n, bound)
		}
	}
	eventually(t, "requests over the budget are rejected", func() bool { bounded(); return seen("overloaded") > 100 })
	eventually(t, "requests within the budget are answered too", func() bool { bounded(); return unknown.Load() > 0 })
	redis.Signal(syscall.SIGCONT)
	before := seen("ok")
	eventually(t, "it accepts entries again during the flood", func() bool { bounded(); return seen("ok") > before+40 })
	close(done)
	flood.Wait()
	eventually(t, "nothing is in flight", func() bool { return s.metric("spillway_ingest_inflight_bytes") == 0 })
	if a := s.client("").send("/v1/default/good", "x"); a.status != 200 {
		t.Errorf("after the flood: %d %s", a.status, a.body)
	}
	acked++
	eventually(t, "all is drained", func() bool { return s.ledger().Buffered == 0 })
	if l := s.ledger(); l.Accepted < acked || l.Accepted > acked+unknown.Load() {
		t.Errorf("%d entries are accepted, want %d acknowledged and up to %d more with an unknown outcome", l.Accepted, acked, unknown.Load())
	}
	if n := s.metric(`spillway_ingest_rejections_total{error="overloaded"}`); n != int64(seen("overloaded")) {
		t.Errorf("%d rejections are counted, clients saw %d", n, seen("overloaded"))
	}
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
		c, err := net.DialTimeout("tcp", s.data, time.Second)
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

// resident is the memory of the process, in bytes.
func (s *server) resident() int64 {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	var kib int64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		s.t.Fatal(err)
	}
	return kib << 10
}

func TestAnnouncedBodiesThatDoNotArriveTakeNoMemory(t *testing.T) {
	t.Parallel()
	const budget, conns = 20 << 20, 1000
	s := serve(t, "--redis", redistest.Start(t).URL(), "--sink", "null:", "--max-inflight-bytes", "20MiB").ready(200)
	honest := s.client("")
	serves := func() {
		t.Helper()
		if a := honest.send("/v1/default/good", "x"); a.status != 200 {
			t.Errorf("an honest client gets %d %s", a.status, a.body)
		}
	}
	serves()
	before := s.resident()

	// A connection may use 64 KiB outside of the budget (ingest.Config.MaxMemory).
	// The rest is for garbage that is not collected yet.
	const limit = 2*budget + conns*64<<10 + 64<<20
	bounded := func(when string) {
		t.Helper()
		if grown := s.resident() - before; grown > limit {
			t.Errorf("%s: the process has grown by %d MiB, want at most %d", when, grown>>20, limit>>20)
		}
		if n := s.metric("spillway_ingest_inflight_bytes"); n > budget {
			t.Errorf("%s: %d bytes are in flight, want at most %d", when, n, budget)
		}
	}
	for _, sent := range []int{1, 20_000} {
		var all []net.Conn
		for range conns {
			c, err := net.Dial("tcp", s.data)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = io.WriteString(c, "POST /v1/default/p HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n"+strings.Repeat("x", sent))
			all = append(all, c)
		}
		eventually(t, "all are connected", func() bool { return s.metric("spillway_ingest_connections") > conns/2 || sent > 1 })
		bounded(fmt.Sprintf("%d bytes of each body have come", sent))
		serves()
		if n := s.metric("spillway_ingest_inflight_bytes"); n > budget/2 || sent > 1 && n < budget/4 {
			t.Errorf("%d bytes are reserved for announced bodies, want up to half of %d", n, budget)
		}
		for _, c := range all {
			c.Close()
		}
		eventually(t, "nothing is in flight", func() bool { return s.metric("spillway_ingest_inflight_bytes") == 0 })
	}
	if n := s.metric(`spillway_ingest_rejections_total{error="overloaded"}`); n == 0 {
		t.Error("no request was rejected, so the budget was not reached")
	}
	serves()
}
