package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTargetsCountWhatTheyGot(t *testing.T) {
	t.Parallel()
	hook, err := webhookTarget(t.Context(), settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer hook.close()
	for range 2 {
		resp, err := http.Post(hook.url, "application/x-ndjson", strings.NewReader("1\n2\n3\n"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("got %s", resp.Status)
		}
	}
	if n, err := hook.received(t.Context()); n != 6 || err != nil {
		t.Errorf("the webhook: %d lines, %v; want 6", n, err)
	}
	path := filepath.Join(t.TempDir(), "out.ndjson")
	if err := os.WriteFile(path, []byte("1\n2\nhalf a line"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := countLines(path); n != 2 || err != nil {
		t.Errorf("the file: %d lines, %v; want 2", n, err)
	}
}
