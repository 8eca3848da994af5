//go:build clients

package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// pageToken is in the pages, and must be in no log.
const pageToken = "page-t0ken-of-kart"

// site serves the JavaScript client and a page that imports its Reporter.
func site(t *testing.T) (url string) {
	t.Helper()
	module, err := os.ReadFile("../../../ingest/client/js/reporter.js")
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reporter.js" {
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = w.Write(module)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<script type="module">import { Reporter } from "/reporter.js"; globalThis.Reporter = Reporter</script>`)
	}))
	t.Cleanup(web.Close)
	return web.URL
}

// forPages is a server whose namespace kart has a token, and a file for its entries.
type forPages struct {
	*server
	url, file string
}

// serveForPages lists origins for kart; "" lists none.
func serveForPages(t *testing.T, origins string) *forPages {
	t.Helper()
	dir := t.TempDir()
	p := &forPages{file: filepath.Join(dir, "kart.ndjson")}
	config := fmt.Sprintf("namespaces:\n  kart:\n    linger: 50ms\n    sink: \"file://%s\"\n    tokens:\n      - \"sha256:%x\"\n      - {hash: \"sha256:%x\", name: slow, rate: 1/h}\n",
		p.file, sha256.Sum256([]byte(pageToken)), sha256.Sum256([]byte("slow")))
	if origins != "" {
		config += "    cors_origins: " + origins + "\n"
	}
	path := filepath.Join(dir, "spillway.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.server = serve(t, "--config", path, "--log-level", "debug", "--max-entries", "200").ready(http.StatusOK)
	p.url = "http://" + p.data
	return p
}

// ids are those of the entries in the file that have one.
func (p *forPages) ids() (list []string) {
	p.t.Helper()
	f, err := os.Open(p.file)
	if err != nil {
		return nil // not written yet
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct{ ID string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.ID != "" {
			list = append(list, line.ID)
		}
	}
	return list
}

// endsWith ends the server, and checks that it delivered these ids once each and that its
// log has no token.
func (p *forPages) endsWith(want []string) {
	p.t.Helper()
	slices.Sort(want)
	eventually(p.t, fmt.Sprintf("%d entries are delivered", len(want)), func() bool { return len(p.ids()) >= len(want) })
	if code := p.terminate(); code != 0 {
		p.t.Errorf("exit code %d", code)
	}
	got := p.ids()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		p.t.Errorf("delivered %d ids, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
	if log := p.log.String(); strings.Contains(log, pageToken) || strings.Contains(log, "k=") || len(log) == 0 {
		p.t.Errorf("the log has a token, or nothing:\n%s", log)
	}
}

// report makes a client in the page and reports entries with the ids a0, a1, … to it.
func report(t *testing.T, page *chromium.Page, url, options string, a string, n int) (ids []string) {
	t.Helper()
	script := fmt.Sprintf(`globalThis.events = new Reporter(%q, { namespace: "kart", token: %q, %s })
		for (let i = 0; i < %d; i++) events.report("lap-" + i %% 3, { i, text: "x".repeat(50) }, { id: %q + i })`, url, pageToken, options, n, a)
	if err := page.Eval(script+"; 0", nil); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		ids = append(ids, fmt.Sprint(a, i))
	}
	return ids
}

func TestBrowserWhatAPageHasWhenItGoesArrivesOnce(t *testing.T) {
	t.Parallel()
	browser, pages := chromium.Start(t), site(t)
	for name, leave := range map[string]func(*chromium.Page) error{
		"its user closes it":         (*chromium.Page).Close,
		"its user goes elsewhere":    func(p *chromium.Page) error { return p.Go("about:blank") },
		"its user loads it again":    func(p *chromium.Page) error { return p.Go(pages) },
		"its user opens another tab": func(p *chromium.Page) error { return p.Cover() },
	} {
		for how, options := range map[string]string{
			"it waits for more": "linger: 1e6", // all goes by beacon
			"requests are open": "linger: 0",   // some has been sent, and the page does not know it yet
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				s := serveForPages(t, `["`+pages+`"]`)
				page := browser.Open(t, pages)
				// Fewer than a batch of the client and than 64 KiB, so that all of it fits a beacon.
				ids := report(t, page, s.url, options, "e", 100)
				if err := leave(page); err != nil {
					t.Fatal(err)
				}
				s.endsWith(ids)
			})
		}
	}
}

func TestBrowserRejectsPagesThatAreNotListed(t *testing.T) {
	t.Parallel()
	browser, listed, other := chromium.Start(t), site(t), site(t)
	for name, row := range map[string]struct {
		origins, page string
		reads         bool
	}{
		"a listed page":            {`["http://localhost:1", "` + listed + `"]`, listed, true},
		"another page":             {`["` + listed + `"]`, other, false},
		"every page":               {`"*"`, other, true},
		"a namespace without any":  {"", other, false},
		"a name that it begins by": {`["` + other[:len(other)-1] + `"]`, other, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveForPages(t, row.origins)
			page := browser.Open(t, row.page)
			var want []string
			ids := report(t, page, s.url, "linger: 0, backoffMax: 1, breakAfter: 1000", "e", 5)
			var stats struct {
				Acked   int
				Dropped map[string]int
			}
			if err := page.Eval("events.flush(20000).then(() => events.stats())", &stats); err != nil {
				t.Fatal(err)
			}
			if row.reads {
				want = ids
			}
			if stats.Acked != len(want) || row.reads == (stats.Dropped["retries_exhausted"] > 0) {
				t.Errorf("the page counts %+v", stats)
			}
			for _, c := range []struct{ name, request, want string }{
				{"401", `{ method: "POST", body: "x", headers: { Authorization: "Bearer wrong" } }`, "401 unauthorized"},
				{"413", `{ method: "POST", body: "1\n".repeat(201), headers: { Authorization: "Bearer ` + pageToken + `", "Content-Type": "application/x-ndjson" } }`, "413 too_many_entries"},
				{"429", `{ method: "POST", body: "1\n".repeat(150), headers: { Authorization: "Bearer slow", "Content-Type": "application/x-ndjson" } }`, "429 rate_limited Retry-After"},
				{"400", `{ method: "POST", body: "", headers: { Authorization: "Bearer ` + pageToken + `", "Idempotency-Key": "k", "X-Sent-At": "1", Prefer: "return=minimal" } }`, "400 empty_body"},
				{"404", `{ headers: { Authorization: "Bearer ` + pageToken + `" } }`, "404 no_such_partition"},
			} {
				const ask = `(async request => {
					try {
						for (;;) {
							const r = await fetch(%q, request), text = await r.text()
							if (r.status === 200) continue // within the burst of a rate
							return r.status + " " + JSON.parse(text).error + (r.headers.get("Retry-After") ? " Retry-After" : "")
						}
					} catch (e) { return e.name }
				})(%s)`
				var got string
				if err := page.Eval(fmt.Sprintf(ask, s.url+"/v1/kart/none", c.request), &got); err != nil {
					t.Fatal(err)
				}
				if !row.reads {
					c.want = "TypeError"
				}
				if got != c.want {
					t.Errorf("%s: the page sees %q, want %q", c.name, got, c.want)
				}
			}
			// A page needs no permission for a beacon of text.
			const beacon = `navigator.sendBeacon(%q, new Blob([%q], { type: %q }))`
			if err := page.Eval(fmt.Sprintf(beacon, s.url+"/beacon/kart?k="+pageToken, `[{"partition":"b","id":"text","data":1}]`, "text/plain"), nil); err != nil {
				t.Fatal(err)
			}
			want = append(want, "text")
			// A beacon of JSON asks, with cookies: only a listed origin may.
			if err := page.Eval(fmt.Sprintf(beacon, s.url+"/beacon/kart?k="+pageToken, `[{"partition":"b","id":"json","data":1}]`, "application/json"), nil); err != nil {
				t.Fatal(err)
			}
			if row.reads && row.origins != `"*"` {
				want = append(want, "json")
			}
			s.endsWith(want)
		})
	}
}

func TestBrowserWhatNoBeaconHoldsIsSentByTheNextPage(t *testing.T) {
	t.Parallel()
	browser, pages := chromium.Start(t), site(t)
	s := serveForPages(t, `["`+pages+`"]`)
	page := browser.Open(t, pages)
	ids := report(t, page, s.url, "linger: 1e6, batch: 1000, storage: localStorage", "e", 600) // about 200 KB
	if err := page.Go(pages + "/next"); err != nil {
		t.Fatal(err)
	}
	ids = append(ids, report(t, page, s.url, "linger: 0, batch: 100, storage: localStorage", "n", 1)...)
	s.endsWith(ids)
}
