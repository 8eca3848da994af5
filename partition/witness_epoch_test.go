package partition

import "testing"

func TestALedgerThatLostItsNewEpochIsNoNewLedger(t *testing.T) {
	t.Parallel()
	w := &witness{}
	w.read(1, 0, 1_000_000, "", true)              // from before there were epochs
	w.read(2, w.least(), 1_000_000, "EPOCH", true) // Check gave it one
	w.stored(2, 20)
	// Redis comes back with what it had before the epoch was saved.
	if gone := w.read(3, w.least(), 999_990, "", true); gone != 30 {
		t.Errorf("%d entries are gone, want 30", gone)
	}
	// An empty store has neither.
	if gone := w.read(4, w.least(), 0, "", false); gone != 999_990 {
		t.Errorf("%d entries are gone, want 999990", gone)
	}
}
