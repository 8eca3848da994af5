//go:build clients

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// pageSDKs are SDKs of other vendors as a page loads them: the folder of their scripts,
// the script, and what the page runs to send the events 0 to 4 to a URL.
var pageSDKs = map[string]struct{ folder, script, send string }{
	"posthog": {"posthog-js/dist", "array.no-external.js", `
		posthog.init("kart-key", {
			api_host: %q + "/posthog", autocapture: false, capture_pageview: false, capture_pageleave: false, disable_session_recording: true,
			advanced_disable_flags: true, persistence: "memory", opt_out_useragent_filter: true, request_queue_config: { flush_interval_ms: 250 },
		})
		for (let n = 0; n < 5; n++) posthog.capture("lap", { game: "kart-" + n %% 3, n }, { uuid: "00000000-0000-4000-8000-00000000000" + n }); 0`},
	"segment": {"@segment/analytics-next/dist/umd", "index.js", `(async () => {
			const cdnSettings = { integrations: { "Segment.io": { apiKey: "kart-key", apiHost: %q.slice(7) + "/segment/v1", protocol: "http", retryQueue: false } } }
			const [sdk] = await AnalyticsNext.AnalyticsBrowser.load({ writeKey: "kart-key", cdnSettings }, { disableClientPersistence: true })
			sdk.addSourceMiddleware(({ payload, next }) => { payload.obj.messageId = "id-" + payload.obj.properties.n; next(payload) })
			for (let n = 0; n < 5; n++) await sdk.track("lap", { game: "kart-" + n %% 3, n })
			return 0
		})()`},
}

// answersOfFetch is a script that keeps what a page gets to know of each of its requests:
// a status, or TypeError.
const answersOfFetch = `<script>
	const send = fetch, answers = []
	fetch = (...request) => send(...request).then((r) => (answers.push(String(r.status)), r), (e) => { answers.push(e.name); throw e })
</script>`

func TestBrowserUnmodifiedSDKsReadTheirAnswersOnListedPagesOnly(t *testing.T) {
	t.Parallel()
	modules, browser := filepath.Join(installSDKs(t), "node_modules"), chromium.Start(t)
	for name, sdk := range pageSDKs {
		files := http.FileServer(http.Dir(filepath.Join(modules, sdk.folder)))
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" {
				files.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "text/html")
			_, _ = fmt.Fprintf(w, `<!DOCTYPE html><html><head>%s<script src="/%s"></script></head></html>`, answersOfFetch, sdk.script)
		}))
		t.Cleanup(web.Close)
		for _, origin := range []string{web.URL, "http://localhost:1"} {
			t.Run(fmt.Sprint(name, ", listed: ", origin == web.URL), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				file, config := filepath.Join(dir, "kart.ndjson"), filepath.Join(dir, "spillway.yaml")
				text := fmt.Sprintf("namespaces:\n  kart: {sink: \"file://%s\", linger: 50ms, write_keys: [kart-key], cors_origins: [%q]}\n", file, origin)
				if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				s := serve(t, "--config", config).ready(http.StatusOK)
				page := browser.Open(t, web.URL)
				if err := page.Eval(fmt.Sprintf(sdk.send, "http://"+s.data), nil); err != nil {
					t.Fatal(err)
				}
				want := "TypeError"
				if origin == web.URL {
					want = "200"
					awaitEvents(t, file, 5)
				}
				var answers []string
				eventually(t, "the page has an answer", func() bool {
					return page.Eval("answers", &answers) != nil || len(answers) > 0
				})
				if len(answers) == 0 || slices.ContainsFunc(answers, func(a string) bool { return a != want }) {
					t.Errorf("the page reads %q, want %s", answers, want)
				}
			})
		}
	}
}
