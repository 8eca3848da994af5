package file

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func batch(firstSeq int64, payloads ...string) *sink.Batch {
	return sinktest.Batch("p", firstSeq, payloads...)
}

func lines(batches ...*sink.Batch) string {
	var all []byte
	for _, b := range batches {
		all = sink.AppendBatch(all, b)
	}
	return string(all)
}

// opened is an open sink on a file that held the given text; "" means none.
func opened(t *testing.T, before, query string) (s *Sink, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "events.ndjson")
	if before != "" {
		must(t, os.WriteFile(path, []byte(before), 0o644))
	}
	s = newSink(t, path, query)
	must(t, s.Open(t.Context()))
	t.Cleanup(func() { must(t, s.Close(context.Background())) })
	return s, path
}

func write(t *testing.T, s *Sink, b *sink.Batch) error {
	t.Helper()
	return s.Write(t.Context(), []*sink.Batch{b})
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func TestAppendsToWhatIsThere(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "{}\n", "")
	a, b := batch(1, "1", "2"), batch(3, "3")
	must(t, write(t, s, a))
	must(t, write(t, s, b))
	if got, want := read(t, path), "{}\n"+lines(a, b); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOpenEndsATornLine(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "{}\n{\"half\":", "")
	a := batch(1, "1")
	must(t, write(t, s, a))
	if got, want := read(t, path), "{}\n{\"half\":\n"+lines(a); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestANewFileIsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	_, path := opened(t, "", "")
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("got mode %v", info.Mode())
	}
}

func TestNewFilesHaveTheModeOfTheOption(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "mode=0664&max_size=200B&compress=gzip") // the umask usually takes a bit of it
	for i := range 3 {
		must(t, write(t, s, batch(int64(1+i), `"x"`)))
	}
	must(t, os.Remove(path))
	must(t, write(t, s, batch(4, `"x"`)))
	must(t, s.Close(t.Context()))
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	must(t, err)
	if len(files) != 3 {
		t.Errorf("got %q", files)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		must(t, err)
		if info.Mode() != 0o664 {
			t.Errorf("%s: got mode %v", f, info.Mode())
		}
	}
	s, path = opened(t, "{}\n", "mode=0600")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("the mode of a file that was there became %v, %v", info.Mode(), err)
	}
	must(t, s.Close(t.Context()))
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "")
	a, b := batch(1, "1"), batch(2, "2", "3")
	must(t, write(t, s, a))
	for _, room := range []int{0, 10, len(lines(batch(2, "2")))} { // nothing, half a line, one of two lines
		restore := inject(t, s, &faulty{room: room})
		if err := write(t, s, b); !errors.Is(err, syscall.ENOSPC) || sink.IsPermanent(err) {
			t.Errorf("got %v, want a retryable ENOSPC", err)
		}
		restore()
		if got, want := read(t, path), lines(a); got != want {
			t.Errorf("after %d bytes: got %q, want %q", room, got, want)
		}
	}
	must(t, write(t, s, b))
	if got, want := read(t, path), lines(a, b); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestATornBatchIsCutBeforeTheNextWrite(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "")
	a, b := batch(1, "1"), batch(2, "2")
	must(t, write(t, s, a))
	restore := inject(t, s, &faulty{room: 10, truncate: syscall.EIO})
	for range 2 {
		if err := write(t, s, b); err == nil || sink.IsPermanent(err) {
			t.Errorf("got %v, want a retryable error", err)
		}
		if got, want := read(t, path), lines(a)+lines(b)[:10]; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	restore()
	must(t, write(t, s, b))
	if got, want := read(t, path), lines(a, b); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFileEmptiedByAnotherProgramStartsAtItsBeginning(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "")
	a, b := batch(1, "1"), batch(2, "2")
	must(t, write(t, s, a))
	restore := inject(t, s, &faulty{room: 10, truncate: syscall.EIO})
	if err := write(t, s, b); err == nil {
		t.Error("a failed write returned nil")
	}
	restore()
	must(t, os.Truncate(path, 0)) // as logrotate's copytruncate does
	must(t, write(t, s, b))
	if got, want := read(t, path), lines(b); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// As logrotate renames it, with the recipe of deploy/CONFIGURATION.md.
func TestAMissingFileIsCreatedAgain(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "")
	a, b, c := batch(1, "1"), batch(2, "2"), batch(3, "3")
	must(t, write(t, s, a))
	must(t, os.Rename(path, path+".1"))
	must(t, write(t, s, b))
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, []byte("torn"), 0o600))
	must(t, write(t, s, c))
	if got, want := read(t, path+".1"), lines(a); got != want {
		t.Errorf("moved file: got %q, want %q", got, want)
	}
	if got, want := read(t, path), "torn\n"+lines(c); got != want {
		t.Errorf("new file: got %q, want %q", got, want)
	}
}

