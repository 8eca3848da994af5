package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

var holdOn = partition.Pause{By: "alice", Reason: "hold on"}

// operate pauses and resumes at random, whatever becomes of each call, until ctx ends.
// Then it resumes everything.
func (s *site) operate(ctx context.Context, partitions int) (pauses int) {
	roll := rand.New(rand.NewPCG(1, 2))
	some := func() string {
		if roll.IntN(4) == 0 {
			return ""
		}
		return fmt.Sprint("p", roll.IntN(partitions))
	}
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		if s.Pause(s.t.Context(), s.ns, some(), holdOn) == nil {
			pauses++
		}
		for range 3 {
			_, _ = s.Resume(s.t.Context(), s.ns, some())
		}
	}
	for i := -1; i < partitions; i++ {
		name := ""
		if i >= 0 {
			name = fmt.Sprint("p", i)
		}
		redistest.Until(s.t, 20*time.Second, "it is resumed", func() bool {
			_, err := s.Resume(s.t.Context(), s.ns, name)
			return err == nil
		})
	}
	return pauses
}

// The scripts of a pause ran and their replies are lost: repeated, they say the same.
func TestAPauseWithALostReplyIsRepeated(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := startProxy(t, redistest.FreeAddr(t), server.Addr)
	s := open(t, p.url, func(p *partition.Policy) { p.Linger, p.Shards = 0, 3 })
	usable(t, s.Store)
	if err := s.produce("kart", "x"); err != nil {
		t.Fatal(err)
	}
	var since []time.Time
	for _, name := range []string{"kart", ""} {
		p.lose.Store(1)
		if err := s.Pause(t.Context(), s.ns, name, holdOn); !errors.Is(err, partition.ErrUnknown) {
			t.Fatalf("pause %q: got %v, want ErrUnknown", name, err)
		}
		list, err := s.Pauses(t.Context(), s.ns)
		if err != nil || len(list) == 0 {
			t.Fatalf("pauses %v (%v)", list, err)
		}
		since = append(since, list[0].Since)
		if err := s.Pause(t.Context(), s.ns, name, holdOn); err != nil {
			t.Fatalf("pause %q again: %v", name, err)
		}
	}
	list, err := s.Pauses(t.Context(), s.ns)
	if want := fmt.Sprint([]partition.PausedPart{
		{Pause: partition.Pause{Since: since[1], By: "alice", Reason: "hold on"}},
		{Partition: "kart", Pause: partition.Pause{Since: since[0], By: "alice", Reason: "hold on"}},
	}); fmt.Sprint(list) != want || err != nil {
		t.Errorf("pauses %v (%v), want %v", list, err, want)
	}
	for _, name := range []string{"", "kart"} {
		p.lose.Store(1)
		if _, err := s.Resume(t.Context(), s.ns, name); !errors.Is(err, partition.ErrUnknown) {
			t.Fatalf("resume %q: got %v, want ErrUnknown", name, err)
		}
		if _, err := s.Resume(t.Context(), s.ns, name); err != nil {
			t.Fatalf("resume %q again: %v", name, err)
		}
	}
	if got := p.lost.Load(); got != 4 {
		t.Errorf("%d replies were lost, want 4: this proves nothing", got)
	}
	claim := s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: "kart", MaxBatches: 1}}, time.Minute)[0]
	if claim.Lease == nil {
		t.Errorf("no lease after it was resumed: %v %v", claim.Paused, claim.Err)
	}
	o, err := s.Overview(t.Context(), s.ns)
	if err != nil || o.Paused != nil || o.PausedPartitions != 0 {
		t.Errorf("paused %v and %d partitions (%v), want none", o.Paused, o.PausedPartitions, err)
	}
}

func TestAPauseIsRejectedWhileTheStoreIsUnreachable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	usable(t, s.Store)
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, err := range []error{s.Pause(ctx, s.ns, "", holdOn), second(s.Resume(ctx, s.ns, "")), second(s.Pauses(ctx, s.ns))} {
		if !errors.Is(err, partition.ErrUnavailable) && !errors.Is(err, partition.ErrUnknown) {
			t.Errorf("got %v, want an error of the store", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// What something else wrote into the field of a pause pauses, and is shown without its
// particulars.
func TestAForeignPauseIsShown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	c := server.Client()
	for _, text := range []string{"", "foreign", "12 x", "x {}", "99999999999999999999 {}"} {
		c.HSet(t.Context(), "sw:{default.0}:ledger", "pause:*", text, "paused", "many")
		list, err := s.Pauses(t.Context(), s.ns)
		if err != nil || len(list) != 1 || list[0] != (partition.PausedPart{}) {
			t.Errorf("%q: got %+v (%v)", text, list, err)
		}
		o, err := s.Overview(t.Context(), s.ns)
		if err != nil || o.Paused == nil || o.PausedPartitions != 0 {
			t.Errorf("%q: overview %+v (%v)", text, o, err)
		}
	}
}
