package file

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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
