package layout_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua"
	lualayout "github.com/spillway-io/spillway/lua/layout"
)

func TestFenceRisesAndKeepsItsMark(t *testing.T) {
	on(t, func(s shard) {
		before := time.UnixMilli(s.now()).UnixMicro()
		s.set("lost", 3)
		s.answers(s.fence(1, 1, 0, ""), 0, 0, "")
		if s.field("fence") != "" || s.field("format") != "" {
			s.Errorf("fenced by its own layout: %s", s.all())
		}
		first := s.fence(1, 7, 1, "record 1")
		mark := first[1].(int64)
		if first[0] != int64(7) || mark < before+1<<36 || mark > before+1<<36+60e6 || first[2] != "" {
			s.Errorf("got %v", first)
		}
		s.answers(s.fence(1, 9, 2, "record 2"), 9, mark, "record 1")
		s.answers(s.fence(1, 7, 1, "record 1"), 9, mark, "record 2")
		s.answers(s.fence(1, 7, 1, "record 1"), 9, mark, "record 2")
		for field, want := range map[string]string{"fence": "9", "mark": strconv.FormatInt(mark, 10), "version": "2", "record": "record 2",
			"lost": "moved", "lost_count": "3", "format": "4", "kind": "buffer"} {
			if got := s.field(field); got != want {
				s.Errorf("%s: got %q, want %q", field, got, want)
			}
		}
	})
}

func TestFenceBeginsAboveAllSequences(t *testing.T) {
	on(t, func(s shard) {
		s.set("high_water", int64(1)<<52)
		s.answers(s.fence(1, 2, 1, "r")[:2], 2, int64(1)<<52+1<<36)
	})
}

func TestFenceOfALaterLayoutTellsOldProgramsNothing(t *testing.T) {
	on(t, func(s shard) {
		s.fence(5, 6, 1, "r")
		if s.field("format") != "" || s.field("lost") != "" || s.field("fence") != "6" {
			s.Error(s.all())
		}
	})
}

func TestAShardCountsWhatItLostUnderAnotherNameOnceItIsFenced(t *testing.T) {
	on(t, func(s shard) {
		s.produce("a", 1, 0)
		s.set("lost", 2, "accepted", 3)
		s.fence(1, 2, 1, "r")
		ctx := context.Background()
		s.c.Del(ctx, s.prefix+"q:a")
		s.run(lua.Repair, []string{s.ready, s.ledger, s.prefix + "q:a", s.prefix + "m:a"}, 100_000, 1000, "a")
		if s.field("lost") != "moved" || s.field("lost_count") != "3" {
			s.Error(s.all())
		}
	})
}

func TestAFencedShardTakesNothing(t *testing.T) {
	on(t, func(s shard) {
		s.answers(s.produce("a", 1, 0), 1, 1, 0, 1)
		s.fence(1, 2, 1, "the record")
		before := s.all()
		s.answers(s.produce("a", 1, 0), -1, "the record")
		s.answers(s.produce("b", 1, 0), -1, "the record")
		if s.all() != before {
			s.Errorf("it wrote: %s", s.all())
		}
		s.answers(s.produce("a", 2, 0), 1, 1, 0, 2) // whoever knows its layout as the newest
	})
}

func TestANewPartitionBeginsAtTheFloorAndTheNextFenceKnows(t *testing.T) {
	on(t, func(s shard) {
		floor := int64(1) << 51
		s.produce("a", 3, floor)
		if head := s.c.HGet(context.Background(), s.prefix+"m:a", "head").Val(); head != strconv.FormatInt(floor, 10) {
			s.Errorf("it begins at %q", head)
		}
		if mark := s.fence(3, 4, 1, "r")[1].(int64); mark < floor+1<<36 {
			s.Errorf("the mark is %d", mark)
		}
	})
}

func TestGoneTellsOfFencedShardsOnly(t *testing.T) {
	on(t, func(s shard) {
		s.answers(s.gone(1, "a"), -1)
		s.set("fence", 1)
		s.answers(s.gone(1, "a"), -1)
	})
}

func TestGoneTellsWhenAPartitionIsDue(t *testing.T) {
	on(t, func(s shard) {
		s.produce("a", 1, 0)
		later := s.now() + 3_600_000
		s.due("a", later)
		s.fence(1, 2, 1, "r")
		s.answers(s.gone(1, "a", "b", "a"), 1, later, 0, later)
		s.due("a", 0)
		s.answers(s.gone(1, "a"), 1, 1)
	})
}

