package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is what the sentinels of StartSentinel call their master.
const MasterName = "spill"

// healthy is how long a group of servers may take to find each other.
const healthy = 2 * time.Minute

// Sentinel is a primary, its replica and three sentinels that watch them.
type Sentinel struct {
	Primary, Replica *Server
	Sentinels        []*Server
}

// StartSentinel starts the five and waits until the sentinels could fail over.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	s := &Sentinel{Primary: Start(tb)}
	host, port, _ := net.SplitHostPort(s.Primary.Addr)
	s.Replica = Start(tb, "--replicaof", host+" "+port)
	replica := s.Replica.Client()
	Until(tb, healthy, "the replica is in sync", func() bool {
		return info(replica, "replication")["master_link_status"] == "up"
	})
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(tb, host, port))
	}
	for _, sentinel := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
		tb.Cleanup(func() { _ = c.Close() })
		Until(tb, healthy, "the sentinels know each other and the replica", func() bool {
			m, err := c.Master(context.Background(), MasterName).Result()
			return err == nil && m["num-slaves"] == "1" && m["num-other-sentinels"] == "2"
		})
	}
	return s
}

func startSentinel(tb testing.TB, host, port string) *Server {
	tb.Helper()
	addr, dir := FreeAddr(tb), tb.TempDir()
	_, own, _ := net.SplitHostPort(addr)
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf(`port %s
bind 127.0.0.1
dir %s
logfile %s
sentinel monitor %s %s %s 2
sentinel down-after-milliseconds %[4]s 60000
sentinel failover-timeout %[4]s 3000
`, own, dir, filepath.Join(dir, "redis.log"), MasterName, host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return run(&Server{Addr: addr, Dir: dir, tb: tb, args: []string{conf, "--sentinel"}})
}

// StartLoneSentinel starts a sentinel whose master, MasterName, does not answer.
func StartLoneSentinel(tb testing.TB) *Server {
	tb.Helper()
	host, port, _ := net.SplitHostPort(FreeAddr(tb))
	return startSentinel(tb, host, port)
}

// URL is the address in the form partition.Config wants.
func (s *Sentinel) URL() string {
	return "redis-sentinel://" + s.Sentinels[0].Addr + "," + s.Sentinels[1].Addr + "," + s.Sentinels[2].Addr + "/" + MasterName
}

// Hasty makes the sentinels promote the replica once the primary has been silent for half a second. They begin patient:
// on a busy machine a server is silent for a second, and who expects no failover would see one.
func (s *Sentinel) Hasty(tb testing.TB) {
	tb.Helper()
	for _, sentinel := range s.Sentinels {
		c := sentinel.Client()
		must(tb, c.Do(context.Background(), "sentinel", "set", MasterName, "down-after-milliseconds", 500).Err())
		// A sentinel that stood still for 2 s would do nothing for the next 30 s.
		must(tb, c.Do(context.Background(), "sentinel", "debug", "tilt-period", 1000).Err())
	}
}

// Failover kills the primary and waits until the replica has its place.
func (s *Sentinel) Failover(tb testing.TB) {
	tb.Helper()
	s.Hasty(tb)
	s.Primary.Kill()
	c := s.Replica.Client()
	Until(tb, healthy, "the replica is promoted", func() bool { return info(c, "replication")["role"] == "master" })
}
