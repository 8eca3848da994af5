package deploy

import "testing"

// versions are where each package says its version.
var versions = map[string]string{
	"deploy/helm/spillway/Chart.yaml":      `(?m)^(?:version|appVersion): (.*)$`,
	"ingest/client/python/pyproject.toml":  `(?m)^version = "(.*)"$`,
	"ingest/client/js/package.json":        `"version": "(.*)"`,
	"ingest/client/java/pom.xml":           `(?m)^  <version>(.*)</version>$`,
	"ingest/client/java/README.md":         "`io.spillway:spillway:(.*?)`",
	"ingest/client/csharp/Spillway.csproj": `<Version>(.*)</Version>`,
	"ingest/client/php/composer.json":      `"version": "(.*)"`,
	"deploy/OPERATING.md":                  `spillway_([0-9][0-9.]*)_`,
	"README.md":                            `spillway_([0-9][0-9.]*)_`,
}

// releaseVersion is the one version of the chart and of all packages.
func releaseVersion(t *testing.T) string {
	t.Helper()
	list := found(versions["deploy/helm/spillway/Chart.yaml"], read(t, "deploy/helm/spillway/Chart.yaml"))
	if len(list) != 1 {
		t.Fatalf("the chart has the versions %q", list)
	}
	return list[0]
}

func TestEveryPackageHasOneVersion(t *testing.T) {
	t.Parallel()
	want := releaseVersion(t)
	for file, pattern := range versions {
		if got := found(pattern, read(t, file)); len(got) != 1 || got[0] != want {
			t.Errorf("%s has the versions %q, the chart has %s", file, got, want)
		}
	}
}
