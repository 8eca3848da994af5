//go:build clients

package deploy

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clientPackages runs clients.sh in a clone, as a user with such a umask. It returns a folder.
func clientPackages(t *testing.T, umask string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	output(t, "sh", "-c", "umask "+umask+" && cd "+tagged(t)+" && deploy/packages/clients.sh "+dir)
	return dir
}

func TestClientPackagesAreTheSameFromEachClone(t *testing.T) {
	t.Parallel()
	version := releaseVersion(t)
	one, other := clientPackages(t, "022"), clientPackages(t, "077")
	for _, name := range []string{
		"spillway-chart-" + version + ".tgz", "spillway-io-spillway-" + version + ".tgz", "spillway-" + version + ".tar.gz",
		"spillway-" + version + "-py3-none-any.whl", "spillway-" + version + ".jar", "Spillway." + version + ".nupkg",
	} {
		a, err := os.ReadFile(filepath.Join(one, name))
		b, errOther := os.ReadFile(filepath.Join(other, name))
		if err != nil || errOther != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %v, %v, or the bytes differ", name, err, errOther)
		}
	}
	chartHasItsAlerts(t, filepath.Join(one, "spillway-chart-"+version+".tgz"))
	nugetCompiles(t, filepath.Join(one, "Spillway."+version+".nupkg"), version)
}

// In the tree they are links out of the chart.
func chartHasItsAlerts(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if err != nil {
			t.Fatalf("the chart has no alerts: %v", err)
		}
		if h.Name == "spillway/files/alerts.yaml" {
			text, err := io.ReadAll(archive)
			if err != nil || string(text) != read(t, "deploy/prometheus/alerts.yaml") {
				t.Errorf("the chart has other alerts: %v", err)
			}
			return
		}
	}
}

// There is no NuGet where this runs: what the package names is compiled.
func nugetCompiles(t *testing.T, file, version string) {
	t.Helper()
	archive, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	text, err := readAll(archive, "Spillway.nuspec")
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Metadata struct {
			ID           string `xml:"id"`
			Version      string `xml:"version"`
			License      string `xml:"license"`
			Readme       string `xml:"readme"`
			ContentFiles struct {
				Files struct {
					Include     string `xml:"include,attr"`
					BuildAction string `xml:"buildAction,attr"`
				} `xml:"files"`
			} `xml:"contentFiles"`
		} `xml:"metadata"`
	}
	if err := xml.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	m := spec.Metadata
	if m.ID != "Spillway" || m.Version != version || m.License != "Apache-2.0" || m.ContentFiles.Files.BuildAction != "Compile" {
		t.Errorf("got %+v", m)
	}
	if _, err := readAll(archive, m.Readme); err != nil {
		t.Error(err)
	}
	source, err := readAll(archive, "contentFiles/"+m.ContentFiles.Files.Include)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "Spillway.cs")
	if err := os.WriteFile(path, source, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("mcs", "-langversion:7", "-warnaserror", "-r:System.Net.Http", "-target:library", "-out:"+strings.TrimSuffix(path, "cs")+"dll", path).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func readAll(archive *zip.ReadCloser, name string) ([]byte, error) {
	f, err := archive.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(f)
}
