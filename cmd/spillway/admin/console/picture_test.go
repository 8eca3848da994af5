//go:build ui

package console

import (
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// With -args -shots FOLDER the first two pictures are those of the README:
// deploy/console.png and deploy/console-narrow.png.
func TestThePageFitsBothWidths(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.inTrouble()
	browser := chromium.Start(t)
	for _, shot := range []struct {
		name, scheme  string
		width, height int
	}{{"console", "dark", 1280, 1180}, {"console-narrow", "light", 400, 900}, {"whole", "light", 1280, 2000}, {"whole-narrow", "dark", 400, 2900}} {
		page, _ := visit(t, browser, f.URL+"/", shot.width, shot.height)
		if err := page.Prefer(shot.scheme); err != nil {
			t.Fatal(err)
		}
		shows(t, page, "kart-3")
		until(t, page, "charts are drawn", `document.querySelectorAll("canvas").length === 2`)
		until(t, page, "nothing is wider than the window", `document.documentElement.scrollWidth <= innerWidth`)
		picture(t, page, shot.name, shot.width, shot.height)
	}
}
