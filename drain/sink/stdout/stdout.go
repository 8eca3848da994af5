// Package stdout is the sink "stdout:": one line of NDJSON an entry, the lines
// of a batch together in one write. Delivered means that the operating system
// took the bytes; what reads the other end is not asked.
package stdout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/spillway-io/spillway/drain/sink"
)

// Sink writes lines to an io.Writer.
type Sink struct {
	lines *sink.LineWriter

	w    io.Writer // in turn
	torn bool      // in turn: the last write ended inside a line
}

// New makes the sink of "stdout:".
func New(u *url.URL) (sink.Sink, error) {
	if u.Opaque != "" || u.Host != "" || u.Path != "" {
		return nil, errors.New(`takes no path: write "stdout:", or "file:///path.ndjson" for a file`)
	}
	if _, err := sink.Options(u); err != nil {
		return nil, err
	}
	return NewWriter(os.Stdout), nil
}

// NewWriter makes a sink that writes to w, never two writes at once. It does
// not close w. A write that w does not finish outlives its Write: until it ends
// every other Write waits, each no longer than its context.
func NewWriter(w io.Writer) *Sink {
	return &Sink{lines: sink.NewLineWriter(), w: w}
}

// Open does nothing: the writer is there.
func (s *Sink) Open(context.Context) error { return nil }

// Write writes the lines of all batches at once. Every error is retryable.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	return s.lines.Write(ctx, batches, s.put)
}

func (s *Sink) put(lines []byte) error {
	if s.torn {
		// Half a line stands there and cannot be taken back: end it, so that
		// it does not swallow the first of ours.
		if _, err := s.w.Write([]byte{'\n'}); err != nil {
			return fmt.Errorf("write stdout: %w", err)
		}
		s.torn = false
	}
	n, err := s.w.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.torn = 0 < n && n <= len(lines) && lines[n-1] != '\n'
		return fmt.Errorf("write stdout: %w", err)
	}
	return nil
}

// Close waits for a write that is still under way, as long as ctx lets it.
func (s *Sink) Close(ctx context.Context) error {
	return s.lines.Do(ctx, func() error { return nil })
}

// Caps allows any number of Writes: they encode side by side.
func (s *Sink) Caps() sink.Caps { return sink.Caps{MaxBatches: 1} }
