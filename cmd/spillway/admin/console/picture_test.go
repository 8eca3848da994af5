//go:build ui

package console

import (
	"fmt"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// On a phone nobody finds what lies a scroll to the right, or below.
func TestAPhoneReachesEveryActionAndSeesWhatItOpens(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.withQueues("welcome")
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 400, 900)
	shows(t, page, "kart-3")
	until(t, page, "the selector has every namespace", `[...document.querySelector("header select").options].map((o) => o.text).join() === "all 3,game,mail,sms"`)
	for _, label := range []string{"Pause game", "Purge game", "Peek into kart-3", "Purge kart-3"} {
		until(t, page, label+" is in the window", fmt.Sprintf(`(() => { const b = document.querySelector('[aria-label^=%q]')?.getBoundingClientRect(); return b && b.left >= 0 && b.right <= innerWidth && b.height >= 24; })()`, label))
	}
	picture(t, page, "phone", 400, 900)
	click(t, page, "sms")
	until(t, page, "the queues of sms are in sight", `(() => { const b = document.getElementById("queues-of")?.getBoundingClientRect(); return b?.top >= 0 && b.top < innerHeight / 2 && document.getElementById("queues-of").innerText.includes("sms"); })()`)
	picture(t, page, "phone-queues", 400, 900)
	until(t, page, "the queue's action is in the window", `document.querySelector('[aria-label^="Purge queue welcome"]')?.getBoundingClientRect().right <= innerWidth`)
	enter(t, page, "Namespace", "mail")
	until(t, page, "the queues of mail are shown", `document.getElementById("queues-of").innerText.includes("mail")`)
}

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
