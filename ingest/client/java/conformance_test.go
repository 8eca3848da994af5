//go:build clients

// Package java holds the Java client. Its tests need a JDK: make test-clients.
package java

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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
	never := 10_000 * time.Hour // a second attempt
	sdk := open(t, server.URL, clienttest.Options{Linger: time.Hour, BackoffBase: never, BackoffMax: never})
	for _, want := range []struct{ acked, calls int }{{1, 1}, {1, 2}, {1, 3}, {2, 4}} {
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
		"Laps": {events.URL, "true 1"}, "Mails": {jobs, "true\nada 1\nsent to ada\n{\"sent\":true}"},
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

// Beside the Go client: go test -tags clients -run - -bench . -benchtime 1x ./ingest/client/java
func BenchmarkEvents(b *testing.B) {
	clienttest.MeasureEvents(b, 2_000_000, "java", "-cp", compile(b, "", "src"), "io.spillway.Driver")
}

func BenchmarkJobs(b *testing.B) {
	clienttest.MeasureJobs(b, 200_000, "java", "-cp", compile(b, "", "src"), "io.spillway.Driver")
}