func TestGoneSeesWhatTheActiveSetLost(t *testing.T) {
	on(t, func(s shard) {
		s.produce("a", 1, 0)
		s.fence(1, 2, 1, "r")
		s.c.Del(context.Background(), s.ready)
		got := s.gone(1, "a", "b")
		if got[0] != int64(1) || got[1].(int64) < s.now()-60_000 || got[2] != int64(0) {
			s.Errorf("got %v", got)
		}
	})
}

func TestAForeignListIsNotGone(t *testing.T) {
	on(t, func(s shard) {
		s.c.Set(context.Background(), s.prefix+"q:a", "foreign", 0)
		s.fence(1, 2, 1, "r")
		if got := s.gone(1, "a"); got[1] == int64(0) {
			s.Errorf("got %v", got)
		}
	})
}

func TestWhatIsPausedIsNotGone(t *testing.T) {
	on(t, func(s shard) {
		s.run(lua.Pause, []string{s.ledger}, "a", 0, "{}", 10, 1)
		s.fence(1, 2, 1, "r")
		if got := s.gone(1, "a", "b"); got[0] != int64(1) || got[1].(int64) <= s.now() || got[2] != int64(0) {
			s.Errorf("one is paused: %v", got)
		}
		s.run(lua.Pause, []string{s.ledger}, "*", 0, "{}", 10, 2)
		if got := s.gone(1, "b"); got[1] == int64(0) {
			s.Errorf("all are paused: %v", got)
		}
		s.close(1)
		s.answers(s.gone(1, "a", "b"), 2)
	})
}

func TestGoneOfAnEmptyShardSaysSo(t *testing.T) {
	on(t, func(s shard) {
		s.fence(1, 2, 1, "r")
		s.answers(s.gone(1, "a", "b"), 0, 0, 0)
		s.close(1)
		s.answers(s.gone(1, "a"), 0, 0)
	})
}

func TestPutOffMovesWhatIsDueOnly(t *testing.T) {
	on(t, func(s shard) {
		later := s.now() + 3_600_000
		s.due("due", 1)
		s.due("leased", later)
		s.answers(s.run(lualayout.PutOff, []string{s.ready}, 60_000, "due", 60_000, "leased", 60_000, "unknown"), 1)
		ctx := context.Background()
		if score := s.c.ZScore(ctx, s.ready, "due").Val(); score < float64(s.now()) || score > float64(s.now()+60_000) {
			s.Errorf("due at %v", score)
		}
		if s.c.ZScore(ctx, s.ready, "leased").Val() != float64(later) || s.c.ZCard(ctx, s.ready).Val() != 2 {
			s.Error(s.all())
		}
		s.answers(s.run(lualayout.PutOff, []string{s.ready}, 60_000, "due"), 0)
	})
}

func TestCloseEndsAShardThatIsFencedAndEmpty(t *testing.T) {
	on(t, func(s shard) {
		s.answers(s.close(1), 0)
		s.run(lua.Pause, []string{s.ledger}, "a:b", 0, "{}", 10, 1)
		mark := s.fence(1, 2, 1, "r")[1]
		pause := s.field("pause:a:b")
		for range 2 {
			s.answers(s.close(1), 1, mark, "a:b", pause)
		}
		for _, script := range []*lua.Script{lua.Pause, lua.Resume} {
			keys, argv := []string{s.ledger}, []any{"*", 0, "{}", 10, 2}
			if script == lua.Resume {
				keys, argv = []string{s.ready, s.ledger}, []any{"*", 2}
			}
			s.answers(s.run(script, keys, argv...), 2)
		}
	})
}

func TestCloseLeavesAShardOpenWhile(t *testing.T) {
	for name, left := range map[string]func(s shard){
		"the ledger counts entries":      func(s shard) { s.set("accepted", 2, "delivered", 1) },
		"the ledger counts too few":      func(s shard) { s.set("accepted", 1, "delivered", 2) },
		"the active set has a partition": func(s shard) { s.due("a", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(s shard) {
				left(s)
				s.fence(1, 2, 1, "r")
				s.answers(s.close(1), 0)
				if s.field("closed") != "" {
					s.Error(s.all())
				}
			})
		})
	}
}

