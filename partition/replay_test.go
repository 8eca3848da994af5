package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// deadLine is a dead letter as the drain writes it.
func deadLine(name string, seq int64) []byte {
	return fmt.Appendf(nil, `{"namespace":"default","partition":%q,"seq":%d,"ts":1763629675100,"batch":"b","attempt":1,"data":%d,"reason":"rejected"}`+"\n", name, seq, seq)
}

// bury claims a partition once, if it can, and makes every entry dead.
func (s *site) bury(name string) (letters int) {
	claim := s.Claim(s.t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: name, MaxBatches: 1}}, time.Minute)[0]
	if claim.Lease == nil {
		if claim.Err != nil {
			s.t.Error(claim.Err)
		}
		return 0
	}
	l := claim.Lease
	commit := &partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Dead: len(l.Entries)}
	for seq := l.From; seq < l.To; seq++ {
		commit.DeadLetters = append(commit.DeadLetters, deadLine(name, seq))
	}
	if s.Commit(s.t.Context(), []*partition.Commit{commit}); commit.Err != nil {
		s.t.Error(commit.Err)
	}
	return len(l.Entries)
}

// letters are all that are kept.
func (s *site) letters() (all []partition.Letter) {
	s.t.Helper()
	cursor := ""
	for range 100 {
		page, err := s.DeadLetters(s.t.Context(), s.ns, cursor, 500)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, page.Letters...)
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
	s.t.Fatal("the pages of dead letters have no end")
	return nil
}

// buried is a store behind a fault line, with n dead letters.
func buried(t *testing.T, n int) (*site, *redistest.FaultLine) {
	t.Helper()
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	s := open(t, line.URL, func(p *partition.Policy) { p.Linger = 0 })
	for range n {
		if err := s.produce("kart", "x"); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.bury("kart"); got != n {
		t.Fatalf("%d letters, want %d", got, n)
	}
	return s, line
}

// loseReplies makes the line lose the next n replies of a script.
func loseReplies(line *redistest.FaultLine, script *lua.Script, n int) {
	line.SetFor(script.SHA, func() (redistest.Fault, float64) {
		if n--; n >= 0 {
			return redistest.LosesReply, 0
		}
		return redistest.Passes, 0
	})
}

func TestAReplayWithALostReplyCountsOnce(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		script *lua.Script
		lost   int
		err    error
	}{
		"one reply of produce":     {lua.Produce, 1, nil},
		"all replies of produce":   {lua.Produce, 3, partition.ErrUnknown},
		"the reply of the discard": {lua.Discard, 1, partition.ErrUnknown},
		"two replies of produce":   {lua.Produce, 2, nil},
		"none":                     {lua.Discard, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, line := buried(t, 5)
			letters := s.letters()
			loseReplies(line, row.script, row.lost)
			for i, o := range s.Replay(t.Context(), s.ns, letters) {
				if o.ID != letters[i].ID || !errors.Is(o.Err, row.err) {
					t.Errorf("got %+v, want %v", o, row.err)
				}
			}
			s.ledgerIs(partition.Ledger{Accepted: 10, Dead: 5, Buffered: 5}, 0)
			for _, o := range s.Replay(t.Context(), s.ns, letters) {
				if o.Err != nil || !o.Repeated {
					t.Errorf("again: got %+v, want a repeat", o)
				}
			}
			s.ledgerIs(partition.Ledger{Accepted: 10, Dead: 5, Buffered: 5}, 0)
			if left := s.letters(); len(left) != 0 {
				t.Errorf("%d letters are left", len(left))
			}
		})
	}
}

func TestADiscardWithALostReplyIsUnknownAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	s, line := buried(t, 5)
	letters := s.letters()
	loseReplies(line, lua.Discard, 1)
	if removed, err := s.Discard(t.Context(), s.ns, letters[:2]); removed != 0 || !errors.Is(err, partition.ErrUnknown) {
		t.Errorf("got %d, %v; want ErrUnknown", removed, err)
	}
	if removed, err := s.Discard(t.Context(), s.ns, letters); removed != 4 || err != nil {
		t.Errorf("got %d, %v; want the other four: a first call takes one letter", removed, err)
	}
	o, err := s.Overview(t.Context(), s.ns)
	if err != nil || o.DeadLetters != 0 || o.DeadBytes != 0 || o.Ledger.Dead != 5 {
		t.Errorf("got %+v, %v", o, err)
	}
}

