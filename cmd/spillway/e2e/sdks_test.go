//go:build clients

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// unmodifiedSDKs are SDKs of other vendors and the metric that counts their requests.
var unmodifiedSDKs = map[string]string{
	"segment": "segment", "rudderstack": "segment", "posthog": "posthog", "amplitude": "amplitude", "analytics-go": "segment",
	"otlp-json": "otlp", "otlp-proto": "otlp",
	"cloudevents": "cloudevents", "mixpanel": "mixpanel", "snowplow": "snowplow",
}

const sdkConfig = `
redis: %s
namespaces:
  default: {sink: "null:"}
  kart:
    sink: file://%s
    linger: 50ms
    write_keys: [kart-key]
`

// installSDKs installs the SDKs as their users do, in the versions of
// testdata/sdks/package.json and testdata/sdks/go/go.mod, once for all tests.
func installSDKs(t *testing.T) (dir string) {
	t.Helper()
	dir, err := sdks()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var sdks = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(filepath.Dir(binary), "sdks") // which TestMain removes
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "send.mjs", "sqs.mjs", "sqs.py"} {
		text, err := os.ReadFile(filepath.Join("testdata", "sdks", name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", err
		}
	}
	// By default npm waits 5 minutes for an answer that does not come: longer than the tests may take.
	npm := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline", "--fetch-timeout=30000", "--fetch-retries=5")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w\n%s", err, out)
	}
	for program, of := range map[string]string{"analytics-go": ".", "aws-sdk-go": "./sqs"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, program), of)
		build.Dir = filepath.Join("testdata", "sdks", "go")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build with %s: %w\n%s", program, err, out)
		}
	}
	return dir, nil
})

// sendBySDK sends the events from to to, and returns how many the SDK calls delivered.
func sendBySDK(t *testing.T, dir, sdk, url string, from, to int) (ok, failed int) {
	t.Helper()
	cmd := exec.Command("node", "send.mjs", sdk, url, "kart-key", strconv.Itoa(from), strconv.Itoa(to))
	if sdk == "analytics-go" {
		cmd = exec.Command("./analytics-go", "-url", url, "-key", "kart-key", "-from", strconv.Itoa(from), "-to", strconv.Itoa(to))
	}
	var log bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &log
	proc.KillWithParent(cmd)
	out, err := cmd.Output()
	var sent struct{ OK, Failed int }
	if err == nil {
		err = json.Unmarshal(out, &sent)
	}
	if err != nil {
		t.Errorf("%s: %v\n%s%.4000s", sdk, err, out, log.String())
	}
	return sent.OK, sent.Failed
}

// answers503 counts what a route answered with 503.
func (s *server) answers503(route string) int {
	resp, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(resp.Body)
	m := regexp.MustCompile(`(?m)^spillway_ingest_requests_total\{code="503",route="` + route + `"\} (\d+)`).FindStringSubmatch(text.String())
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func TestUnmodifiedSDKsDeliverEveryEventAlsoThroughAnOutage(t *testing.T) {
	t.Parallel()
	dir := installSDKs(t)
	const each = 60
	for sdk, route := range unmodifiedSDKs {
		t.Run(sdk, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			t.Cleanup(func() { redis.Signal(syscall.SIGCONT) })
			file := filepath.Join(t.TempDir(), "events.ndjson")
			config := filepath.Join(t.TempDir(), "spillway.yaml")
			if err := os.WriteFile(config, fmt.Appendf(nil, sdkConfig, redis.URL(), file), 0o600); err != nil {
				t.Fatal(err)
			}
			s := serve(t, "--config", config).ready(200)
			url := "http://" + s.data

			if ok, failed := sendBySDK(t, dir, sdk, url, 0, each); ok != each || failed != 0 {
				t.Errorf("%s: %d delivered, %d failed, want all %d delivered", sdk, ok, failed, each)
			}
			if n := s.answers503(route); n > 0 {
				t.Errorf("%d requests were answered 503 while all was well", n)
			}
			lines := awaitEvents(t, file, each)
			if len(lines) != each {
				t.Errorf("%s: %d lines of %d events", sdk, len(lines), each)
			}

			// The store stalls until the SDK was answered 503.
			redis.Signal(syscall.SIGSTOP)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				if ok, failed := sendBySDK(t, dir, sdk, url, each, 2*each); ok != each || failed != 0 {
					t.Errorf("%s in an outage: %d delivered, %d failed, want all %d delivered", sdk, ok, failed, each)
				}
			}()
			eventually(t, "an SDK is answered 503", func() bool { return s.answers503(route) > 0 })
			redis.Signal(syscall.SIGCONT)
			<-sent
			lines = awaitEvents(t, file, 2*each)
			t.Logf("%s: %d events, at least %d of them twice because their first attempt had an unknown outcome", sdk, 2*each, len(lines)-2*each)
		})
	}
}

// Access keys by namespace: of keyed the signature has to hold, of mail the id is a token.
var sqsKeys = map[string][2]string{"keyed": {"AKIAKEYED", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}, "mail": {"token-of-mail", "any"}}

