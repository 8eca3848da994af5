// Package file is the sink "file:///path.ndjson": one line of NDJSON an entry,
// the lines of a batch together in one write.
//
// Delivered means that the operating system took the bytes: they survive a crash of this
// process, and one of the machine from the next Close on (or whenever the system wrote them
// back). The file's directory must exist. A file that was moved or deleted under us is made
// anew at the next batch, so logrotate needs no signal. One process writes to a file at a time:
// a second one waits in Open.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// Sink appends lines to one file.
type Sink struct {
	path string
	options
	lines *sink.LineWriter
	now   func() time.Time

	// In turn.
	f        handle      // nil before Open and after a reopening failed
	info     os.FileInfo // which file f is
	cut      int64       // where the last good line ends, when half a line follows it; else -1
	began    time.Time   // the interval of rotate_every that f's lines are of
	archiver *archiver   // nil before Open, and when nothing is compressed or deleted
}

// handle is what the sink needs of an *os.File.
type handle interface {
	io.WriteCloser
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// New makes the sink of "file:///path.ndjson", with the options
//
//	mode=0640        permissions of the files it creates, whatever the umask; default 0600
//	max_size=100MB   before a batch would take the file beyond this size, it is rotated. KB, MB, GB, KiB,
//	                 MiB, GiB or B. A batch is never split, so one larger than max_size has a file to itself
//	rotate_every=1h  the first batch of each interval rotates what the file has of earlier ones; intervals
//	                 begin at whole multiples in UTC; 1s or more
//	compress=gzip    rotated files are compressed, in the background
//	keep=10          so many rotated files are kept and older ones deleted; default: all
//
// To rotate is to rename the file to path-2006-01-02T15-04-05.000-size.ndjson, or
// -time.ndjson, by the time of the rotation in UTC (with _1, _2 … after size or time
// where that name is taken), and to begin a new one. By default nothing is rotated.
func New(u *url.URL) (sink.Sink, error) {
	switch {
	case u.Opaque != "":
		return nil, errors.New("path is relative: write file:///path.ndjson, from the root")
	case u.User != nil:
		return nil, errors.New("takes no user")
	case u.Host != "":
		return nil, fmt.Errorf("path is not absolute: %q is read as a host, write file:///path.ndjson with three slashes", u.Host)
	case u.Fragment != "":
		return nil, errors.New("a # in the path is written %23")
	case strings.HasSuffix(u.Path, "/"), u.Path == "":
		return nil, errors.New("path names no file: write file:///path.ndjson")
	case strings.ContainsRune(u.Path, 0):
		return nil, errors.New("path holds a NUL")
	}
	o, err := parseOptions(u)
	if err != nil {
		return nil, err
	}
	return &Sink{
		path:    filepath.Clean(filepath.FromSlash(u.Path)),
		options: o,
		lines:   sink.NewLineWriter(),
		now:     time.Now,
		cut:     -1,
	}, nil
}

// Open opens or creates the file, and ends a last line that a crash left torn.
func (s *Sink) Open(ctx context.Context) error {
	return s.lines.Do(ctx, func() error {
		if err := s.open(); err != nil {
			return err
		}
		if s.archiver == nil && (s.compress || s.keep > 0) {
			s.archiver = newArchiver(s.path, s.compress, s.keep)
			s.archiver.start()
		}
		return nil
	})
}

// Write appends the lines of all batches in one write; when that fails none of
// them stay. Every error is retryable: a full disk, a directory that is gone.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	return s.lines.Write(ctx, batches, s.append)
}

// Close makes what was written safe on the disk. Its error also says why rotated
// files could not be compressed or deleted, which is tried again after the next Open.
func (s *Sink) Close(ctx context.Context) error {
	return s.lines.Do(ctx, func() error {
		err := s.close()
		if s.archiver != nil {
			err = errors.Join(err, s.archiver.stop())
			s.archiver = nil
		}
		return err
	})
}

// Caps allows any number of Writes: they encode side by side.
func (s *Sink) Caps() sink.Caps { return sink.Caps{MaxBatches: 1} }

func (s *Sink) append(lines []byte) error {
	if s.f == nil {
		return sink.ErrNotConnected
	}
	size, err := s.ready(int64(len(lines)))
	if err != nil {
		return err
	}
	if n, err := s.f.Write(lines); err != nil {
		if n > 0 {
			s.cut = size
			// Readers should not see half a batch for longer than they must.
			// If this fails too, the next Write begins with it.
			_ = s.cutBack()
		}
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// ready makes s.f the file at the path, ending with a whole line and with room
// for n bytes, and returns its size.
func (s *Sink) ready(n int64) (size int64, err error) {
	info, err := os.Lstat(s.path)
	if err != nil || !os.SameFile(info, s.info) {
		if err := s.open(); err != nil {
			return 0, err
		}
		if info, err = s.f.Stat(); err != nil {
			return 0, fmt.Errorf("stat file: %w", err)
		}
	}
	size = info.Size()
	if s.cut >= 0 {
		size = min(size, s.cut)
		if err := s.cutBack(); err != nil {
			return 0, err
		}
	}
	if reason := s.due(size, n); reason != "" {
		if err := s.rotate(reason); err != nil {
			return 0, err
		}
		size = 0
	}
	if size == 0 {
		s.began = s.interval(s.now())
	}
	return size, nil
}

// cutBack takes the file back to the end of its last good line.
func (s *Sink) cutBack() error {
	info, err := s.f.Stat()
	// Someone else may have emptied the file: never make it longer.
	if err == nil && info.Size() > s.cut {
		err = s.f.Truncate(s.cut)
	}
	if err != nil {
		return fmt.Errorf("cut torn batch: %w", err)
	}
	s.cut = -1
	return nil
}

func (s *Sink) close() error {
	if s.f == nil {
		return nil
	}
	err := errors.Join(s.f.Sync(), s.f.Close())
	s.f = nil
	if err != nil {
		return fmt.Errorf("close file: %w", err)
	}
	return nil
}
