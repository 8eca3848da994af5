package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

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
