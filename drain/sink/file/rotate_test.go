package file

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
)

func TestNoFileIsLargerThanMaxSizeAndNoBatchIsSplit(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "max_size=1KB")
	var all []*sink.Batch
	for i := range 20 {
		b := batch(int64(1+i*2), `"one"`, `"two"`) // some 300 bytes: three to a file
		must(t, write(t, s, b))
		all = append(all, b)
	}
	if got, want := contents(t, path), lines(all...); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	must(t, err)
	if len(files) != 7 {
		t.Errorf("got %d files, want 7: %q", len(files), files)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		must(t, err)
		if info.Size() > 1000 || info.Mode() != 0o600 {
			t.Errorf("%s: %d bytes, mode %v", f, info.Size(), info.Mode())
		}
		if n := strings.Count(read(t, f), "\n"); n%2 != 0 {
			t.Errorf("%s holds half a batch", f)
		}
	}
}

func TestABatchBeyondMaxSizeHasAFileToItself(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "max_size=200")
	large := batch(2, strings.Repeat("x", 5000))
	for _, b := range []*sink.Batch{batch(1, "1"), large, batch(3, "3")} {
		must(t, write(t, s, b))
	}
	if got, want := contents(t, path), lines(batch(1, "1"), large, batch(3, "3")); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := read(t, path), lines(batch(3, "3")); got != want {
		t.Errorf("last file: got %q, want %q", got, want)
	}
}

func TestAFileThatIsFullAtOpenIsRotated(t *testing.T) {
	t.Parallel()
	old := strings.Repeat("{}\n", 100)
	s, path := opened(t, old, "max_size=300")
	must(t, write(t, s, batch(1, "1")))
	if got, want := read(t, path), lines(batch(1, "1")); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := contents(t, path), old+lines(batch(1, "1")); got != want {
		t.Errorf("all: got %q, want %q", got, want)
	}
}

func TestAFailedRotationWritesNothing(t *testing.T) {
	t.Parallel()
	// The renamed file's name would be longer than a name may be.
	path := filepath.Join(t.TempDir(), strings.Repeat("n", 240)+".ndjson")
	s := newSink(t, path, "max_size=200")
	must(t, s.Open(t.Context()))
	must(t, write(t, s, batch(1, "1")))
	for range 2 {
		if err := write(t, s, batch(2, "2")); err == nil || !strings.HasPrefix(err.Error(), "rotate file: ") || sink.IsPermanent(err) {
			t.Errorf("got %v, want a retryable error", err)
		}
	}
	if got, want := read(t, path), lines(batch(1, "1")); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	must(t, s.Close(t.Context()))
}
