package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOriginsAreThoseOfTheirNamespace(t *testing.T) {
	t.Parallel()
	const file = `
namespaces:
  kart: {cors_origins: ["https://kart.example", "http://localhost:5173"]}
  chess: {cors_origins: "*"}
  go: {cors_origins: ["*"]}
  default: {}
`
	c, err := loadConfig(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"kart": {"https://kart.example", "http://localhost:5173"}, "chess": {"*"}, "go": {"*"}, "default": nil}
	if got := c.Ingest().CORSOrigins; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", path)
	if code != exitOK || !strings.Contains(out, `['https://kart.example', 'http://localhost:5173']`) || !strings.Contains(out, `cors_origins: ['*']`) {
		t.Errorf("got %d %s\n%s", code, stderr, out)
	}
	again, err := loadConfig(t, nil, nil, out)
	if err != nil || fmt.Sprint(again.Ingest().CORSOrigins) != fmt.Sprint(want) {
		t.Errorf("what is printed reads as %v, %v", again.Ingest().CORSOrigins, err)
	}
}