func TestAWriteWithoutAFileAsksForOpen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sub")
	s := newSink(t, filepath.Join(dir, "events.ndjson"), "")
	a := batch(1, "1")
	if err := write(t, s, a); !errors.Is(err, sink.ErrNotConnected) {
		t.Errorf("before Open: got %v", err)
	}
	if err := s.Open(t.Context()); err == nil || err.Error() != "open file: directory "+dir+" does not exist: make it first" {
		t.Errorf("without a directory: got %v", err)
	}
	must(t, os.Mkdir(dir, 0o700))
	must(t, s.Open(t.Context()))
	must(t, write(t, s, a))
	must(t, os.RemoveAll(dir))
	if err := write(t, s, a); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("directory gone: got %v", err)
	}
	if err := write(t, s, a); !errors.Is(err, sink.ErrNotConnected) {
		t.Errorf("directory gone for long: got %v", err)
	}
	must(t, s.Close(t.Context()))
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/target", nil, 0o600))
	must(t, os.Mkdir(dir+"/dir", 0o700))
	must(t, os.Symlink(dir+"/target", dir+"/link"))
	must(t, syscall.Mkfifo(dir+"/pipe", 0o600)) // opening it would wait for a reader
	for _, name := range []string{"dir", "link", "pipe"} {
		err := newSink(t, filepath.Join(dir, name), "").Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), name+" is ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestASecondWriterWaitsInOpen(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "")
	second := newSink(t, path, "")
	if err := second.Open(t.Context()); err == nil || err.Error() != "open file: another sink or process writes to it" {
		t.Errorf("got %v", err)
	}
	must(t, s.Close(t.Context()))
	must(t, second.Open(t.Context()))
	must(t, second.Close(t.Context()))
}

func TestCloseMakesTheFileSafe(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, "", "")
	f := &faulty{room: -1, sync: syscall.EIO}
	inject(t, s, f)
	must(t, write(t, s, batch(1, "1")))
	if err := s.Close(t.Context()); !errors.Is(err, syscall.EIO) || f.synced != 1 {
		t.Errorf("got %v after %d syncs", err, f.synced)
	}
	must(t, s.Close(t.Context()))
}

func TestURLsAreCheckedBeforeAnythingIsOpened(t *testing.T) {
	t.Parallel()
	registry := sink.Registry{"file": New}
	for raw, want := range map[string]string{
		"file:events.ndjson":              "sink file:…: path is relative: write file:///path.ndjson, from the root",
		"file:./events.ndjson":            "sink file:…: path is relative: write file:///path.ndjson, from the root",
		"file://events.ndjson":            `sink file://events.ndjson: path is not absolute: "events.ndjson" is read as a host, write file:///path.ndjson with three slashes`,
		"file://var/events.ndjson":        `sink file://var/events.ndjson: path is not absolute: "var" is read as a host, write file:///path.ndjson with three slashes`,
		"file:":                           "sink file:: path names no file: write file:///path.ndjson",
		"file:///x%00y":                   "sink file:///x%00y: path holds a NUL",
		"file:///":                        "sink file:///: path names no file: write file:///path.ndjson",
		"file:///var/log/":                "sink file:///var/log/: path names no file: write file:///path.ndjson",
		"file:///a#b":                     "sink file:///a: a # in the path is written %23",
		"file://u:hunter2@/a":             "sink file://…@/a: takes no user",
		"file:///a?max_size=":             `sink file:///a?…: max_size: "" is not a size: write one with its unit, such as 64MiB, 100MB or 4096B`,
		"file:///a?max_size=100":          `sink file:///a?…: max_size: 100 has no unit: write 100MB, 100MiB or 100B`,
		"file:///a?max_size=1M":           `sink file:///a?…: max_size: "1M" is not a size: write one with its unit, such as 64MiB, 100MB or 4096B`,
		"file:///a?max_size=0B":           `sink file:///a?…: max_size: want 1B or more`,
		"file:///a?maxsize=1":             `sink file:///a?…: unknown option "maxsize": did you mean max_size? known are mode, max_size, rotate_every, compress, keep`,
		"file:///a?max_size=1&max_size=2": `sink file:///a?…: option "max_size" is given twice`,
		"file:///a?mode=0400":             wrongMode("0400"),
		"file:///a?mode=0777":             wrongMode("0777"),
		"file:///a?mode=4600":             wrongMode("4600"),
		"file:///a?mode=rw":               wrongMode("rw"),
		"file:///a?mode=0680":             wrongMode("0680"),
		"file:///a?rotate_every=1":        `sink file:///a?…: rotate_every: "1" is not usable: want 1s or more, such as 1h`,
		"file:///a?rotate_every=10ms":     `sink file:///a?…: rotate_every: "10ms" is not usable: want 1s or more, such as 1h`,
		"file:///a?compress=1":            `sink file:///a?…: compress: "1" is unknown: want gzip`,
		"file:///a?keep=0&max_size=1MB":   `sink file:///a?…: keep: "0" is not usable: want a number of rotated files, 1 or more`,
		"file:///a?keep=10":               `sink file:///a?…: compress and keep are about rotated files: add max_size or rotate_every`,
		"file:///a?compress=gzip":         `sink file:///a?…: compress and keep are about rotated files: add max_size or rotate_every`,
	} {
		if _, err := registry.New(raw); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", raw, err, want)
		}
	}
	if _, err := registry.New("file:///var/a%20b.ndjson?max_size=100MB"); err != nil {
		t.Error(err)
	}
}

func wrongMode(text string) string {
	return fmt.Sprintf("sink file:///a?…: mode: %q is not usable: want an octal number from 0600 to 0666 that lets the owner read and write", text)
}

func TestCheckFindsWhatNoRetryMends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                              "is a directory: write the path of a file in it",
		filepath.Join(dir, "none", "x"):  "none does not exist: make it first",
		filepath.Join(dir, "there", "x"): "",
		filepath.Join(dir, "there"):      "ok",
		filepath.Join(dir, "new"):        "ok",
	} {
		s, err := New(&url.URL{Scheme: "file", Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.(*Sink).Check(); want == "ok" && err != nil || want != "ok" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if after, err := os.ReadFile(filepath.Join(dir, "there")); string(after) != "torn" || err != nil {
		t.Errorf("the check wrote: %q, %v", after, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
		t.Errorf("the check made a file: %v", err)
	}
}
