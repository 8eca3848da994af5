package file

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

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
	s, path := opened(t, "", "max_size=200B")
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
	s, path := opened(t, old, "max_size=300B")
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
	s := newSink(t, path, "max_size=200B")
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

// names are those of the files in the folder of path, in order.
func names(t *testing.T, path string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestAFileHasTheLinesOfOneIntervalOnly(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "rotate_every=1h")
	start := time.Now().UTC().Truncate(time.Hour).Add(2 * time.Hour)
	at := func(d time.Duration) { s.now = func() time.Time { return start.Add(d) } }
	next := int64(0)
	one := func() { next++; must(t, write(t, s, batch(next, `"x"`))) }

	at(time.Minute)
	one()
	at(59*time.Minute + 59*time.Second)
	one()
	if got := names(t, path); len(got) != 1 {
		t.Errorf("rotated within the hour: %q", got)
	}
	at(time.Hour)
	one() // rotates
	at(30 * time.Minute)
	one() // the clock went back
	at(5 * time.Hour)
	must(t, os.Truncate(path, 0))
	one() // an empty file need not be rotated
	at(6 * time.Hour)
	one() // rotates
	if got := names(t, path); len(got) != 3 {
		t.Errorf("got %q, want two rotated files", got)
	} else {
		form := regexp.MustCompile(`^events-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}-time(_1)?\.ndjson$`)
		for _, name := range got[:2] {
			if !form.MatchString(name) {
				t.Errorf("got the name %s", name)
			}
		}
	}
	if got, want := contents(t, path), lines(batch(1, `"x"`), batch(2, `"x"`), batch(5, `"x"`), batch(6, `"x"`)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestARestartKeepsTheInterval(t *testing.T) {
	t.Parallel()
	hour := time.Now().UTC().Truncate(time.Hour)
	for rotated, last := range map[bool]time.Time{false: hour.Add(time.Second), true: hour.Add(-time.Second)} {
		path := filepath.Join(t.TempDir(), "events.ndjson")
		must(t, os.WriteFile(path, []byte("{}\n"), 0o600))
		must(t, os.Chtimes(path, last, last))
		s := newSink(t, path, "rotate_every=1h")
		s.now = func() time.Time { return hour.Add(time.Minute) }
		must(t, s.Open(t.Context()))
		must(t, write(t, s, batch(1, "1")))
		must(t, s.Close(t.Context()))
		if got := len(names(t, path)) == 2; got != rotated {
			t.Errorf("last written %s: rotated is %t", last, got)
		}
	}
}

func TestSizeAndTimeRotateTogether(t *testing.T) {
	t.Parallel()
	s, path := opened(t, "", "rotate_every=1h&max_size=200B")
	for i := range 3 {
		must(t, write(t, s, batch(int64(1+i), `"x"`)))
	}
	later := time.Now().Add(time.Hour)
	s.now = func() time.Time { return later }
	must(t, write(t, s, batch(4, `"x"`)))
	var reasons []string
	for _, name := range names(t, path) {
		if m := regexp.MustCompile(`-(size|time)(_\d+)?\.ndjson$`).FindStringSubmatch(name); m != nil {
			reasons = append(reasons, m[1])
		}
	}
	slices.Sort(reasons)
	if want := []string{"size", "size", "time"}; !slices.Equal(reasons, want) {
		t.Errorf("got %q, want %q", reasons, want)
	}
}

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
