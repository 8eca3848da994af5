package deploy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/cmd/spillway/app/apptest"
)

// root is the repository, seen from the folder tests run in.
const root = ".."

// binary is the path of the program.
var binary string

func TestMain(m *testing.M) { apptest.Main(m, &binary) }

// read is the text of a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// reads opens every folder of the repository, for a test that runs a program there: go test keeps a
// result until something changes that the test opened, and does not see what its programs read.
var reads = sync.OnceValue(func() error {
	return filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "tmp"}, d.Name()) {
			return fs.SkipDir
		}
		return err
	})
})

// output runs a program in the repository and returns what it prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	if err := reads(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
