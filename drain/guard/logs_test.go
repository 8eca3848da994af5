package guard

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestKindsOfDeadLettersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := letterLog{log: zap.New(core)}
		for i := range 10_000 {
			l.add("p", zap.Int64("seq", int64(i)), errors.New(strings.Repeat("x", 1+i%299)))
		}
		if n := logs.Len(); n != maxLetterKinds+1 || len(l.kinds) != maxLetterKinds+1 {
			t.Errorf("%d lines, %d kinds", n, len(l.kinds))
		}
	})
}

// Words with an id in hexadecimal are a kind each. Those that came twice within a minute
// must not stand in the way of later ones.
func TestKindsOfDeadLettersThatEndedMakeRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := letterLog{log: zap.New(core)}
		for i := range 2 * maxLetterKinds {
			l.add("p", zap.Int64("seq", int64(i)), errors.New(strings.Repeat("x", 1+i/2)))
		}
		time.Sleep(letterPause)
		for i := range maxLetterKinds - 1 { // the shared kind takes one place
			l.add("p", zap.Int64("seq", int64(i)), errors.New(strings.Repeat("y", 1+i)))
		}
		l.add("p", zap.Int64("seq", 0), errors.New("one kind too many"))
		var entries int64
		for _, line := range logs.All() {
			entries += line.ContextMap()["entries"].(int64)
		}
		if n := logs.Len(); n != 2*maxLetterKinds || entries != 3*maxLetterKinds {
			t.Errorf("%d lines that name %d entries, want %d and %d", n, entries, 2*maxLetterKinds, 3*maxLetterKinds)
		}
	})
}
