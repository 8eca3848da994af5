package work

import (
	"encoding/json"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/spillway-io/spillway/drain/process"
)

// A message is a line of a child on descriptor 3.
type message struct {
	Do      string   `json:"do"`
	Seq     string   `json:"seq"`
	Delay   *float64 `json:"delay"` // seconds; nil: it names none
	Error   string   `json:"error"`
	Level   string   `json:"level"` // of log
	Message string   `json:"message"`
}

// start starts a child, whose lines are heard.
func (w *worker) start(s *process.Slot, program process.Command, lines bool,
	input []byte) (*child, error) {
	c := &child{ready: make(chan struct{}), answer: make(chan message, 1)}
	var err error
	c.Member, err = s.Start(program, lines, input, func(stream int, line []byte,
		cut bool) {
		w.hear(c, s.N, stream, line, cut)
	})
	w.metrics.started.Inc()
	return c, err
}

// hear takes a line of a child.
func (w *worker) hear(c *child, slot, stream int, line []byte, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	log := w.log.With(zap.Int("child", slot))
	if c.task != nil {
		log = log.With(zap.String("queue", c.task.Queue), zap.String("seq", c.task.seq()))
	}
	var m message
	switch {
	case stream != 3:
		log.Info("child prints", zap.Int("stream", stream), zap.ByteString("line", line),
			zap.Bool("cut", cut))
		return
	case cut || json.Unmarshal(line, &m) != nil:
		m.Do = ""
	}
	switch m.Do {
	case "ready":
		if !c.said {
			c.said = true
			close(c.ready)
		}
	case "log":
		level, _ := zapcore.ParseLevel(m.Level) // info where it says none
		log.Log(min(level, zapcore.ErrorLevel), "child says", zap.String("message", m.Message))
	case "event":
		w.hooks.send(event{Event: "child", Data: line}, slot, c.task)
	case "delete", "release", "failed", "forgot":
		if c.task != nil && c.task.seq() == m.Seq {
			c.task = nil
			c.answer <- m
			return
		}
		fallthrough
	default:
		w.noise.Warn("a child writes what is no answer to its job", zap.Int("child", slot),
			zap.String("do", m.Do), zap.Int("bytes", len(line)), zap.Bool("cut", cut))
	}
}