// Letters that several replay and discard at once, while entries come and die, count once.
func TestLettersThatAreReplayedAtOnceCountOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), func(p *partition.Policy) { p.Linger, p.Batch, p.Shards = 0, 8, 3 })
	usable(t, s.Store)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working, replaying sync.WaitGroup
	var accepted, dead, discarded atomic.Int64
	name := func() string { return fmt.Sprint("p", rand.IntN(20)) }
	for i := range 100 {
		if err := s.produce(fmt.Sprint("p", i%20), "x"); err != nil {
			t.Fatal(err)
		}
		accepted.Add(1)
		dead.Add(int64(s.bury(fmt.Sprint("p", i%20))))
	}
	working.Go(func() {
		for ctx.Err() == nil {
			if err := s.produce(name(), "x"); err != nil {
				t.Error(err)
				continue
			}
			accepted.Add(1)
		}
	})
	working.Go(func() {
		for ctx.Err() == nil {
			dead.Add(int64(s.bury(name())))
		}
	})
	stored := map[string]int{} // how often a replay was the first for a letter
	var mu sync.Mutex
	for i := range 3 {
		replaying.Go(func() {
			for range seeds(6, 3) {
				page, err := s.DeadLetters(t.Context(), s.ns, fmt.Sprintf("%d.1000000", rand.IntN(3)), 40)
				if err != nil {
					t.Error(err)
				}
				if i == 2 {
					n, err := s.Discard(t.Context(), s.ns, page.Letters[:len(page.Letters)/8])
					if err != nil {
						t.Error(err)
					}
					discarded.Add(int64(n))
					continue
				}
				for _, o := range s.Replay(t.Context(), s.ns, page.Letters) {
					mu.Lock()
					switch {
					case o.Err != nil:
						t.Error(o.Err)
					case !o.Repeated:
						stored[o.ID]++
					}
					mu.Unlock()
				}
			}
		})
	}
	replaying.Wait()
	stop()
	working.Wait()
	for id, n := range stored {
		if n != 1 {
			t.Errorf("letter %s was stored %d times", id, n)
		}
	}
	o, err := s.Overview(t.Context(), s.ns)
	if err != nil {
		t.Fatal(err)
	}
	if o.Ledger.Accepted != accepted.Load()+int64(len(stored)) || len(stored) == 0 || o.Ledger.Dead != dead.Load() {
		t.Errorf("%d were accepted, %d letters replayed, %d died; the ledger says %+v", accepted.Load(), len(stored), dead.Load(), o.Ledger)
	}
	// Each letter is kept, or one replay or discard removed it; a letter may be replayed and then discarded.
	if gone := o.Ledger.Dead - o.DeadLetters; gone > int64(len(stored))+discarded.Load() || gone < int64(len(stored)) {
		t.Errorf("%d letters are gone, %d were replayed, %d discarded", gone, len(stored), discarded.Load())
	}
	s.ledgerIs(o.Ledger, 0)
}

func TestWhatIsNoLetterIsListedAndDiscardedButNotReplayed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	c := server.Client()
	c.RPush(t.Context(), "sw:{default.0}:dead", deadLine("kart", 7), "foreign")
	letters := s.letters()
	if len(letters) != 2 || letters[0].Reason != partition.ReasonUnreadable || string(letters[0].Raw) != "foreign" {
		t.Fatalf("got %+v", letters)
	}
	usable(t, s.Store)
	outcomes := s.Replay(t.Context(), s.ns, letters)
	if !errors.Is(outcomes[0].Err, partition.ErrUnreadable) || outcomes[1].Err != nil {
		t.Errorf("got %+v", outcomes)
	}
	if removed, err := s.Discard(t.Context(), s.ns, letters); removed != 1 || err != nil {
		t.Errorf("got %d, %v; want the one that was not replayed", removed, err)
	}
	c.Set(t.Context(), "sw:{default.0}:dead", "x", 0)
	if _, err := s.DeadLetters(t.Context(), s.ns, "", 1); !errors.Is(err, partition.ErrBroken) {
		t.Errorf("a foreign value: got %v, want ErrBroken", err)
	}
}

// Redis looks for a letter from the end of the list that is nearer to it: of two that are the same,
// the one goes that was listed.
func TestDiscardLooksForALetterFromTheNearerEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	const key = "sw:{default.0}:dead"
	for _, place := range []int{0, 1, 8, 9} {
		server.Client().Del(t.Context(), key)
		server.Client().RPush(t.Context(), key, "same", "same", 2, 3, 4, 5, 6, 7, "same", "same")
		newest := s.letters()
		if removed, err := s.Discard(t.Context(), s.ns, []partition.Letter{newest[9-place]}); removed != 1 || err != nil {
			t.Errorf("place %d: got %d, %v", place, removed, err)
		}
		left := server.Client().LRange(t.Context(), key, 0, -1).Val()
		if old := place < 5; (left[1] == "2") != old || (left[len(left)-2] == "7") == old {
			t.Errorf("place %d: %v are left", place, left)
		}
	}
}

func TestAReplayLeavesTheRestAloneWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	s, line := buried(t, 128)
	letters := s.letters()
	ctx, stop := context.WithCancel(t.Context())
	line.SetFor(lua.Produce.SHA, func() (redistest.Fault, float64) { stop(); return redistest.Passes, 0 })
	replayed := 0
	for _, o := range s.Replay(ctx, s.ns, letters) {
		if o.Err == nil {
			replayed++
		} else if !errors.Is(o.Err, context.Canceled) {
			t.Errorf("got %v", o.Err)
		}
	}
	if left := s.letters(); replayed != 64 || len(left) != 64 {
		t.Errorf("%d were replayed, %d letters are left; want 64 and 64", replayed, len(left))
	}
}

func TestAPageOfLettersIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	for range 20 {
		server.Client().RPush(t.Context(), "sw:{default.0}:dead", strings.Repeat("x", 200<<10))
	}
	page, err := s.DeadLetters(t.Context(), s.ns, "", 500)
	if err != nil || len(page.Letters) != 6 || page.Next == "" {
		t.Errorf("got %d letters of 200 KiB, %q, %v; want 6 and more to come", len(page.Letters), page.Next, err)
	}
	if all := s.letters(); len(all) != 20 {
		t.Errorf("got %d letters in all pages, want 20", len(all))
	}
}
