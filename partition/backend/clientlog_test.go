package backend

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
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
