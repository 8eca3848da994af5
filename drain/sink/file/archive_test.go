package file

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/spillway-io/spillway/drain/sink"
)

// uncompressed is what a gzip file holds.
func uncompressed(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	b, err := io.ReadAll(z)
	must(t, err)
	return string(b)
}

func TestRotatedFilesAreCompressed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.ndjson")
	s := newSink(t, path, "max_size=1KB&compress=gzip")
	must(t, s.Open(t.Context()))
	var all []*sink.Batch
	for i := range 20 {
		all = append(all, batch(int64(1+i*2), `"one"`, `"two"`))
		must(t, write(t, s, all[i]))
	}
	must(t, s.Close(t.Context()))
	if got, want := contents(t, path), lines(all...); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	must(t, newArchiver(path, true, 0).work(t.Context())) // what Close has interrupted
	compressed := 0
	for _, name := range names(t, path) {
		switch {
		case strings.HasSuffix(name, ".ndjson.gz"):
			compressed++
		case name != "events.ndjson":
			t.Errorf("%s is left", name)
		}
	}
	if compressed != 6 {
		t.Errorf("got %d compressed files, want 6", compressed)
	}
	if got, want := contents(t, path), lines(all...); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// rotated files of an earlier process, the oldest first; .gz is made of the others.
func rotatedFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("plain "+name+"\n"), 0o640))
	}
}

func TestTheNewestRotatedFilesAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rotatedFiles(t, dir,
		"kart-2026-01-01T00-00-00.000-size.ndjson",
		"kart-2026-01-01T00-00-00.000-size.ndjson.gz.tmp",
		"kart-2026-01-02T00-00-00.000-time.ndjson.gz",
		"kart-2026-01-03T00-00-00.000-size.ndjson",
		"kart-2026-01-03T00-00-00.000-size_2.ndjson",
		"kart-2026-01-03T00-00-00.000-size_10.ndjson",
	)
	others := []string{ // none of them is a rotated file of kart.ndjson
		"kart-eu-2026-01-01T00-00-00.000-size.ndjson", "kart-2026-01-01.ndjson", "kart-2026-01-01T00-00-00.000-size.ndjson.bak", "kart-2026-01-01T00-00-00.000-mine.ndjson",
		"xkart-2026-01-01T00-00-00.000-size.ndjson", "kart-2026-01-01T00-00-00.000-size.log", "kart.ndjson",
	}
	rotatedFiles(t, dir, others...)
	must(t, os.Mkdir(filepath.Join(dir, "kart-2026-01-01T00-00-00.001-size.ndjson"), 0o700))
	must(t, os.Symlink(filepath.Join(dir, "kart.ndjson"), filepath.Join(dir, "kart-2026-01-01T00-00-00.002-size.ndjson")))
	path := filepath.Join(dir, "kart.ndjson")
	must(t, newArchiver(path, false, 6).work(t.Context()))
	checkRotated(t, path, others, []string{"kart-2026-01-01T00-00-00.000-size.ndjson", "kart-2026-01-01T00-00-00.000-size.ndjson.gz.tmp", "kart-2026-01-02T00-00-00.000-time.ndjson.gz",
		"kart-2026-01-03T00-00-00.000-size.ndjson", "kart-2026-01-03T00-00-00.000-size_10.ndjson", "kart-2026-01-03T00-00-00.000-size_2.ndjson"})
	must(t, newArchiver(path, false, 4).work(t.Context()))
	checkRotated(t, path, others, []string{"kart-2026-01-02T00-00-00.000-time.ndjson.gz", "kart-2026-01-03T00-00-00.000-size.ndjson",
		"kart-2026-01-03T00-00-00.000-size_10.ndjson", "kart-2026-01-03T00-00-00.000-size_2.ndjson"})
	must(t, newArchiver(path, true, 2).work(t.Context()))
	checkRotated(t, path, others, []string{"kart-2026-01-03T00-00-00.000-size_10.ndjson.gz", "kart-2026-01-03T00-00-00.000-size_2.ndjson.gz"})
	if got, want := uncompressed(t, filepath.Join(dir, "kart-2026-01-03T00-00-00.000-size_2.ndjson.gz")), "plain kart-2026-01-03T00-00-00.000-size_2.ndjson\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func checkRotated(t *testing.T, path string, others, want []string) {
	t.Helper()
	got := slices.DeleteFunc(names(t, path), func(name string) bool {
		return slices.Contains(others, name) || name == "kart-2026-01-01T00-00-00.001-size.ndjson" || name == "kart-2026-01-01T00-00-00.002-size.ndjson"
	})
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := len(names(t, path)) - len(got); n != len(others)+2 {
		t.Errorf("%d other files are left, want %d", n, len(others)+2)
	}
}

func TestACrashDuringCompressionLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, name := filepath.Join(dir, "kart.ndjson"), "kart-2026-01-03T00-00-00.000-size.ndjson"
	rotatedFiles(t, dir, name, name+".gz.tmp") // before the rename
	must(t, newArchiver(path, true, 0).work(t.Context()))
	want := "plain " + name + "\n"
	if got := uncompressed(t, filepath.Join(dir, name+".gz")); got != want || len(names(t, path)) != 1 {
		t.Errorf("got %q, %q", got, names(t, path))
	}
	rotatedFiles(t, dir, name) // between the rename and the removal
	must(t, newArchiver(path, true, 0).work(t.Context()))
	if got := uncompressed(t, filepath.Join(dir, name+".gz")); got != want || len(names(t, path)) != 1 {
		t.Errorf("got %q, %q", got, names(t, path))
	}
}

func TestAFileThatCannotBeCompressedStaysAndCloseSaysSo(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "max_size=200B&compress=gzip")
	must(t, s.Close(t.Context()))
	good, bad := "events-2026-01-03T00-00-00.000-size.ndjson", "events-2026-01-02T00-00-00.000-size.ndjson"
	rotatedFiles(t, filepath.Dir(path), good, bad)
	must(t, os.MkdirAll(filepath.Join(filepath.Dir(path), bad+".gz.tmp", "in the way"), 0o700))
	must(t, s.Open(t.Context()))
	for range 2 { // taken when the round before it has ended
		s.archiver.due <- struct{}{}
	}
	err := s.Close(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "archive rotated files: compress "+bad+": ") {
		t.Errorf("got %v", err)
	}
	if got, want := names(t, path), []string{bad, bad + ".gz.tmp", good + ".gz", "events.ndjson"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
