package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The code in the document builds in a module of one's own, with the command for a clone.
func TestTheGoCodeOfTheQueuesBuildsInAModuleOfItsOwn(t *testing.T) {
	t.Parallel()
	code := found("(?ms)^```go\n(.*?)^```", read(t, queues))
	edit := found("`go (mod edit [^`]+)`", read(t, queues))
	path := found("import `([^`]+)`", read(t, queues))
	if len(code) != 1 || len(edit) != 1 || len(path) != 1 {
		t.Fatalf("%d blocks of code, %d commands and %d imports, want one of each", len(code), len(edit), len(path))
	}
	clone, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := "package worker\n\nimport (\n\"context\"\n\"time\"\n\n\"" + path[0] + "\"\n)\n\n" +
		"func work(ctx context.Context, payload []byte, send func(context.Context, []byte) error) error {\n" + code[0] + "return err\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "worker.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	inPlugin(t, dir, "go", "mod", "init", "example.com/worker")
	inPlugin(t, dir, "go", strings.Fields(strings.ReplaceAll(edit[0], "/path/to/the/clone", clone))...)
	inPlugin(t, dir, "go", "vet", ".")
}
