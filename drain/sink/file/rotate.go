package file

import (
	"errors"
	"fmt"
	"time"

	"github.com/DeRuina/timberjack"
)

// Why a file is rotated; part of the name it gets.
const (
	becauseOfSize = "size"
	becauseOfTime = "time"
)

// due says why a file of this size must be rotated before n bytes more; "" for not.
func (s *Sink) due(size, n int64) string {
	switch {
	case size == 0:
		return ""
	case s.rotateEvery > 0 && s.interval(s.now()).After(s.began):
		return becauseOfTime
	case s.maxSize > 0 && size+n > s.maxSize:
		return becauseOfSize
	}
	return ""
}

// interval is the beginning of the interval of rotate_every that t is in. Intervals
// lie on the clock, so a restart does not move them.
func (s *Sink) interval(t time.Time) time.Time { return t.UTC().Truncate(s.rotateEvery) }

// rotate renames the file and begins a new one. timberjack finds a name that is
// free and undoes the rename when the new file cannot be made; the writing
// stays ours, for it rejects large writes and cannot take half a one back.
func (s *Sink) rotate(reason string) error {
	if err := s.close(); err != nil {
		return err
	}
	r := &timberjack.Logger{Filename: s.path, FileMode: s.mode}
	if err := errors.Join(r.RotateWithReason(reason), r.Close()); err != nil {
		// Nothing is written past max_size; the next Write tries again.
		return errors.Join(fmt.Errorf("rotate file: %w", err), s.open())
	}
	if s.archiver != nil {
		s.archiver.wake()
	}
	return s.open()
}
