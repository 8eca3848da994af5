package partition_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// While one master of three is frozen the store is ready, because the others work. It
// is not ready when none is left, and not for a process that has never read all
// ledgers. The janitor continues with the masters that are reachable.
func TestTheStoreIsReadyWhileAnyShardCanBeReached(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 3)
	policy := func(p *partition.Policy) { p.Shards = 12 }
	s := open(t, servers.URL(), policy)
	redistest.Until(t, 10*time.Second, "the store can be used", func() bool { _, err := s.Check(t.Context()); return err == nil })
	names := make([]string, 3)
	for i := range 100 {
		name := fmt.Sprint("p", i)
		names[servers.MasterOf(fmt.Sprintf("sw:{default.%d}:ready", s.ns.ShardOf(name)))] = name
	}
	thaw := func(i int) {
		servers.Masters[i].Signal(syscall.SIGCONT)
	}
	check := func(s *site) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // as readiness gives it
		defer cancel()
		_, err := s.Check(ctx)
		return err
	}
	janitors(t, 1, servers.URL(), policy)
	servers.Masters[0].Signal(syscall.SIGSTOP)
	t.Cleanup(func() { thaw(0) })
	for range 5 { // before and after the breakers open
		if err := check(s); err != nil {
			t.Errorf("one of three is frozen: %v", err)
		}
	}
	if err := check(open(t, servers.URL(), policy)); !errors.Is(err, partition.ErrUnavailable) && !errors.Is(err, partition.ErrUnknown) {
		t.Errorf("a new process: got %v, want none that passes", err)
	}
	// The janitor finds lists on the other masters that the active set does not know.
	// If it waited for each frozen shard, that would take a minute.
	end := time.Now().Add(30 * time.Second)
	for i := range 5 {
		name := names[1+i%2]
		prefix := fmt.Sprintf("sw:{default.%d}:", s.ns.ShardOf(name))
		c := servers.Masters[1+i%2].Client()
		if err := c.RPush(t.Context(), prefix+"q:"+name, entry("x")).Err(); err != nil {
			t.Fatal(err)
		}
		redistest.Until(t, time.Until(end), "the janitor finds the list", func() bool { return c.ZRem(t.Context(), prefix+"ready", name).Val() == 1 })
		if err := c.Del(t.Context(), prefix+"q:"+name, prefix+"m:"+name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i < 3; i++ {
		servers.Masters[i].Signal(syscall.SIGSTOP)
		t.Cleanup(func() { thaw(i) })
	}
	redistest.Until(t, 20*time.Second, "it cannot be used", func() bool { return check(s) != nil })
	for i := range 3 {
		thaw(i)
	}
	redistest.Until(t, 20*time.Second, "it can be used again", func() bool { return check(s) == nil })
}
