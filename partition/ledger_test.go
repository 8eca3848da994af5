package partition_test

import (
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

func TestOverviewTellsTheSizeOfTheDeadLettersThatAreKept(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	c := server.Client()
	c.RPush(t.Context(), "sw:{default.0}:dead", "letter")
	c.HSet(t.Context(), "sw:{default.0}:ledger", "dead_bytes", 6)
	if o, err := s.Overview(t.Context(), s.ns); err != nil || o.DeadBytes != 6 || o.DeadLetters != 1 {
		t.Errorf("got %d letters of %d bytes (%v), want 1 of 6", o.DeadLetters, o.DeadBytes, err)
	}
	c.Del(t.Context(), "sw:{default.0}:dead") // as deploy/OPERATING.md tells operators
	if o, err := s.Overview(t.Context(), s.ns); err != nil || o.DeadBytes != 0 {
		t.Errorf("got %d bytes (%v) of letters that are gone", o.DeadBytes, err)
	}
}
