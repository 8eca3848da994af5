package backend

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestTheClientsLinesAreLoggedAtDebugLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[zapcore.Level]int{zap.InfoLevel: 0, zap.DebugLevel: 1} {
		core, lines := observer.New(level)
		var c clientLog
		c.to.Store(zap.New(core))
		c.Printf(t.Context(), "failed to dial after %d attempts", 1)
		if lines.Len() != want || want > 0 && lines.All()[0].ContextMap()["detail"] != "failed to dial after 1 attempts" {
			t.Errorf("at level %v: %v", level, lines.All())
		}
	}
}

func TestAnOutageIsLoggedOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		o := OutageLog{Log: zap.New(core), Level: zap.ErrorLevel, Began: "failing", Ended: "works"}
		for range 2 {
			for i := range 3 { // parts
				o.Begin(zap.Int("part", i))
			}
			clocktest.Pass(time.Minute)
			for range 3 {
				if o.Failing() == 0 {
					t.Error("no part fails before the last one ended")
				}
				o.End()
			}
		}
		got := ""
		for _, line := range lines.All() {
			got += fmt.Sprintln(line.Level, line.Message, line.ContextMap())
		}
		want := "error failing map[part:0]\ninfo works map[after:1m0s]\n"
		if got != want+want {
			t.Errorf("got\n%s, want twice\n%s", got, want)
		}
	})
}
