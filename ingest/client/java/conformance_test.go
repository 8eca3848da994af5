//go:build clients

// Package java holds the Java client. Its tests need a JDK: make test-clients.
package java

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

// compile compiles the files below roots, and returns the folder of the classes.
func compile(t testing.TB, classpath string, roots ...string) string {
	t.Helper()
	classes := t.TempDir()
	args := []string{"--release", "11", "-Xlint:all", "-Werror", "-d", classes, "-cp", classpath}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".java") {
				args = append(args, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, "javac", args...)
	return classes
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// java are the arguments of a JVM that starts quickly.
func java(classes string, properties ...string) []string {
	return append(properties, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", classes, "io.spillway.Driver")
}

func TestConformance(t *testing.T) {
	t.Parallel()
	classes := compile(t, "", "src")
	t.Run("events", func(t *testing.T) {
		t.Parallel()
		clienttest.Run(t, clienttest.Process("java", java(classes)...))
	})
	t.Run("jobs", func(t *testing.T) {
		t.Parallel()
		clienttest.RunQueues(t, clienttest.Program("java", java(classes)...))
	})
	t.Run("no repeat of the JDK's", func(t *testing.T) { noRepeatOfTheJDK(t, classes) })
}

// noRepeatOfTheJDK tells the JDK to repeat a POST where a connection was closed without an answer.
func noRepeatOfTheJDK(t *testing.T, classes string) {
	t.Parallel()
	server := clienttest.NewServer(t, clienttest.Step{}, clienttest.Step{Lose: true}, clienttest.Step{Cut: true}, clienttest.Step{})
	open := clienttest.Process("java", java(classes, "-Djdk.httpclient.enableAllMethodRetry=true")...)
	sdk := open(t, server.URL, clienttest.Options{Linger: time.Hour, BackoffBase: time.Millisecond, BackoffMax: time.Second, Attempts: 2})
	for _, want := range []struct{ acked, calls int }{{1, 1}, {1, 3}, {2, 4}} {
		sdk.Report("p", `{"n":1}`)
		_ = sdk.Flush(time.Minute)
		if c, calls := sdk.Counts(), server.Calls(); c.Acked != int64(want.acked) || calls != want.calls {
			t.Errorf("got %+v and %d requests, want %+v", c, calls, want)
		}
	}
	if n := len(server.Stored()); n != 3 {
		t.Errorf("%d stored, want 3", n)
	}
}

func TestTheExamplesOfTheReadmeRunFromTheJar(t *testing.T) {
	t.Parallel()
	jar := filepath.Join(t.TempDir(), "spillway-0.1.0.jar")
	run(t, "jar", "--create", "--file", jar, "-C", compile(t, "", "src/main/java"), ".")
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	events := clienttest.NewServer(t)
	jobs := clienttest.NewQueues().Serve(t)
	for name, want := range map[string]struct{ url, out string }{
		"Laps": {events.URL, "true 1"}, "Mails": {jobs, "true\nada 1\nsent to ada"},
	} {
		dir := t.TempDir()
		for _, block := range regexp.MustCompile("(?s)```java\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(block[1], "class "+name) {
				continue
			}
			source := strings.ReplaceAll(block[1], "http://127.0.0.1:8080", want.url)
			if err := os.WriteFile(filepath.Join(dir, name+".java"), []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		classes := compile(t, jar, dir)
		if out := run(t, "java", "-cp", jar+string(os.PathListSeparator)+classes, name); out != want.out {
			t.Errorf("%s: got %q, want %q", name, out, want.out)
		}
	}
}

func TestMavenTakesThePom(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mvn"); err != nil {
		t.Skip("no Maven")
	}
	run(t, "mvn", "-o", "-q", "-B", "validate")
}

// stub takes every event, and has a job for whoever claims one.
func stub(b *testing.B) string {
	var jobs atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var answer []byte
		switch {
		case strings.HasSuffix(r.URL.Path, "/claim"):
			count, _ := strconv.Atoi(r.URL.Query().Get("count"))
			answer = []byte(`{"jobs":[`)
			for range max(count, 1) {
				answer = fmt.Appendf(answer, `{"queue":"welcome","id":"0ATN8Z2M3QF6Y%013d","attempt":1,"tries":3,"data":"eyJ0byI6ImFkYSJ9"},`, jobs.Add(1))
			}
			answer = append(answer[:len(answer)-1], "]}"...)
		case strings.HasSuffix(r.URL.Path, "/settle"):
			var results []map[string]any
			for i := range strings.Count(string(body), "\n") {
				results = append(results, map[string]any{"i": i, "state": "acked"})
			}
			answer, _ = json.Marshal(map[string]any{"results": results})
		default:
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write(answer)
	}))
	b.Cleanup(web.Close)
	return web.URL
}

// The client's rate against a service that does nothing, in this process, and the Go client's beside it:
//
//	go test -tags clients -run - -bench . -benchtime 1x ./ingest/client/java
func BenchmarkEvents(b *testing.B) {
	const n = 2_000_000
	classes := compile(b, "", "src")
	ours := rate(b, classes, "events", n)
	r, err := spillway.NewReporter(stub(b), spillway.ReporterConfig{Queue: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	payload, began := []byte(`{"event":"lap","kart":7,"ms":63210}`), time.Now()
	for i := range n {
		r.Report("kart"+strconv.Itoa(i&63), payload)
		for i&1023 == 0 && r.Stats().Pending > 20_000 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := r.Close(b.Context()); err != nil || r.Stats().Acked != n {
		b.Fatalf("%v: %+v", err, r.Stats())
	}
	report(b, ours, n/time.Since(began).Seconds())
}

func BenchmarkJobs(b *testing.B) {
	const n = 200_000
	classes := compile(b, "", "src")
	ours := rate(b, classes, "jobs", n)
	q, err := spillway.NewQueues(stub(b), spillway.QueuesConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	ctx, stop := context.WithCancel(b.Context())
	var done atomic.Int64
	began := time.Now()
	err = q.Work(ctx, []string{"welcome"}, func(context.Context, spillway.Job) error {
		if done.Add(1) == n {
			stop()
		}
		return nil
	}, spillway.WorkerConfig{Concurrency: 256})
	if err != nil {
		b.Fatal(err)
	}
	report(b, ours, n/time.Since(began).Seconds())
}

// rate is what the driver measures.
func rate(b *testing.B, classes, what string, n int) float64 {
	b.Helper()
	said := run(b, "java", "-cp", classes, "io.spillway.Driver", "bench", what, stub(b), strconv.Itoa(n))
	var perSecond, cpu float64
	if _, err := fmt.Sscan(said, &perSecond, &cpu); err != nil {
		b.Fatal(said)
	}
	b.ReportMetric(cpu, "java-cpu-µs")
	return perSecond
}

func report(b *testing.B, java, goes float64) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(java, "java/s")
	b.ReportMetric(goes, "go/s")
	b.ReportMetric(java/goes, "ratio")
}
