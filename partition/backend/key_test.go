package backend

import "testing"

func TestASlotIsThatOfTheHashTag(t *testing.T) {
	t.Parallel()
	if got := Slot("sw:{user1000}:ready"); got != 3443 { // as the cluster specification has it
		t.Errorf("slot %d", got)
	}
}
