//go:build unix

package command

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

const examples = "../../../deploy/examples/exec/"

func TestTheShellExampleConforms(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("an example, and some processes a batch")
	}
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		dir := filepath.Join(t.TempDir(), "batches")
		must(t, os.Mkdir(dir, 0o700))
		return sinktest.Fixture{
			Sink: newSink(t, "/bin/sh", examples+"plugin.sh", dir),
			Received: func() ([]sinktest.Record, error) {
				files, err := filepath.Glob(dir + "/*")
				if err != nil {
					return nil, err
				}
				// The names begin with the sequence; real ones have 16 digits each.
				slices.SortFunc(files, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
				var all []byte
				for _, f := range files {
					lines, err := os.ReadFile(f)
					if err != nil {
						return nil, err
					}
					all = append(all, lines...)
				}
				return sinktest.ParseLines(all)
			},
			Faults: []sinktest.Fault{{Name: "no folder", Start: func() func() {
				must(t, os.Rename(dir, dir+"-away"))
				return func() { must(t, os.Rename(dir+"-away", dir)) }
			}}},
		}
	}})
}
