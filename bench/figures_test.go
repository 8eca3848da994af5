package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
)

func TestAssertionsCompareNumbersAndDurations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list string
		got  float64
		hold bool
	}{
		{"p99<5ms", 0.0049, true}, {"p99<5ms", 0.005, false}, {"p99<=5ms", 0.005, true}, {" p99.9 > 1s ", 2, true},
		{"residual=0", 0, true}, {"residual==0", 1, false}, {"rate>=1e4", 9999, false}, {"errors!=0", 1, true}, {"max<0", 0, false},
	} {
		list, err := ParseAsserts(tt.list)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: got %v, %v", tt.list, list, err)
			continue
		}
		if got := list[0].holds(tt.got); got != tt.hold {
			t.Errorf("%s with %v: got %v", tt.list, tt.got, got)
		}
	}
	for _, broken := range []string{"p99", "p99<", "p99<5", "p98<5ms", "residual=0ms", "p99=<5ms", "p99<5ms,x", "<5ms"} {
		if list, err := ParseAsserts(broken); err == nil {
			t.Errorf("%q: got %v, want an error", broken, list)
		}
	}
	if list, err := ParseAsserts("p99<5ms, residual=0,"); err != nil || len(list) != 2 {
		t.Errorf("a list: got %v, %v; want two", list, err)
	}
}

func FuzzAsserts(f *testing.F) {
	for _, list := range []string{"p99<5ms,residual=0", "p99<5", "=", "p99<>5ms", "rate>=1e400", "lost!=NaN", ",,", "p99 < 5ms", "delivered==0x10", "p99<<5ms", "rate<=+Inf", "<5ms", " p99 < 5ms , , ", "requests=5ms"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		asserts, err := ParseAsserts(list)
		if err != nil {
			return
		}
		for _, a := range asserts {
			if !slices.Contains(Figures, a.Key) || a.op == "" || !strings.HasPrefix(a.text, a.Key) {
				t.Fatalf("%q: got %+v", list, a)
			}
			if a.holds(a.want) != slices.Contains([]string{"<=", ">=", "=", "=="}, a.op) {
				t.Fatalf("%q: %+v compared with itself", list, a)
			}
		}
	})
}

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
