//go:build clients

package js

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest"
	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// site serves the module and pages that load it.
func site(t *testing.T) (url string) {
	t.Helper()
	files := http.FileServer(http.Dir("."))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/driver.html":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<script type="module">import { drive } from "./driver.mjs"; globalThis.drive = drive</script>`)
		default:
			if r.URL.Path == "/driver.mjs" {
				w.Header().Set("Content-Type", "text/javascript")
			}
			files.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(web.Close)
	return web.URL
}

// driver is a page that runs the suite's commands. Reports go to it together, because a
// command of its own takes longer for each than the report.
type driver struct {
	page    *chromium.Page
	answers bytes.Buffer
	wake    chan struct{}

	sending sync.Mutex // keeps reports in order, before the commands that follow
	mu      sync.Mutex
	reports []string
}

// send passes on the reports that wait, with the commands behind them, and returns the last answer.
func (d *driver) send(commands ...string) (answer json.RawMessage, err error) {
	d.sending.Lock()
	defer d.sending.Unlock()
	d.mu.Lock()
	lines := append(d.reports, commands...)
	d.reports = nil
	d.mu.Unlock()
	if len(lines) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(lines)
	if err != nil {
		return nil, err
	}
	err = d.page.Eval("Promise.all("+string(text)+".map(drive)).then(answers => answers.at(-1))", &answer)
	return answer, err
}

// Write runs a command, or notes a report.
func (d *driver) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`"op":"report"`)) {
		d.mu.Lock()
		d.reports = append(d.reports, string(line))
		d.mu.Unlock()
		select {
		case d.wake <- struct{}{}:
		default:
		}
		return len(line), nil
	}
	answer, err := d.send(string(line))
	d.answers.Write(append(answer, '\n'))
	return len(line), err
}

func (d *driver) Read(p []byte) (int, error) { return d.answers.Read(p) }

func TestConformanceInChromium(t *testing.T) {
	t.Parallel()
	browser, pages := chromium.Start(t), site(t)
	clienttest.Run(t, func(t testing.TB, url string, o clienttest.Options) clienttest.SDK {
		t.Helper()
		d := &driver{page: browser.Open(t, pages+"/driver.html"), wake: make(chan struct{}, 1)}
		go func() {
			for range d.wake {
				if _, err := d.send(); err != nil {
					t.Errorf("report: %v", err)
				}
			}
		}()
		t.Cleanup(func() { close(d.wake); _ = d.page.Close() })
		return clienttest.Drive(t, d, d, url, o)
	}, "a reporter without a hook warns once of each failure", "hooks that throw change nothing") // on the page's console
}
