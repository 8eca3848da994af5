package deploy

import (
	"os"
	"path/filepath"
	"testing"
)

// The chart has the files of this folder by symbolic links, which helm follows.
func TestTheChartHasNoAlertsAndDashboardOfItsOwn(t *testing.T) {
	t.Parallel()
	for link, file := range map[string]string{"alerts.yaml": alertsFile, "dashboard.json": dashboardFile} {
		got, err := filepath.EvalSymlinks("helm/spillway/files/" + link)
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := filepath.EvalSymlinks(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		a, errA := os.Stat(got)
		b, errB := os.Stat(want)
		if errA != nil || errB != nil || !os.SameFile(a, b) {
			t.Errorf("%s of the chart is %s, want %s: %v %v", link, got, want, errA, errB)
		}
	}
}
