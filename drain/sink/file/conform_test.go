package file

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faulty is a handle that stalls, or fails after some bytes as a full disk does.
type faulty struct {
	handle
	stall    chan struct{} // not nil: Write waits for it
	room     int           // bytes a Write takes; -1 = all
	truncate error
	sync     error
	synced   int
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.stall != nil {
		<-f.stall
	}
	if f.room < 0 || len(p) <= f.room {
		return f.handle.Write(p)
	}
	n, err := f.handle.Write(p[:f.room])
	if err == nil {
		err = &os.PathError{Op: "write", Path: "events.ndjson", Err: syscall.ENOSPC}
	}
	return n, err
}

func (f *faulty) Truncate(size int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.handle.Truncate(size)
}

func (f *faulty) Sync() error {
	f.synced++
	if f.sync != nil {
		return f.sync
	}
	return f.handle.Sync()
}

// inject puts a faulty handle in place of an open sink's, and returns how to
// take it back.
func inject(t testing.TB, s *Sink, f *faulty) (remove func()) {
	t.Helper()
	var real handle
	swap := func(to func() handle) {
		if err := s.lines.Do(t.Context(), func() error { s.f = to(); return nil }); err != nil {
			t.Error(err)
		}
	}
	swap(func() handle { real = s.f; f.handle = real; return f })
	return func() { swap(func() handle { return real }) }
}

func TestConforms(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{"plain": "", "rotated": "max_size=50KB&rotate_every=1s", "compressed": "max_size=5KB&compress=gzip"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
				path := filepath.Join(t.TempDir(), "events.ndjson")
				s := newSink(t, path, query)
				return sinktest.Fixture{
					Sink:     s,
					Received: func() ([]sinktest.Record, error) { return sinktest.ParseLines([]byte(contents(t, path))) },
					Stall: func() func() {
						f := &faulty{room: -1, stall: make(chan struct{})}
						inject(t, s, f)
						return func() { close(f.stall) }
					},
					Faults: []sinktest.Fault{
						{Name: "full disk", Start: func() func() {
							return inject(t, s, &faulty{room: 100})
						}},
						{Name: "full disk that cannot be cut back", Start: func() func() {
							return inject(t, s, &faulty{room: 100, truncate: syscall.EIO})
						}},
						{Name: "directory in its place", Start: func() func() {
							must(t, os.Remove(path))
							must(t, os.Mkdir(path, 0o700))
							return func() { must(t, os.Remove(path)) }
						}},
					},
				}
			}})
		})
	}
}

func newSink(t testing.TB, path, query string) *Sink {
	t.Helper()
	s, err := New(&url.URL{Scheme: "file", Path: path, RawQuery: query})
	must(t, err)
	return s.(*Sink)
}

// contents is what the file and those it was renamed to hold, oldest first.
func contents(t testing.TB, path string) string {
	t.Helper()
	old, err := filepath.Glob(strings.TrimSuffix(path, ".ndjson") + "-*.ndjson*")
	must(t, err)
	for i := range old {
		old[i] = strings.TrimSuffix(strings.TrimSuffix(old[i], ".tmp"), ".gz")
	}
	slices.Sort(old)
	var all strings.Builder
	for _, p := range append(slices.Compact(old), path) {
		b, err := os.ReadFile(p)
		if os.IsNotExist(err) && p != path {
			all.WriteString(uncompressed(t, p+".gz")) // the archiver was faster
			continue
		}
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		all.Write(b)
	}
	return all.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var _ sink.Sink = (*Sink)(nil)
