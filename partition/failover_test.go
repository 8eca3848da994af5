package partition_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// failover produces while fail kills the primary. Produces must work again soon
// after, and until then return only ErrUnavailable and ErrUnknown.
func failover(t *testing.T, s *site, names []string, fail func()) {
	t.Helper()
	for _, name := range names {
		if err := s.produce(name, "before"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	stop := make(chan struct{})
	var producing sync.WaitGroup
	var mu sync.Mutex
	acked := map[string]time.Time{}
	seen := map[string]int{}
	for _, name := range names {
		producing.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				began := time.Now()
				err := s.produceSoon(name, "during")
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("a produce with 1s took %v", took)
				}
				mu.Lock()
				switch {
				case err == nil:
					acked[name] = time.Now()
				case errors.Is(err, partition.ErrUnknown):
					seen["unknown"]++
				case errors.Is(err, partition.ErrUnavailable):
					seen["unavailable"]++
				default:
					t.Errorf("%s: got %v, want ErrUnavailable or ErrUnknown", name, err)
				}
				mu.Unlock()
			}
		})
	}
	killed := time.Now()
	fail()
	promoted := time.Now()
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			if !acked[name].After(promoted) {
				return false
			}
		}
		return true
	}
	redistest.Until(t, 10*time.Second, "entries flow after the failover", all)
	t.Logf("promoted after %v, all partitions back after %v, meanwhile %v", promoted.Sub(killed), time.Since(killed), seen)
	close(stop)
	producing.Wait()
	if seen["unavailable"] == 0 {
		t.Error("nothing was rejected: this proves nothing")
	}
	// Drainers, too.
	redistest.Until(t, 10*time.Second, "drainers can work", func() bool {
		_, err := s.Check(t.Context())
		_, _, due := s.Due(t.Context(), s.ns, s.ns.ShardOf(names[0]), 0, 10)
		return err == nil && due == nil
	})
	if residual, err := s.Audit(t.Context(), s.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
}

func TestSentinelFailoverIsSurvivedWithoutARestart(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	failover(t, open(t, servers.URL(), nil), []string{"kart"}, func() { servers.Failover(t) })
}

func TestClusterFailoverIsSurvivedWithoutARestart(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	s := open(t, servers.URL(), func(p *partition.Policy) { p.Shards = 6 })
	// One partition a shard, so that every master has some.
	var names []string
	for shard := range 6 {
		for i := 0; len(names) == shard; i++ {
			if name := fmt.Sprint("p", i); s.ns.ShardOf(name) == shard {
				names = append(names, name)
			}
		}
	}
	failover(t, s, names, func() { servers.Failover(t, "sw:{default.0}:ready") })
}
