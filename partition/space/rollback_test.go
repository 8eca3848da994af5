package space

import "testing"

func TestALedgerThatLostItsNewEpochCountsAsRolledBack(t *testing.T) {
	t.Parallel()
	d := &rollbackDetector{}
	d.compare(1, 0, 1_000_000, "", true)                   // written before ledgers had epochs
	d.compare(2, d.lowerBound(), 1_000_000, "EPOCH", true) // Check gave it one
	d.add(2, 20)
	// Redis comes back with what it had before the epoch was saved.
	if missing := d.compare(3, d.lowerBound(), 999_990, "", true); missing != 30 {
		t.Errorf("%d entries are missing, want 30", missing)
	}
	// An empty store has neither.
	if missing := d.compare(4, d.lowerBound(), 0, "", false); missing != 999_990 {
		t.Errorf("%d entries are missing, want 999990", missing)
	}
}
