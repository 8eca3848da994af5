// Package apptest makes the binary of a test the program. Its tests run spillway without a second
// build, and go test, which keeps results until a package of the binary changes, runs them again
// whenever the program changes.
package apptest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spillway-io/spillway/cmd/spillway/app"
)

// name is what a link to the binary is called under which it is the program.
const name = "spillway"

// Main is the TestMain of a package whose tests run the program, by the path that it puts into
// program.
func Main(m *testing.M, program *string) {
	if filepath.Base(os.Args[0]) == name {
		app.Main() // it exits
	}
	code, err := run(m, program)
	if err != nil {
		fmt.Fprintln(os.Stderr, "link the program:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, program *string) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "spillway-program-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	*program = filepath.Join(dir, name)
	if err := os.Symlink(self, *program); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
