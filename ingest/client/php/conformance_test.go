//go:build clients

// Package php holds the PHP client. Its tests need PHP 7.4 or newer with curl and pcntl: make test-clients.
package php

import (
	"bufio"
	"encoding/json"
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

func TestConformance(t *testing.T) {
	t.Parallel()
	// A program without threads sends when it is told to.
	clienttest.Run(t, clienttest.Process("php", "driver.php"),
		"a batch goes before its linger, the rest after it",
		"a clock that goes back harms nobody",
		"a dead server is probed, not hammered",
		"close ends in time and counts what it drops",
	)
}

func TestConformanceOfQueues(t *testing.T) {
	t.Parallel()
	// A worker without threads does one job at a time.
	clienttest.RunQueues(t, clienttest.Program("php", "driver.php"),
		"handlers run at once, as many as concurrency says",
		"a stop waits for handlers and leaves other jobs uncounted",
	)
}

// example is the nth program of the README, for a service at url, which loads classes as composer.json says.
func example(t *testing.T, n int, url string) *exec.Cmd {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var composer struct {
		Autoload struct {
			PSR4 map[string]string `json:"psr-4"`
		}
	}
	raw, err := os.ReadFile("composer.json")
	if err == nil {
		err = json.Unmarshal(raw, &composer)
	}
	if err != nil {
		t.Fatal(err)
	}
	src, err := filepath.Abs(composer.Autoload.PSR4[`Spillway\`])
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```php\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	dir := t.TempDir()
	for name, program := range map[string]string{
		"vendor/autoload.php": `spl_autoload_register(function ($class) { require '` + src + `/' . substr($class, strlen('Spillway\\')) . '.php'; });`,
		"example.php":         strings.ReplaceAll(blocks[n][1], "http://127.0.0.1:8080", url),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("<?php\n"+program), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("php", "-d", "display_errors=stderr", "-d", "error_reporting=-1", "example.php")
	cmd.Dir = dir
	return cmd
}

func TestTheEventsOfTheReadmeAreSentAtTheEnd(t *testing.T) {
	t.Parallel()
	events := clienttest.NewServer(t)
	out, err := example(t, 0, events.URL).CombinedOutput()
	if stored := events.Stored(); err != nil || len(out) != 0 || len(stored) != 1 || stored[0].Data != `{"event":"lap","ms":63210}` {
		t.Errorf("%v: %s; stored %v", err, out, stored)
	}
}

func TestAForkSendsNothingTwice(t *testing.T) {
	t.Parallel()
	events := clienttest.NewServer(t)
	program := `
require 'src/Queues.php';
require 'src/Reporter.php';
$r = new Spillway\Reporter($argv[1]);
$r->report('parent', '1');
$r->flush(10);
$r->report('parent', '2');
$child = pcntl_fork();
$r->report($child === 0 ? 'child' : 'parent', '3');
if ($child > 0) {
    pcntl_waitpid($child, $status);
}
`
	if out, err := exec.Command("php", "-r", program, events.URL).CombinedOutput(); err != nil || len(out) != 0 {
		t.Fatalf("%v: %s", err, out)
	}
	var got []string
	for _, e := range events.Stored() {
		got = append(got, e.Partition+e.Data)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"child3", "parent1", "parent2", "parent3"}) {
		t.Errorf("got %q", got)
	}
}

func TestTheJobsOfTheReadmeRunAsPrinted(t *testing.T) {
	t.Parallel()
	cmd := example(t, 1, clienttest.NewQueues().Serve(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for _, want := range []string{"bool(true)", "ada 1", "sent to ada", `{"sent":true}`} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
		if want == "sent to ada" {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("stopped by a signal: %v", err)
	}
}

// Its line is nested once more, and has to be JSON as well.
func TestAResultThatIsTooDeepIsInvalid(t *testing.T) {
	t.Parallel()
	program := `
require 'src/Queues.php';
$q = new Spillway\Queues('http://127.0.0.1:9', ['attempts' => 1]);
for ($deep = [], $n = 1; $n <= 512; $n++, $deep = [$deep]) {
    try {
        $q->ack(new Spillway\Job('welcome', '1', 1), $deep);
    } catch (Spillway\Failure $f) {
        $kinds[$f->kind] = $n;
    }
}
echo json_encode($kinds);
`
	if out, err := exec.Command("php", "-r", program).CombinedOutput(); err != nil || string(out) != `{"unavailable":511,"invalid":512}` {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTheComposerFileIsValid(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("composer"); err != nil {
		t.Skip("no composer")
	}
	if out, err := exec.Command("composer", "validate", "--no-check-version", "--no-interaction", "composer.json").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
