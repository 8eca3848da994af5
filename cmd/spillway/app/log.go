package app

import (
	"io"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
)

// newLogger writes one event per line to w, which is never stdout: the stdout: sink
// writes there. level and format are valid. The format "auto" is console on a
// terminal and JSON elsewhere.
func newLogger(w io.Writer, level, format string) *zap.Logger {
	return newLoggerAt(w, zap.NewAtomicLevelAt(parseLevel(level)), format)
}

// newLoggerAt is newLogger with a level that can change.
func newLoggerAt(w io.Writer, level zap.AtomicLevel, format string) *zap.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := zapcore.NewJSONEncoder(config)
	if format == "console" || format == "auto" && isTerminal(w) {
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		config.EncodeDuration = zapcore.StringDurationEncoder
		encoder = zapcore.NewConsoleEncoder(config)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
}

func parseLevel(text string) zapcore.Level {
	level, err := zapcore.ParseLevel(text)
	if err != nil {
		return zapcore.InfoLevel
	}
	return level
}

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
