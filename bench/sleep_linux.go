package bench

import (
	"syscall"
	"time"
)

// grain is the shortest sleep of the pacer. Requests due within one are sent
// together; a finer one costs the measured server's CPU more than it tells.
const grain = 200 * time.Microsecond

// sleep is more precise than time.Sleep, which ends up to a millisecond late
// in an idle process: longer than the latencies to measure.
func sleep(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(max(d, grain)))
	// Interrupted early is fine: the caller looks at the clock and sleeps again.
	_ = syscall.Nanosleep(&ts, nil)
}