func TestPausesAreAdoptedOnce(t *testing.T) {
	on(t, func(s shard) {
		s.run(lua.Pause, []string{s.ledger}, "a", 0, "mine", 10, 2)
		own := s.field("pause:a")
		adopt := func() []any {
			return s.run(lualayout.AdoptPauses, []string{s.ledger}, "from", "a", "1 theirs", "b", "2 theirs", "*", "3 theirs")
		}
		s.answers(adopt(), 2)
		if s.field("pause:a") != own || s.field("pause:b") != "2 theirs" || s.field("pause:*") != "3 theirs" || s.field("paused") != "3" {
			s.Error(s.all())
		}
		s.answers(s.run(lua.Resume, []string{s.ready, s.ledger, s.prefix + "m:b"}, "b", 2), 1)
		s.answers(adopt(), 0)
		if s.field("pause:b") != "" || s.field("paused") != "2" {
			s.Error(s.all())
		}
	})
}

func TestPauseAndResumeOfAFencedShardAreRejected(t *testing.T) {
	on(t, func(s shard) {
		s.fence(1, 3, 1, "the record")
		for _, layout := range []int{1, 2} {
			s.answers(s.run(lua.Pause, []string{s.ledger}, "a", 0, "{}", 10, layout), -1, "the record")
			s.answers(s.run(lua.Resume, []string{s.ready, s.ledger}, "*", layout), -1, "the record")
		}
		s.answers(s.run(lua.Pause, []string{s.ledger}, "a", 0, "{}", 10, 3), 1)
		s.answers(s.run(lua.Resume, []string{s.ready, s.ledger, s.prefix + "m:a"}, "a", 4), 1)
	})
}

func TestARecordIsWrittenOverTheOneThatWasRead(t *testing.T) {
	on(t, func(s shard) {
		write := func(read, version int) []any {
			return s.run(lualayout.Record, []string{s.ledger}, read, version, "floor", version*10, "1", "layout")
		}
		s.answers(write(1, 2), 0)
		s.answers(write(0, 1), 1)
		s.answers(write(0, 2), 0)
		s.answers(write(1, 4), 1)
		if s.field("version") != "4" || s.field("floor") != "40" || s.field("1") != "layout" {
			s.Error(s.all())
		}
	})
}

func TestBadArgumentsAreRejected(t *testing.T) {
	on(t, func(s shard) {
		ledger, both := []string{s.ledger}, []string{s.ledger, s.ready}
		for _, c := range []struct {
			script *lua.Script
			keys   []string
			argv   []any
		}{
			{lualayout.Record, ledger, []any{0, 1}},
			{lualayout.Record, ledger, []any{0, 1, "floor"}},
			{lualayout.Record, ledger, []any{2, 2, "floor", 1}},
			{lualayout.Record, ledger, []any{-1, 2, "floor", 1}},
			{lualayout.Fence, ledger, []any{0, 2, 1, "r", "buffer"}},
			{lualayout.Fence, ledger, []any{1, 2, 1, "r"}},
			{lualayout.Fence, ledger, []any{1, "x", 1, "r", "buffer"}},
			{lualayout.Fence, ledger, []any{1, 2, -1, "r", "buffer"}},
			{lualayout.Gone, both, []any{1}},
			{lualayout.Gone, both, []any{1, "a"}},
			{lualayout.Gone, append(both, s.prefix+"q:a"), []any{0, "a"}},
			{lualayout.PutOff, []string{s.ready}, []any{}},
			{lualayout.PutOff, []string{s.ready}, []any{1}},
			{lualayout.PutOff, []string{s.ready}, []any{-1, "a"}},
			{lualayout.Close, both, []any{0, 0}},
			{lualayout.Close, both, []any{1}},
			{lualayout.AdoptPauses, ledger, []any{""}},
			{lualayout.AdoptPauses, ledger, []any{"from", "a"}},
		} {
			s.rejects("ERR "+c.script.Name+": bad arguments", c.script, c.keys, c.argv...)
		}
	})
}

func TestForeignValuesAreRejected(t *testing.T) {
	for field, scripts := range map[string]string{
		"fence": "fence gone close", "mark": "fence", "high_water": "fence gone close", "version": "fence", "accepted": "gone close", "lost": "gone close",
	} {
		t.Run(field, func(t *testing.T) {
			on(t, func(s shard) {
				s.set(field, "foreign")
				for _, name := range strings.Fields(scripts) {
					switch name {
					case "fence":
						s.rejects("foreign value", lualayout.Fence, []string{s.ledger}, 1, 2, 1, "r", "buffer")
					case "gone":
						s.rejects("foreign value", lualayout.Gone, []string{s.ledger, s.ready, s.prefix + "q:a"}, 1, "a")
					case "close":
						s.rejects("foreign value", lualayout.Close, []string{s.ledger, s.ready}, 1, 0)
					}
				}
			})
		})
	}
}
