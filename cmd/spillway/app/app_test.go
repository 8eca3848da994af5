package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/cmd/spillway/load"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/stdout"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// testApp is a running App whose stdout: sink the test reads.
type testApp struct {
	*App
	lines <-chan string // what the sink wrote
	logs  *observer.ObservedLogs
	http  *http.Client
}

// startApp runs an App on free ports with the given flags until the test ends.
func startApp(t *testing.T, args ...string) *testApp {
	t.Helper()
	a := newTestApp(t, args...)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.stop(t) })
	return a
}

func newTestApp(t *testing.T, args ...string) *testApp {
	t.Helper()
	cfg, err := loadConfig(t, append([]string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--linger=5ms"}, args...), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	lines := make(chan string, 10_000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() { w.Close() })
	known := sinkRegistry()
	known["stdout"] = func(*url.URL) (sink.Sink, error) { return stdout.NewWriter(w), nil }
	core, logs := observer.New(zap.DebugLevel)
	app, err := NewApp(cfg, known, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	return &testApp{app, lines, logs, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}}
}

func (a *testApp) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// get asks one of the ports and returns status and body.
func (a *testApp) get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	res, err := a.http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// post sends one event, which must be accepted.
func (a *testApp) post(t *testing.T, path, body string) {
	t.Helper()
	res, err := a.http.Post("http://"+a.Listen+path, "", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if answer, _ := io.ReadAll(res.Body); res.StatusCode != 200 || !strings.Contains(string(answer), `"accepted":1,`) {
		t.Fatalf("got %d %s", res.StatusCode, answer)
	}
}

// line returns the next line that the sink wrote.
func (a *testApp) line(t *testing.T) string {
	t.Helper()
	select {
	case l := <-a.lines:
		return l
	case <-time.After(20 * time.Second):
		t.Fatalf("no line within 20 s; the log:\n%v", a.logs.All())
		return ""
	}
}

// ledger reads the ledger of a namespace from the admin port.
func (a *testApp) ledger(t *testing.T, namespace string) partition.Ledger {
	t.Helper()
	_, body := a.get(t, a.AdminListen, "/api/v1/namespaces/"+namespace)
	var answer admin.Account
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return answer.Ledger
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	redistest.Until(t, time.Minute, what, ok)
}

// Not parallel: goleak would see the goroutines of others.
func TestAppDeliversAnEventFromPostToSinkAndCountsIt(t *testing.T) {
	before := goleak.IgnoreCurrent()
	a := newTestApp(t)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{a.Listen, a.AdminListen} {
		for _, path := range []string{"/livez", "/readyz"} {
			if status, body := a.get(t, address, path); status != 200 || !strings.HasPrefix(body, `{"status":"ok"`) {
				t.Errorf("%s%s: got %d %s", address, path, status, body)
			}
		}
	}
	a.post(t, "/v1/default/kart", `{"lap":1}`)
	var entry struct {
		Namespace, Partition string
		Data                 struct{ Lap int }
	}
	line := a.line(t)
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Namespace != "default" || entry.Partition != "kart" || entry.Data.Lap != 1 {
		t.Errorf("the sink got %s", line)
	}
	eventually(t, "the batch is settled", func() bool { return a.ledger(t, "default").Delivered == 1 })
	if _, body := a.get(t, a.AdminListen, "/api/v1/namespaces/default?audit=1"); !strings.Contains(body, `"residual":0`) {
		t.Errorf("audit: got %s", body)
	}
	if _, body := a.get(t, a.AdminListen, "/metrics"); !strings.Contains(body, "spillway_build_info{") || !strings.Contains(body, "spillway_ready 1") {
		t.Errorf("metrics of the App are missing:\n%s", body)
	}
	a.stop(t)
	a.stop(t)
	if got, want := a.Final["default"].Ledger, (partition.Ledger{Accepted: 1, Delivered: 1}); got != want {
		t.Errorf("the final ledger is %+v, want %+v", got, want)
	}
	if _, err := a.http.Get("http://" + a.Listen + "/livez"); err == nil {
		t.Error("the data port still answers")
	}
	if n := a.logs.FilterMessageSnippet("the store is embedded").Len(); n != 1 {
		t.Errorf("%d lines say that the store is embedded, want 1", n)
	}
	goleak.VerifyNone(t, before,
		goleak.IgnoreTopFunction("io.(*pipe).read"), // the reader of the test
		// fasthttp keeps these goroutines for up to 10 s after the end of a server.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

func TestAppStopsBeforeStart(t *testing.T) {
	t.Parallel()
	a := newTestApp(t)
	a.stop(t)
	if err := a.Wait(canceled()); err != nil {
		t.Error(err)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestAppStartErrorNamesThePortInUse(t *testing.T) {
	t.Parallel()
	a := startApp(t)
	for flag, address := range map[string]string{"--listen=": a.Listen, "--admin-listen=": a.AdminListen} {
		b := newTestApp(t, flag+address)
		if err := b.Start(t.Context()); err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(flag[2:len(flag)-1], "-", "_")+": ") {
			t.Errorf("%s: got %v", flag, err)
		}
	}
	if status, _ := a.get(t, a.Listen, "/readyz"); status != 200 {
		t.Errorf("the first App is no longer ready: %d", status)
	}
}

func TestAppRunsNotReadyWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	a := startApp(t, "--redis="+server.URL())
	notReady := func() bool {
		for _, address := range []string{a.Listen, a.AdminListen} {
			if status, _ := a.get(t, address, "/livez"); status != 200 {
				t.Fatalf("%s: livez %d", address, status)
			}
			if status, body := a.get(t, address, "/readyz"); status != 503 || !strings.Contains(body, `"not_ready"`) {
				return false
			}
		}
		return true
	}
	ready := func() bool {
		data, _ := a.get(t, a.Listen, "/readyz")
		admin, _ := a.get(t, a.AdminListen, "/readyz")
		return data == 200 && admin == 200
	}
	if !notReady() {
		t.Error("ready while the store is down")
	}
	server.Launch()
	eventually(t, "ready once the store is up", ready)
	a.post(t, "/v1/default/kart", "1")
	if line := a.line(t); !strings.Contains(line, `"partition":"kart"`) {
		t.Errorf("got %s", line)
	}
	eventually(t, "the batch is settled", func() bool { return a.ledger(t, "default").Delivered == 1 })
	server.Kill()
	eventually(t, "not ready once the store is down again", notReady)
	if status, _ := a.get(t, a.AdminListen, "/api/v1/namespaces/default"); status != 503 {
		t.Errorf("ledger without a store: got %d", status)
	}
	if n := a.logs.FilterMessageSnippet("store unusable").Len(); n != 2 {
		t.Errorf("%d lines about two outages", n)
	}
}

func TestAppRejectsAnIncompatibleStore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first := startApp(t, "--redis="+server.URL())
	first.stop(t)
	server.Client().HSet(t.Context(), "sw:{default.0}:ledger", "format", 9)
	second := newTestApp(t, "--redis="+server.URL())
	err := second.Start(t.Context())
	if !errors.Is(err, partition.ErrIncompatible) || !strings.Contains(err.Error(), "upgrade the program") {
		t.Errorf("got %v, want an error that says what to do", err)
	}
	_, stderr, code := runCommand(t, nil, "", "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--redis="+server.URL())
	if code != exitFailure || !strings.Contains(stderr, "upgrade the program") {
		t.Errorf("serve: got %d, %s", code, stderr)
	}
}

func TestIngestAndDrainRolesWorkTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	in := startApp(t, "--redis="+server.URL(), "--role=ingest")
	out := startApp(t, "--redis="+server.URL(), "--role=drain")
	if out.Listen != "" {
		t.Errorf("the drain role has a data port: %s", out.Listen)
	}
	in.post(t, "/v1/default/kart", "1")
	if line := out.line(t); !strings.Contains(line, `"data":1`) {
		t.Errorf("got %s", line)
	}
	eventually(t, "both see the same ledger", func() bool {
		want := partition.Ledger{Accepted: 1, Delivered: 1}
		return in.ledger(t, "default") == want && out.ledger(t, "default") == want
	})
}

func TestNamespacesHaveTheirOwnSinksAndLedgers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, target := filepath.Join(dir, "spillway.yaml"), filepath.Join(dir, "kart.ndjson")
	file := fmt.Sprintf("namespaces:\n  default:\n  kart: {sink: %q, batch: 2}\n", "file://"+target)
	if err := os.WriteFile(config, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	a := startApp(t, "--config="+config)
	a.post(t, "/v1/default/x", `"to stdout"`)
	for range 3 {
		a.post(t, "/v1/kart/x", `"to a file"`)
	}
	if line := a.line(t); !strings.Contains(line, `"to stdout"`) || !strings.Contains(line, `"namespace":"default"`) {
		t.Errorf("got %s", line)
	}
	eventually(t, "both are settled", func() bool {
		return a.ledger(t, "default").Delivered == 1 && a.ledger(t, "kart").Delivered == 3
	})
	if got, err := os.ReadFile(target); err != nil || strings.Count(string(got), `"to a file"`) != 3 || strings.Count(string(got), "\n") != 3 {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if status, _ := a.get(t, a.AdminListen, "/api/v1/namespaces/chess"); status != 404 {
		t.Errorf("a namespace that is not configured: %d", status)
	}
	if _, body := a.get(t, a.AdminListen, "/api/v1/namespaces"); !strings.Contains(body, `"namespace":"kart","kind":"buffer","sink":"file://`+target+`"`) {
		t.Errorf("got %s", body)
	}
}

func TestReportIsCountedExactlyInTheLedger(t *testing.T) {
	t.Parallel()
	a := startApp(t)
	// Like a match: many partitions, bursts, entries of very different sizes.
	const entries = 1500
	var input strings.Builder
	for i := range entries {
		fmt.Fprintf(&input, `{"partition":"match.42.slot-%d","offset_ms":%d,"data":{"type":"kill","n":%d,"note":"%s"}}`+"\n",
			i%13, i/100*1000, i, strings.Repeat("x", i*i%4000))
	}
	for _, pace := range [][]string{nil, {"--replay-speed=60"}} {
		out, stderr, code := runCommand(t, map[string]string{"SPILLWAY_SERVER": "http://" + a.Listen}, input.String(),
			append([]string{"report", "-o", "json"}, pace...)...)
		var sum struct{ Accepted int }
		if err := json.Unmarshal([]byte(out), &sum); err != nil || code != exitOK || sum.Accepted != entries {
			t.Fatalf("%v: got %d, %s, %s", pace, code, out, stderr)
		}
	}
	eventually(t, "all is delivered", func() bool { return a.ledger(t, "default").Buffered == 0 })
	if got, want := a.ledger(t, "default"), (partition.Ledger{Accepted: 2 * entries, Delivered: 2 * entries}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	last := map[string]int64{}
	for range 2 * entries {
		var entry struct {
			Partition string
			Seq       int64
		}
		if err := json.Unmarshal([]byte(a.line(t)), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Seq <= last[entry.Partition] {
			t.Fatalf("%s: %d after %d", entry.Partition, entry.Seq, last[entry.Partition])
		}
		last[entry.Partition] = entry.Seq
	}
}

func TestReportGivesUpWhenNothingListens(t *testing.T) {
	t.Parallel()
	_, stderr, code := runCommand(t, nil, `{"partition":"p","data":1}`, "report", "--server=http://"+redistest.FreeAddr(t), "--timeout=2s")
	if code != exitFailure || !strings.Contains(stderr, "connection refused") || !strings.Contains(stderr, "gave up after 2s") {
		t.Errorf("got %d, %s", code, stderr)
	}
}

// demo runs the demo until ok holds of what it prints.
func demo(t *testing.T, person bool, ok func(stdout, stderr string) bool) (stdout, stderr string) {
	t.Helper()
	var out, errs lockedBuffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Of its own, as of two demos that find 8080 free at once one ends.
	d := &load.Demo{Listen: redistest.FreeAddr(t), AdminListen: redistest.FreeAddr(t)}
	ended := make(chan error, 1)
	go func() {
		p := config.Process{Stdout: &out, Stderr: &errs, Name: "bin/spillway"}
		ended <- d.Show(ctx, p, newService, person)
	}()
	eventually(t, "the demo prints what it should", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v; it said %s", err, errs.String())
		default:
		}
		return ok(out.String(), errs.String())
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return out.String(), errs.String()
}

func TestDemoDeliversItsEventsAndPrintsTheLedger(t *testing.T) {
	t.Parallel()
	stdout, stderr := demo(t, false, func(stdout, _ string) bool { return strings.Count(stdout, "\n") > 1 })
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	for _, l := range lines {
		if !json.Valid([]byte(l)) {
			t.Fatalf("stdout holds %q", l)
		}
	}
	var accepted, delivered, buffered int
	_, equation, _ := strings.Cut(stderr, "\ndefault: ")
	const form = "accepted %d = delivered %d + evicted 0 + expired 0 + dead 0 + lost 0 + buffered %d\n"
	if _, err := fmt.Sscanf(equation, form, &accepted, &delivered, &buffered); err != nil || delivered != len(lines) || accepted != delivered+buffered {
		t.Errorf("%d lines, and stderr ends with %s: %v", len(lines), equation, err)
	}
	if !strings.Contains(stderr, "/v1/default/my-game") || !strings.Contains(stderr, "/api/v1/namespaces/default") {
		t.Errorf("the addresses to try are missing: %s", stderr)
	}
}

func TestDemoListensWhereItIsTold(t *testing.T) {
	t.Parallel()
	data, admin := redistest.FreeAddr(t), redistest.FreeAddr(t)
	_, stderr, code := runCommand(t, map[string]string{"SPILLWAY_ADMIN_LISTEN": admin}, "", "demo", "--duration=100ms", "--listen="+data)
	if want := "data port http://" + data + ", admin port http://" + admin; code != exitOK || !strings.Contains(stderr, want) {
		t.Errorf("exit %d, %s; want %s", code, stderr, want)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	if _, stderr, code := runCommand(t, nil, "", "serve", "--admin-listen="+taken.Addr().String()); code != exitFailure || !strings.Contains(stderr, "perhaps a demo") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	for _, address := range []string{taken.Addr().String(), "0.0.0.0:8080", "8080"} {
		if _, stderr, code := runCommand(t, nil, "", "demo", "--duration=100ms", "--admin-listen="+address); code == exitOK || !strings.Contains(stderr, "in use") && !strings.Contains(stderr, "want an address of this machine") {
			t.Errorf("%s: exit %d, %s", address, code, stderr)
		}
	}
}

// They come 2 s after the first batches may, so they are what stands at the end of the terminal.
func TestDemoPrintsItsInstructionsToAPersonLast(t *testing.T) {
	t.Parallel()
	began, took := time.Now(), time.Duration(0)
	_, stderr := demo(t, true, func(_, stderr string) bool {
		took = time.Since(began)
		return strings.Contains(stderr, "Spillway is running")
	})
	if took < 2*time.Second {
		t.Errorf("they are there after %v, before anybody saw a batch", took)
	}
	if !strings.Contains(stderr, "or: bin/spillway top --admin http://") {
		t.Errorf("a command that cannot be pasted: %s", stderr)
	}
}

// lockedBuffer takes what several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestBenchStartsAServiceInItsProcess(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, tt := range []struct {
		args []string
		want map[string]float64
		not  string // measured in this mode
	}{
		{[]string{"ingest"}, map[string]float64{"requests": 100, "acked": 200}, "drain_rate"},
		{[]string{"e2e", "--redis=" + redis.URL(), "--dist=zipf"}, map[string]float64{"acked": 200, "delivered": 200}, "none"},
		{[]string{"drain"}, map[string]float64{"delivered": 200, "buffered": 0}, "p99"},
	} {
		t.Run(tt.args[0], func(t *testing.T) {
			t.Parallel()
			args := append([]string{"bench", "-o", "json", "--rate=200", "--duration=500ms", "--batch=2", "--partitions=5", "--assert=residual=0,lost=0"}, tt.args...)
			out, stderr, code := runCommand(t, nil, "", args...)
			var got map[string]any
			if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
				t.Fatalf("exit %d, %v: %s%s", code, err, out, stderr)
			}
			for key, want := range tt.want {
				if got[key] != want {
					t.Errorf("%s: got %v, want %v", key, got[key], want)
				}
			}
			if _, there := got[tt.not]; there {
				t.Errorf("%s is there, in %s", tt.not, out)
			}
			if !strings.Contains(stderr, "in this process") {
				t.Errorf("stderr does not say where the service runs: %s", stderr)
			}
		})
	}
}

func TestBenchFailsWhenAnAssertionFails(t *testing.T) {
	t.Parallel()
	out, stderr, code := runCommand(t, nil, "", "bench", "ingest", "--rate=50", "--duration=100ms", "--assert=acked>1000,errors=0")
	if code != exitFailure || !strings.Contains(stderr, "assert acked>1000: got 5 entries") || !strings.Contains(out, "p99.9") {
		t.Errorf("exit %d, %s\n%s", code, stderr, out)
	}
}

func TestBenchSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	_, stderr, code := runCommand(t, nil, "", "bench", "e2e", "--rate=50", "--duration=1200ms")
	if code != exitOK || !regexp.MustCompile(`sending for \d+ of 1 s: `).MatchString(stderr) || !strings.Contains(stderr, " 0 failed, p99 ") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestReportAndBenchRejectUnusableSettings(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"report --rate=NaN":               "rate: NaN is not usable: want 0.001 to 1000000000",
		"report --rate=1e-300":            "rate: 1e-300 is not usable: want 0.001 to 1000000000",
		"report --rate=-1":                "rate: -1 is not usable: want 0.001 to 1000000000",
		"report --replay-speed=+Inf":      "replay_speed: +Inf is not usable: want 0.001 to 1000000000",
		"report --timeout=1ns":            "timeout: 1ns is not usable: want 10ms to 1h",
		"report --timeout=0s":             "timeout: 0s is not usable: want 10ms to 1h",
		"bench ingest --rate=NaN":         "rate: NaN is not usable: want 0 to 10000000",
		"bench ingest --rate=-1":          "rate: -1 is not usable: want 0 to 10000000",
		"bench drain --rate=1e300":        "rate: 1e+300 is not usable: want 0 to 10000000",
		"bench ingest --duration=-1s":     "duration: -1s is not usable: want 1ms to 24h",
		"bench ingest --timeout=1ns":      "timeout: 1ns is not usable: want 10ms to 1h",
		"bench ingest --partitions=0":     "partitions: 0 is not usable: want 1 to 10000000",
		"bench ingest --batch=1001":       "batch: 1001 is not usable: want 1 to 1000",
		"bench ingest --connections=0":    "connections: 0 is not usable: want 1 to 65535",
		"bench ingest --size=1":           "size: 1 is not usable: want",
		"bench ingest --size=99999999999": "size: 99999999999 is not usable: want",
	} {
		if _, stderr, code := runCommand(t, nil, "", strings.Fields(args)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d and %q, want %q", args, code, stderr, want)
		}
	}
}
