package partition

import "testing"

func TestALedgerThatLostItsNewEpochIsNoNewLedger(t *testing.T) {
	t.Parallel()
	d := &rollbackDetector{}
	d.compare(1, 0, 1_000_000, "", true)                   // from before there were epochs
	d.compare(2, d.lowerBound(), 1_000_000, "EPOCH", true) // Check gave it one
	d.add(2, 20)
	// Redis comes back with what it had before the epoch was saved.
	if gone := d.compare(3, d.lowerBound(), 999_990, "", true); gone != 30 {
		t.Errorf("%d entries are gone, want 30", gone)
	}
	// An empty store has neither.
	if gone := d.compare(4, d.lowerBound(), 0, "", false); gone != 999_990 {
		t.Errorf("%d entries are gone, want 999990", gone)
	}
}
