package php

import (
	"fmt"
	"testing"
)

func TestALaneTellsOfClaimsToTakeBack(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	s.publish("mail", `{"job":"A@f"}`)
	s.publish("other", `{"job":"A@f"}`)
	memory := s.lane.Other.(*lane)
	lost := s.claim(1, "other")
	memory.unknown[target{"shop", "other"}] = fmt.Sprintf("%s.%d", memory.name, memory.claims)
	if jobs := s.claim(1, "mail"); len(jobs) != 1 || !s.lane.Unknown {
		t.Errorf("got %d jobs, unknown %v", len(jobs), s.lane.Unknown)
	}
	if err := s.Revert(t.Context(), s.lane); err != nil {
		t.Fatal(err)
	}
	if again := s.claim(1, "other"); len(again) != 1 || again[0].Attempt != lost[0].Attempt || s.lane.Unknown {
		t.Errorf("got %+v, unknown %v", again, s.lane.Unknown)
	}
}
