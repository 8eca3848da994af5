//go:build clients

// Package js holds the JavaScript client. Its tests need Node and Chromium: make test-clients.
package js

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

func TestConformanceOnNode(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, clienttest.Process("node", "driver.mjs"))
}

func TestConformanceOfQueuesOnNode(t *testing.T) {
	t.Parallel()
	clienttest.RunQueues(t, clienttest.Program("node", "driver.mjs"))
}

func TestPagesOnNode(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("node", "--test", "page_test.mjs").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A page gets only the reporter, also of the whole package.
func TestItIsSmall(t *testing.T) {
	t.Parallel()
	esbuild := exec.Command("go", "run", "github.com/evanw/esbuild/cmd/esbuild@v0.25.0", "--minify", "--bundle", "--format=esm")
	esbuild.Stdin = strings.NewReader(`export { Reporter } from "./spillway.js"`)
	minified, err := esbuild.Output()
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(minified); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := packed.Len(); n < 1000 || n > 5300 {
		t.Errorf("minified and gzipped it has %d bytes, want 5,300 at most", n)
	}
}

// install packs the package and puts it where programs in dir find it.
func install(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	packed, err := exec.Command("npm", "pack", "--silent", "--offline", "--pack-destination", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "node_modules", "@spillway-io", "spillway")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, strings.TrimSpace(string(packed)))
	if out, err := exec.Command("tar", "-xzf", archive, "-C", at, "--strip-components=1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// example is a program of the README, for a service at url.
func example(t *testing.T, dir, with, url string) *exec.Cmd {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", "@spillway-io", "spillway", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```js\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], with) {
			program := exec.Command("node", "--input-type=module", "-e", strings.ReplaceAll(block[1], "http://127.0.0.1:8080", url))
			program.Dir = dir
			return program
		}
	}
	t.Fatalf("the README has no example with %s", with)
	return nil
}

func TestTheExamplesOfTheReadmeRunAsPrintedWithThePackage(t *testing.T) {
	t.Parallel()
	dir := install(t)
	events := clienttest.NewServer(t)
	if out, err := example(t, dir, "new Reporter(", events.URL).CombinedOutput(); err != nil || string(out) != "true 2\n" {
		t.Errorf("%v: %s", err, out)
	}
	url := clienttest.NewQueues().Serve(t)
	if out, err := example(t, dir, "queues.claim(", url).CombinedOutput(); err != nil || string(out) != "true true\nada 1\n{ sent: true }\n" {
		t.Errorf("%v: %s", err, out)
	}

	for _, to := range []string{"ada@example", "?"} {
		r, err := http.Post(url+"/v1/mail/welcome", "application/octet-stream", strings.NewReader(`{"to":"`+to+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
	}
	worker := example(t, dir, "new Worker(", url)
	worker.Stderr = os.Stderr
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	var printed []string
	for range 2 {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		printed = append(printed, line)
	}
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil || !slices.Equal(printed, []string{"sent to ada@example\n", "1 no address\n"}) {
		t.Errorf("%v: %q", err, printed)
	}
}

// What the client does not know it says, instead of leaving it out: BullMQ has other words.
func TestWordsOfOthersAreRejected(t *testing.T) {
	t.Parallel()
	const script = `import { Queues, Worker } from "./spillway.js"
const q = new Queues("http://127.0.0.1:9", { namespace: "mail" }), call = { attempts: 1 }
const tries = [() => q.publish("m", 1, { jobId: "x", ...call }), () => q.claim("m", { limit: 1, ...call }), () => q.get("m", "1", { waits: 1, ...call }),
	() => q.ack({ queue: "m", id: "1", attempt: 1 }, null, { force: 1, ...call }), () => q.claim("m", call)]
for (const each of tries) await each().then(() => console.log("done"), e => console.log(e.kind ?? e.message))
try { new Worker(q, "m", () => { }, { concurrency: "5" }) } catch (e) { console.log(e.name) }`
	out, err := exec.Command("node", "--input-type=module", "-e", script).CombinedOutput()
	want := "spillway: no option jobId\nspillway: no option limit\nspillway: no option waits\nspillway: no option force\nunknown\nRangeError\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: got %s, want %s", err, out, want)
	}
}

// A handler's progress moves the deadline that a requeue would name; its result is that of its return.
func TestALateChangeHoldsNothingUp(t *testing.T) {
	t.Parallel()
	const script = `import { NotBegun, Queues, Worker } from "./spillway.js"
const q = new Queues(process.argv[1], { namespace: "mail" }), { ids: [id] } = await q.publish("m", 1)
let n = 0
const worker = new Worker(q, "m", async job => {
	if (!n++) {
		await q.progress(job, 50)
		throw new NotBegun()
	}
	worker.stop()
	const result = { attempt: job.attempt }
	setImmediate(() => result.n = 1n)
	return result
}, { onError: (_, error) => console.log(error.message) })
await worker.run()
console.log((await q.get("m", id)).result)`
	out, err := exec.Command("node", "--input-type=module", "-e", script, clienttest.NewQueues().Serve(t)).CombinedOutput()
	if err != nil || string(out) != "{ attempt: 1 }\n" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTheTypesNameWhatTheModuleExports(t *testing.T) {
	t.Parallel()
	types, err := os.ReadFile("spillway.d.ts")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", "--input-type=module", "-e", `import * as all from "./spillway.js"; console.log(Object.keys(all).join(" "))`).Output()
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, match := range regexp.MustCompile(`(?m)^export class (\w+)`).FindAllSubmatch(types, -1) {
		declared = append(declared, string(match[1]))
	}
	exported := strings.Fields(string(out))
	if slices.Sort(declared); !slices.Equal(declared, exported) {
		t.Errorf("declared %v, exported %v", declared, exported)
	}
}

// Beside the Go client: go test -tags clients -run - -bench . -benchtime 1x ./ingest/client/js
func BenchmarkEvents(b *testing.B) {
	clienttest.MeasureEvents(b, 600_000, "node", "driver.mjs")
}

func BenchmarkJobs(b *testing.B) {
	clienttest.MeasureJobs(b, 100_000, "node", "driver.mjs")
}
