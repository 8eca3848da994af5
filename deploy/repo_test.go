package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// root is the repository, seen from the folder tests run in.
const root = ".."

func TestMain(m *testing.M) {
	code := m.Run()
	if dir := binaryDir; dir != "" {
		_ = os.RemoveAll(dir) // a temp folder
	}
	os.Exit(code)
}

var binaryDir string // set by build, read when all tests have ended

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "spillway-deploy-")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	path := filepath.Join(dir, "spillway")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/spillway")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	return path, cmd.Run()
})

// binary is the path of a spillway built for this run.
func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatalf("go build ./cmd/spillway: %v", err)
	}
	return path
}

// read is the text of a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// output runs a program in the repository and returns what it prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
