package bench

import (
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
)

func TestTheRateOfADrainIsWithoutItsTail(t *testing.T) {
	t.Parallel()
	began := time.Now()
	d := &DrainCurve{}
	d.Start(began, partition.Ledger{Delivered: 1000})
	// 1,000 a second for 9 s, then 1,000 more after a second's wait.
	for i := range 10 {
		d.Add(began.Add(time.Duration(i)*time.Second), partition.Ledger{Delivered: 1000 + int64(i)*1000})
	}
	d.Add(began.Add(11*time.Second), partition.Ledger{Delivered: 11_000})
	d.Add(began.Add(12*time.Second), partition.Ledger{Delivered: 11_000})
	if got := d.Rate(); got != 1000 {
		t.Errorf("got %v, want 1000", got)
	}
	if got := new(DrainCurve).Rate(); got != 0 {
		t.Errorf("nothing delivered: got %v", got)
	}
	// A burst of less than half of the entries is no rate.
	d = &DrainCurve{began: began}
	d.Add(began.Add(time.Millisecond), partition.Ledger{Delivered: 40})
	d.Add(began.Add(time.Second), partition.Ledger{Delivered: 100})
	if got := d.Rate(); got != 100 {
		t.Errorf("got %v, want 100", got)
	}
}
