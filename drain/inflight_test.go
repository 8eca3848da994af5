package drain

import "testing"

func TestAClaimerDoesNotSleepWhenALeaseEndedSinceItListedWhatIsDue(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	seen := f.releasedSoFar()
	woken := false
	wake := func() { woken = true }
	f.add("p")
	if !f.wakeOnRelease(seen, wake) {
		t.Error("nothing ended, the claimer may sleep")
	}
	if f.remove("p"); !woken {
		t.Error("the end of a lease did not wake the claimer")
	}
	if f.wakeOnRelease(seen, wake) {
		t.Error("the claimer would sleep through what the lease left behind")
	}
}
