//go:build ui

package console

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// login is that in an address.
var login = regexp.MustCompile(`//[^/@]*@`)

// shots is where tests put pictures of the page, for people to look at.
var shots = flag.String("shots", "", "folder for pictures of the page")

// visit opens the console in a window of that size and records what it does. The test fails when
// the page reports an error, or asks anything of another origin.
func visit(t *testing.T, browser *chromium.Browser, url string, width, height int) (*chromium.Page, *chromium.Record) {
	t.Helper()
	origin := regexp.MustCompile(`^[a-z]+://[^/]*/?`).FindString(login.ReplaceAllString(url, "//"))
	page := browser.Open(t, "about:blank")
	record, err := page.Watch()
	if err == nil {
		err = page.Resize(width, height)
	}
	if err == nil {
		err = page.Go(url)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, said := range record.Errors() {
			if !strings.Contains(said, "/api/v1/") { // rejections, which the page says in words
				t.Errorf("the page reports: %s", said)
			}
		}
		for _, asked := range record.Requests() {
			// The picture in an input of a date comes with the browser.
			if asked != "about:blank" && !strings.HasPrefix(asked, "data:image/svg+xml;") && !strings.HasPrefix(login.ReplaceAllString(asked, "//"), origin) {
				t.Errorf("the page asked %s", asked)
			}
		}
		if t.Failed() {
			var text string
			_ = page.Eval("document.body?.innerText", &text)
			t.Logf("the page shows:\n%s", text)
		}
	})
	return page, record
}

// patience is what a page may take; only a failing test takes so long.
const patience = 2 * time.Minute

// until waits for an expression to be true in the page.
func until(t *testing.T, page *chromium.Page, what, expression string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		var yes bool
		err := page.Eval("Boolean("+expression+")", &yes)
		switch {
		case err == nil && yes:
			return
		case time.Now().After(deadline):
			t.Fatalf("not within %v: %s (%s): %v", patience, what, expression, err)
		}
		// The page answers within a frame; this is no busy loop.
		if err := page.Eval("new Promise((done) => setTimeout(done, 30))", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// shows waits for a text somewhere in the page.
func shows(t *testing.T, page *chromium.Page, text string) {
	t.Helper()
	until(t, page, fmt.Sprintf("the page shows %q", text), fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// click presses the first button whose text or label is this.
func click(t *testing.T, page *chromium.Page, button string) {
	t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("dialog[open] button, button")].find((b) => [b.innerText.trim(), b.ariaLabel].includes(%q))`, button)
	until(t, page, "there is a button "+button, find)
	if err := page.Eval(find+".click()", nil); err != nil {
		t.Fatal(err)
	}
}

// enter types a text into the field with this label, as an input event and a change.
func enter(t *testing.T, page *chromium.Page, label, text string) {
	t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("dialog[open] label, label")].find((l) => l.innerText.trim().startsWith(%q))?.querySelector("input, select")`, label)
	until(t, page, "there is a field "+label, find)
	err := page.Eval(fmt.Sprintf(`{ const field = %s; field.focus(); field.value = %q; field.dispatchEvent(new Event("input", { bubbles: true })); field.dispatchEvent(new Event("change", { bubbles: true })); }`, find, text), nil)
	if err != nil {
		t.Fatal(err)
	}
}

// picture keeps what the page shows, where -shots says so.
func picture(t *testing.T, page *chromium.Page, name string, width, height int) {
	t.Helper()
	if *shots == "" {
		return
	}
	png, err := page.Screenshot(width, height)
	if err == nil {
		err = os.WriteFile(filepath.Join(*shots, name+".png"), png, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
