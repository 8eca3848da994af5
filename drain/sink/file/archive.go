package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
)

const (
	gzipped    = ".gz"
	unfinished = ".tmp" // after .gz: only a crash leaves one
)

// An archiver compresses and deletes rotated files, in a goroutine of its own: a
// batch does not wait for it.
type archiver struct {
	dir      string
	rotated  *regexp.Regexp // names of rotated files, compressed or not
	compress bool
	keep     int // 0 = all

	due    chan struct{} // there may be something to do
	cancel context.CancelFunc
	ended  chan error
}

func newArchiver(path string, compress bool, keep int) *archiver {
	ext := filepath.Ext(path)
	prefix := strings.TrimSuffix(filepath.Base(path), ext)
	return &archiver{
		dir: filepath.Dir(path), compress: compress, keep: keep,
		// The names that timberjack gives. No other file may ever match.
		rotated: regexp.MustCompile(`^` + regexp.QuoteMeta(prefix) +
			`-(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3})-(?:` + becauseOfSize + `|` +
			becauseOfTime + `)(?:_(\d+))?` +
			regexp.QuoteMeta(ext) + `(?:\.gz)?$`),
		due: make(chan struct{}, 1), ended: make(chan error, 1),
	}
}

// start begins with what an earlier process has left. stop ends it.
func (a *archiver) start() {
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.wake()
	go func() { a.ended <- a.run(ctx) }()
}

func (a *archiver) wake() {
	select {
	case a.due <- struct{}{}:
	default: // it will look anyway
	}
}

// stop ends the work, waits, and returns why the last of it failed.
func (a *archiver) stop() error {
	a.cancel()
	return <-a.ended
}

func (a *archiver) run(ctx context.Context) (last error) {
	for {
		select {
		case <-ctx.Done():
			return last
		case <-a.due:
		}
		if err := a.work(ctx); ctx.Err() == nil {
			last = err
		}
	}
}

// work brings the folder in order once. What fails stays as it is, for the next time;
// the error is the first.
func (a *archiver) work(ctx context.Context) (first error) {
	failed := func(err error) {
		if first == nil && err != nil {
			first = fmt.Errorf("archive rotated files: %w", err)
		}
	}
	entries, err := os.ReadDir(a.dir)
	failed(err)
	var names []string // without .gz; a crash can leave both forms
	for _, e := range entries {
		if e.Type().IsRegular() && a.rotated.MatchString(e.Name()) {
			names = append(names, strings.TrimSuffix(e.Name(), gzipped))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	slices.SortStableFunc(names, a.newestFirst)
	if a.keep > 0 && len(names) > a.keep {
		for _, name := range names[a.keep:] {
			for _, form := range []string{name, name + gzipped, name + gzipped + unfinished} {
				failed(a.remove(form))
			}
		}
		names = names[:a.keep]
	}
	for _, name := range slices.Backward(names) { // the oldest first
		if a.compress && ctx.Err() == nil {
			failed(a.gzip(ctx, name))
		}
	}
	return first
}

// newestFirst orders names by their time, and by their number within one millisecond.
func (a *archiver) newestFirst(x, y string) int {
	p, q := a.rotated.FindStringSubmatch(x), a.rotated.FindStringSubmatch(y)
	return cmp.Or(strings.Compare(q[1], p[1]), len(q[2])-len(p[2]), strings.Compare(q[2], p[2]))
}

func (a *archiver) remove(name string) error {
	err := os.Remove(filepath.Join(a.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// gzip replaces a rotated file by its compressed form. At every moment one of the two
// is there whole, on the disk too.
func (a *archiver) gzip(ctx context.Context, name string) error {
	from, err := os.Open(filepath.Join(a.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // compressed already
	}
	if err != nil {
		return err
	}
	defer from.Close()
	whole := filepath.Join(a.dir, name+gzipped)
	if _, err := os.Lstat(whole); errors.Is(err, fs.ErrNotExist) {
		if err := writeGzip(ctx, whole+unfinished, from); err != nil {
			_ = a.remove(name + gzipped + unfinished) // or the next time does
			return fmt.Errorf("compress %s: %w", name, err)
		}
		if err := os.Rename(whole+unfinished, whole); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return a.remove(name)
}

// writeGzip makes a file of the same permissions with the compressed contents of from.
func writeGzip(ctx context.Context, path string, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, endable{ctx, from})
	return errors.Join(
		err,
		z.Close(),
		to.Chmod(info.Mode().Perm()),
		to.Sync(),
		to.Close(),
	)
}

// endable is a reader that fails once ctx has ended.
type endable struct {
	ctx  context.Context
	from io.Reader
}

func (r endable) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}
