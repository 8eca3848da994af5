package partition_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

const (
	drainers  = "sw:{default}:drainers"
	knownSoon = 20 * time.Second
)

// member of the list of drainers that lives until a time after Redis's own.
func member(t *testing.T, c *redis.Client, name string, until time.Duration) {
	t.Helper()
	at := c.Time(t.Context()).Val().Add(until)
	if err := c.ZAdd(t.Context(), drainers, redis.Z{Score: float64(at.UnixMilli()), Member: name}).Err(); err != nil {
		t.Fatal(err)
	}
}

// drains is a process that drains a namespace, as far as other processes see.
func drains(t *testing.T, url string, change func(*partition.Policy)) (s *site, stop func()) {
	t.Helper()
	s = open(t, url, change)
	usable(t, s.Store)
	s.ns.Home().Draining(true)
	j := partition.NewJanitor(s.Store)
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop = func() { _ = j.Stop(t.Context()) }
	t.Cleanup(func() { _ = j.Stop(t.Context()) }) //nolint:usetesting // it may come twice
	return s, stop
}

func TestLiveDrainersShareTheShardsAndTakeOverThoseOfOneThatStops(t *testing.T) {
	t.Parallel()
	const shards = 12
	server := redistest.Start(t)
	var all []*site
	var stops []func()
	for range 3 {
		s, stop := drains(t, server.URL(), func(p *partition.Policy) { p.Shards = shards })
		all, stops = append(all, s), append(stops, stop)
	}
	shared := func(among []*site) func() bool {
		return func() bool {
			for shard := range shards {
				ranks := map[int]bool{}
				for _, s := range among {
					if s.ns.Home().Drainers() != len(among) {
						return false
					}
					ranks[s.ns.Home().Rank(shard)] = true
				}
				if len(ranks) != len(among) || !ranks[0] {
					return false
				}
			}
			return true
		}
	}
	redistest.Until(t, knownSoon, "each shard has a first, a second and a third", shared(all))
	stops[0]()
	redistest.Until(t, knownSoon, "two share the shards", shared(all[1:]))
}

func TestADrainerThatIsDeadButRegisteredDelaysOthersBy100msARank(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := server.Client()
	s, _ := drains(t, server.URL(), func(p *partition.Policy) { p.Linger = 0 })
	redistest.Until(t, knownSoon, "the process is registered", func() bool { return s.ns.Home().Drainers() == 1 })
	register := func() {
		for _, name := range []string{"d:ghost2400097", "d:ghost8648795"} { // before all but one of four million names
			member(t, c, name, 3*time.Second)
		}
	}
	redistest.Until(t, knownSoon, "others come before it", func() bool {
		register()
		return s.ns.Home().Rank(0) == 2
	})
	if err := s.produce("kart", "lap"); err != nil {
		t.Fatal(err)
	}
	due := int64(c.ZScore(t.Context(), "sw:{default.0}:ready", "kart").Val())
	redistest.Until(t, knownSoon, "the partition is listed as due", func() bool {
		register() // they stay registered: only the time helps
		rank := s.ns.Home().Rank(0)
		until := due + int64(rank)*100
		before, _ := s.Now()
		list, total, err := s.Due(t.Context(), s.ns, 0, 0, 10)
		after, _ := s.Now()
		switch {
		case err != nil || len(list) != 1:
			t.Fatalf("got %v %v", list, err)
		case rank != s.ns.Home().Rank(0): // a ghost lapsed meanwhile: it says nothing
		case total == 0 && before >= until:
			t.Errorf("rank %d: not listed %d ms after it was due", rank, before-due)
		case total == 0 && (list[0].Due != until || !list[0].Held):
			t.Errorf("rank %d: left to others until %d ms after it was due: %v", rank, list[0].Due-due, list[0].Held)
		case total == 1 && after < until:
			t.Errorf("rank %d: listed %d ms after it was due", rank, after-due)
		}
		return total == 1
	})
}

func TestAnEntryByAnotherClockNeitherLivesForEverNorStays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := server.Client()
	s, _ := drains(t, server.URL(), nil)
	member(t, c, "d:ahead", time.Hour) // of before Redis's clock went back
	member(t, c, "d:behind", -time.Hour)
	redistest.Until(t, knownSoon, "both are removed", func() bool {
		_, ahead := c.ZScore(t.Context(), drainers, "d:ahead").Result()
		_, behind := c.ZScore(t.Context(), drainers, "d:behind").Result()
		return errors.Is(ahead, redis.Nil) && errors.Is(behind, redis.Nil)
	})
	redistest.Until(t, knownSoon, "the process is alone", func() bool { return s.ns.Home().Drainers() == 1 && s.ns.Home().Rank(0) == 0 })
}

func TestAForeignValueAsTheListOfDrainersIsAsIfThereWereNoList(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client().Set(t.Context(), drainers, "foreign", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s, _ := drains(t, server.URL(), func(p *partition.Policy) { p.Linger = 0 })
	if err := s.produce("kart", "lap"); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, knownSoon, "the partition is due", func() bool {
		_, total, err := s.Due(t.Context(), s.ns, 0, 0, 10)
		return err == nil && total == 1
	})
	if n := s.ns.Home().Drainers(); n != 0 {
		t.Errorf("%d drainers are known, want none", n)
	}
}
