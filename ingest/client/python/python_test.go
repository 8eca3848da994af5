//go:build clients

// Package python holds the Python client. Its tests need Python 3.9 or newer: make test-clients.
package python

import (
	"archive/zip"
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest"
	"github.com/spillway-io/spillway/lua/redistest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, clienttest.Process("python3", "-W", "error", "driver.py"))
}

func TestConformanceOfQueues(t *testing.T) {
	t.Parallel()
	clienttest.RunQueues(t, clienttest.Program("python3", "-W", "error", "driver.py"))
}

// example is a program of the README, for a service at url.
func example(t *testing.T, with, url string) *exec.Cmd {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], with) {
			return exec.Command("python3", "-u", "-c", strings.ReplaceAll(block[1], "http://127.0.0.1:8080", url))
		}
	}
	t.Fatalf("the README has no example with %s", with)
	return nil
}

func TestTheExamplesOfTheReadmeRunAsPrinted(t *testing.T) {
	t.Parallel()
	events := clienttest.NewServer(t)
	out, err := example(t, "spillway.Reporter(", events.URL).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "True Stats(reported=2, acked=2, pending=0") {
		t.Errorf("%v: %s", err, out)
	}
	service := clienttest.NewQueues()
	url := service.Serve(t)
	out, err = example(t, "queues.claim(", url).CombinedOutput()
	if err != nil || string(out) != "True True\nada 1\n{'sent': True}\n" {
		t.Errorf("%v: %s", err, out)
	}

	forgets := clienttest.NewQueues()
	forgets.Fail = func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet {
			return nil, nil
		}
		return clienttest.Answer(http.StatusNotFound, `{"error":"no_such_job","message":"m"}`), nil
	}
	out, err = example(t, "queues.claim(", forgets.Serve(t)).CombinedOutput()
	if err != nil || string(out) != "True True\nada 1\nit has ended\n" {
		t.Errorf("without a rule that keeps acked jobs: %v: %s", err, out)
	}

	var printed bytes.Buffer
	publish := exec.Command("python3", "-c", `import spillway, sys; spillway.Queues(sys.argv[1], namespace="mail").publish_many("welcome", [{"to": "ada@example"}, {"to": "?"}])`, url)
	if out, err := publish.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	worker := example(t, "spillway.Worker(", url)
	worker.Stdout, worker.Stderr = &printed, &printed
	before := service.Requests()
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, time.Minute, "it claims, settles and claims", func() bool { return service.Requests() >= before+3 })
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil || !strings.Contains(printed.String(), "sent to ada@example") || !strings.Contains(printed.String(), "no address") {
		t.Errorf("%v: %s", err, printed.String())
	}
}

// What is reported right before the end is sent, and a fork sends nothing twice.
func TestTheEndOfAProgramFlushes(t *testing.T) {
	t.Parallel()
	events := clienttest.NewServer(t)
	program := `
import os, spillway, sys
r = spillway.Reporter(sys.argv[1], linger=60)
r.report("parent", 1)
if os.fork() == 0:
    r.report("child", 2)
    sys.exit()
os.wait()
`
	if out, err := exec.Command("python3", "-c", program, events.URL).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got []string
	for _, e := range events.Stored() {
		got = append(got, e.Partition+e.Data)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"child2", "parent1"}) {
		t.Errorf("got %q", got)
	}
}

// A result is that of the return, whatever becomes of the object.
func TestALateChangeHoldsNothingUp(t *testing.T) {
	t.Parallel()
	program := `
import spillway
from spillway._http import compact
from spillway._queues import settlement
result = {"done": True}
line = settlement(spillway.Job("welcome", "1", 1), "ack", result=result)
result["self"] = result
print(compact(line))
`
	out, err := exec.Command("python3", "-W", "error", "-c", program).CombinedOutput()
	if want := `{"id":"1","attempt":1,"do":"ack","result":{"done":true}}` + "\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
}

func TestATimeThatIsNoneIsNamed(t *testing.T) {
	t.Parallel()
	program := `
import datetime, spillway
q = spillway.Queues("http://127.0.0.1:9")
j = spillway.Job("welcome", "1", 1)
for name, call in {
    "delay": lambda: q.publish("welcome", 1, delay="5s"), "ttl": lambda: q.publish_many("welcome", [1], ttl=datetime.timedelta(1)),
    "ttr": lambda: q.claim(["welcome"], ttr="1m"), "wait": lambda: q.wait("welcome", "1", "30s"), "after": lambda: q.nack(j, "30s"),
    "timeout": lambda: spillway.Queues("http://127.0.0.1:9", timeout="5s"), "linger": lambda: spillway.Reporter("http://127.0.0.1:9", linger="1s"),
    "stop_timeout": lambda: spillway.Worker(q, ["welcome"], print, stop_timeout=None), "unique": lambda: q.publish("welcome", 1, unique=True),
}.items():
    try:
        call()
        print(name, "is taken")
    except TypeError as e:
        if not str(e).startswith(name + " is ") or "seconds" not in str(e):
            print(name, e)
try:
    q.touch(j, float("nan"))
except ValueError as e:
    print(e)
`
	out, err := exec.Command("python3", "-W", "error", "-c", program).CombinedOutput()
	if want := "ttr is nan: want a number of seconds\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTheWheelHasTheTypedPackage(t *testing.T) {
	t.Parallel()
	python := ""
	for _, path := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(path, "-c", "import setuptools, wheel").Run() == nil {
			python = path
		}
	}
	if python == "" {
		t.Skip("no Python with setuptools and wheel")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil { // the build writes beside the sources
		t.Fatal(err)
	}
	build := exec.Command(python, "-c", "import setuptools.build_meta as b; b.build_wheel('dist')")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "dist", "spillway-*-py3-none-any.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("got %v, %v", wheels, err)
	}
	wheel, err := zip.OpenReader(wheels[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = wheel.Close() }()
	for _, name := range []string{"spillway/__init__.py", "spillway/_worker.py", "spillway/py.typed"} {
		if !slices.ContainsFunc(wheel.File, func(f *zip.File) bool { return f.Name == name }) {
			t.Errorf("the wheel has no %s", name)
		}
	}
}

// Beside the Go client: go test -tags clients -run - -bench . -benchtime 1x ./ingest/client/python
func BenchmarkEvents(b *testing.B) {
	clienttest.MeasureEvents(b, 200_000, "python3", "driver.py")
}

func BenchmarkJobs(b *testing.B) {
	clienttest.MeasureJobs(b, 20_000, "python3", "driver.py")
}
