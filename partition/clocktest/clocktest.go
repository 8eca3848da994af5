// Package clocktest lets time pass in tests that run in a bubble of testing/synctest,
// where a wait of an hour takes microseconds. Outside of a bubble it panics: a test
// that sleeps for real is slow on a good day, and wrong on a bad one.
package clocktest

import (
	"testing/synctest"
	"time"
)

// Pass lets so much of the bubble's time pass for the test. All that is due by then
// has happened when it returns: every other goroutine of the bubble waits for
// something later. One goroutine of a bubble may call it, as synctest.Wait.
func Pass(d time.Duration) {
	synctest.Wait() // panics outside of a bubble
	time.Sleep(d)
	synctest.Wait()
}

// Take lasts so long, as a fake does that is slow, such as a sink whose Write takes a
// second. Many goroutines of a bubble may call it at once.
func Take(d time.Duration) {
	if time.Now().Year() >= 2020 { // a bubble's clock begins in 2000
		panic("clocktest: Take outside of a bubble")
	}
	time.Sleep(d)
}
