package app

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/spillway-io/spillway/cmd/spillway/config"
)

// newLogger writes one event per line to w, which is never stdout: the stdout: sink
// writes there. level and format are valid. The format "auto" is console on a
// terminal and JSON elsewhere.
func newLogger(w io.Writer, level, format string) *zap.Logger {
	return newLoggerAt(w, zap.NewAtomicLevelAt(parseLevel(level)), format)
}

// newLoggerAt is newLogger with a level that can change.
func newLoggerAt(w io.Writer, level zap.AtomicLevel, format string) *zap.Logger {
	form := zap.NewProductionEncoderConfig()
	form.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := zapcore.NewJSONEncoder(form)
	if format == "console" || format == "auto" && config.IsTerminal(w) {
		form.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		form.EncodeLevel = zapcore.CapitalLevelEncoder
		form.EncodeDuration = zapcore.StringDurationEncoder
		encoder = zapcore.NewConsoleEncoder(form)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(escaped{w})), level))
}

// escaped writes lines with what does not print as \uXXXX, which JSON reads as the same:
// what clients sent must not drive a terminal or reorder what is read. The encoders do so
// for ASCII alone.
type escaped struct{ io.Writer }

func (p escaped) Write(line []byte) (int, error) {
	hidden := func(r rune) bool { return r > '~' && !strconv.IsPrint(r) }
	shown := line
	if bytes.IndexFunc(line, hidden) >= 0 {
		shown = nil
		for _, r := range string(line) {
			if !hidden(r) {
				shown = utf8.AppendRune(shown, r)
				continue
			}
			for _, unit := range utf16.AppendRune(nil, r) {
				shown = fmt.Appendf(shown, `\u%04x`, unit)
			}
		}
	}
	if _, err := p.Writer.Write(shown); err != nil {
		return 0, err
	}
	return len(line), nil
}

func parseLevel(text string) zapcore.Level {
	level, err := zapcore.ParseLevel(text)
	if err != nil {
		return zapcore.InfoLevel
	}
	return level
}
