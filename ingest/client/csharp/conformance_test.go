//go:build clients

// Package csharp holds the C# client. Its tests need Mono: make test-clients.
package csharp

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

func TestConformanceOnMono(t *testing.T) {
	t.Parallel()
	driver := filepath.Join(t.TempDir(), "driver.exe")
	out, err := exec.Command("mcs", "-langversion:7", "-warnaserror", "-r:System.Net.Http", "-out:"+driver, "Spillway.cs", "Driver.cs").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	clienttest.Run(t, clienttest.Process("mono", driver))
}