func TestUnmodifiedSDKsOfSQSWorkOnQueues(t *testing.T) {
	t.Parallel()
	dir := installSDKs(t)
	secret, config := filepath.Join(dir, "secret"), filepath.Join(dir, "spillway.yaml")
	text := fmt.Sprintf("redis: %s\npools: {default: {volatile: true}}\nnamespaces:\n  keyed: {kind: queue, access_keys: [{id: %s, secret: \"{file:%s}\"}]}\n"+
		"  mail: {kind: queue, tokens: [\"sha256:%x\"]}\n", redistest.Start(t).URL(), sqsKeys["keyed"][0], secret, sha256.Sum256([]byte(sqsKeys["mail"][0])))
	for name, text := range map[string]string{secret: sqsKeys["keyed"][1] + "\n", config: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, "--config", config).ready(200)
	command := func(env []string, name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		proc.KillWithParent(cmd)
		return cmd
	}
	for namespace, key := range sqsKeys {
		for sdk, program := range map[string][]string{"boto3": {"/usr/bin/python3", "sqs.py"}, "client-sqs and sqs-consumer": {"node", "sqs.mjs"}, "aws-sdk-go-v2": {"./aws-sdk-go"}} {
			t.Run(namespace+"/"+sdk, func(t *testing.T) {
				t.Parallel()
				args := append(program[1:], "http://"+s.data, key[0], key[1])
				var log bytes.Buffer
				cmd := command(nil, program[0], args...)
				cmd.Stderr = &log
				if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != "30" {
					t.Errorf("%v, %s\n%.4000s", err, out, log.String())
				}
			})
		}
		t.Run(namespace+"/celery", func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			env := []string{"OUT=" + out, "BROKER=sqs://" + key[0] + ":" + url.QueryEscape(key[1]) + "@" + s.data + "//"}
			worker := command(env, "/usr/bin/python3", "-m", "celery", "-A", "sqs", "worker", "--concurrency", "2", "--pool", "threads")
			var log bytes.Buffer
			worker.Stdout, worker.Stderr = &log, &log
			if err := worker.Start(); err != nil {
				t.Fatal(err)
			}
			if text, err := command(env, "/usr/bin/python3", "sqs.py", "tasks", "30").CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
			eventually(t, "30 tasks ran", func() bool {
				text, _ := os.ReadFile(out)
				return bytes.Count(text, []byte("\n")) == 30
			})
			_ = worker.Process.Signal(syscall.SIGTERM)
			if err := worker.Wait(); err != nil {
				t.Errorf("worker: %v\n%.4000s", err, log.String())
			}
		})
	}
}

// awaitEvents waits until a file has the events 0 to n-1, and checks id, partition and
// payload of each line.
func awaitEvents(t *testing.T, file string, n int) (lines []sdkLine) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s has %d events", file, n), func() bool {
		text, _ := os.ReadFile(file)
		lines = lines[:0]
		seen := map[int]bool{}
		for raw := range bytes.Lines(text) {
			var l sdkLine
			if !bytes.HasSuffix(raw, []byte("\n")) {
				break // half written
			}
			if err := json.Unmarshal(raw, &l); err != nil {
				t.Fatalf("%v in line %q", err, raw)
			}
			seen[l.number(t, raw)] = true
			lines = append(lines, l)
		}
		return len(seen) == n
	})
	return lines
}

// sdkLine is a line of the file sink, with the payload of any of the SDKs.
type sdkLine struct {
	Namespace, Partition, ID string
	Data                     struct {
		MessageID       string `json:"messageId"`
		UUID            string `json:"uuid"`
		InsertID        string `json:"insert_id"`
		Properties      struct{ N *int }
		EventProperties struct{ N *int } `json:"event_properties"`
	}
}

// lap is the number of an event that says it in a text.
var lap = regexp.MustCompile(`lap-(\d+)`)

// number is that of the event in a line.
func (l sdkLine) number(t *testing.T, line []byte) int {
	t.Helper()
	if m := lap.FindSubmatch(line); m != nil {
		n, _ := strconv.Atoi(string(m[1]))
		if l.Namespace != "kart" || l.Partition != fmt.Sprintf("kart-%d", n%3) && l.Partition != "kart-key" { // Snowplow's
			t.Fatalf("event %d came as %s", n, line)
		}
		return n
	}
	n := l.Data.Properties.N
	if n == nil {
		n = l.Data.EventProperties.N
	}
	if n == nil {
		t.Fatalf("no event of this test: %+v", l)
	}
	id := l.Data.MessageID + l.Data.UUID + l.Data.InsertID
	if l.Namespace != "kart" || l.Partition != fmt.Sprintf("kart-%d", *n%3) || l.ID != id || !strings.HasSuffix(id, strconv.Itoa(*n)) {
		t.Fatalf("event %d came as %+v", *n, l)
	}
	return *n
}

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
