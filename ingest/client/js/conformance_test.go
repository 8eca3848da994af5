//go:build clients

// Package js holds the JavaScript client. Its tests need Node and Chromium: make test-clients.
package js

import (
	"bytes"
	"compress/gzip"
	"os/exec"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

func TestConformanceOnNode(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, clienttest.Process("node", "driver.mjs"))
}

func TestPagesOnNode(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("node", "--test", "page_test.mjs").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestItIsSmall(t *testing.T) {
	t.Parallel()
	minified, err := exec.Command("go", "run", "github.com/evanw/esbuild/cmd/esbuild@v0.25.0", "--minify", "spillway.js").Output()
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(minified); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := packed.Len(); n < 1000 || n > 5000 {
		t.Errorf("minified and gzipped it has %d bytes, want 5,000 at most", n)
	}
}
