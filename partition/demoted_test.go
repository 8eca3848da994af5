package partition_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// name is an address that moves from one server to another, as a name does. Connections that are there stay.
type name struct {
	addr string
	at   atomic.Pointer[string]
}

func newName(t *testing.T, target string) *name {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &name{addr: l.Addr().String()}
	n.at.Store(&target)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", *n.at.Load())
			if err != nil {
				_ = client.Close()
				continue
			}
			serving.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			serving.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
		}
	})
	return n
}

// A primary that became a replica lives on without syncing, and its name has moved: nothing of ours stays there, and
// what it lacks is not taken for lost.
func TestNothingStaysAtAPrimaryThatBecameAReplica(t *testing.T) {
	t.Parallel()
	old := redistest.Start(t)
	host, port, _ := net.SplitHostPort(old.Addr)
	heir := redistest.Start(t, "--replicaof", host+" "+port)
	toOld, toHeir := old.Client(), heir.Client()
	redistest.Until(t, patience, "the replica is in sync", func() bool {
		return strings.Contains(toHeir.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	name := newName(t, old.Addr)
	s := attend(t, "redis://"+name.addr, nil)
	usable(t, s.Store)
	everywhere := func() (claimed int) { // connections of both pools
		var running sync.WaitGroup
		var mu sync.Mutex
		for i := range 12 {
			running.Go(func() {
				_ = s.produce(fmt.Sprint("p", i), "x")
				c := s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: "new", MaxBatches: 1}}, time.Minute)[0]
				mu.Lock()
				defer mu.Unlock()
				if c.Lease != nil {
					claimed++
				}
			})
		}
		running.Wait()
		return claimed
	}
	everywhere()
	ours := func() int {
		clients := toOld.ClientList(t.Context()).Val()
		return strings.Count(clients, "\n") - strings.Count(clients, "cmd=client") // this client's own
	}
	if ours() < 4 {
		t.Fatalf("%d connections before: this proves nothing", ours())
	}
	redistest.Until(t, patience, "the replica has it all", func() bool {
		text := func(info string) string {
			_, at, _ := strings.Cut(info, "master_repl_offset:")
			at, _, _ = strings.Cut(at, "\r")
			return at
		}
		return text(toOld.Info(t.Context(), "replication").Val()) == text(toHeir.Info(t.Context(), "replication").Val())
	})

	toHeir.Do(t.Context(), "replicaof", "no", "one")
	name.at.Store(&heir.Addr)
	_, dead, _ := net.SplitHostPort(redistest.FreeAddr(t))
	toOld.Do(t.Context(), "replicaof", "127.0.0.1", dead)
	toOld.Do(t.Context(), "client", "kill", "type", "replica")

	stored := 0
	redistest.Until(t, patience, "20 entries are stored at the new primary", func() bool {
		if s.produce("new", "x") == nil {
			stored++
		}
		return stored == 20
	})
	redistest.Until(t, patience, "no connection stays after the checks that a service makes", func() bool {
		_, _ = s.Check(t.Context())
		return ours() == 0
	})
	redistest.Until(t, patience, "a claim finds what the new primary has", func() bool { return everywhere() > 0 })
	if n := s.rolledBack(); n != 0 {
		t.Errorf("%d entries count as rolled back, none is", n)
	}
}
