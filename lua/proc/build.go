package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Build builds a main package of this module, such as "./cmd/spillway", into dir and returns the
// path of the program. It also opens the folders that the program is made of: go test keeps a
// result until something changes that the test opened, and does not see what the build reads. The
// program has no tables for a debugger, whose linking takes as long as all else.
func Build(dir, pkg string) (program string, err error) {
	root, err := run("", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	root = strings.TrimSpace(root)
	folders, err := run(root, "go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}", pkg)
	if err != nil {
		return "", err
	}
	for _, folder := range strings.Fields(folders) {
		if _, err := os.ReadDir(folder); err != nil {
			return "", err
		}
	}
	program = filepath.Join(dir, path.Base(pkg))
	_, err = run(root, "go", "build", "-ldflags=-s -w", "-o", program, pkg)
	return program, err
}

func run(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
