//go:build clients || deploy

package deploy

import (
	"path/filepath"
	"testing"
)

// tagged is a clone of the last commit in a folder of its own, with the tag of the release.
func tagged(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "spillway")
	output(t, "git", "clone", "-q", ".", dir)
	output(t, "git", "-C", dir, "tag", "-f", "v"+releaseVersion(t))
	return dir
}
