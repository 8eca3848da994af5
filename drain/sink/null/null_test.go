package null

import (
	"net/url"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func open(raw string) (sink.Sink, error) { return sink.Registry{"null": New}.New(raw) }

func TestConforms(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		s, err := New(&url.URL{Scheme: "null"})
		if err != nil {
			t.Fatal(err)
		}
		return sinktest.Fixture{Sink: s}
	}})
}

func TestURLsWithMoreThanASchemeAreErrors(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"null:x":      `sink null:…: takes no path: write "null:"`,
		"null:///x":   `sink null:…: takes no path: write "null:"`,
		"null://host": `sink null://host: takes no path: write "null:"`,
		"null:?a=1":   `sink null:?…: unknown option "a": it takes none`,
	} {
		if _, err := open(raw); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}
